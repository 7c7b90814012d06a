"""Messages as launchers send and hear them in tests: every one has to fit the schema."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from bftrainer.model.reports import Message
from bftrainer.wire.messages import helpers, to_agent
from bftrainer.wire.messages.fields import Schema
from bftrainer.wire.messages.from_agent import Report, Running, read

OPTIONAL = {"workers", "each", "leader_first", "slots", "folder"}
"""Fields of nodes with several workers, and of trials with a folder of their own."""


def kinds(module: object) -> dict[str, type[Schema]]:
    """The kinds of messages that a module of the schema has."""
    found = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Schema)]
    return {
        name: kind
        for kind in found
        if "type" in kind.model_fields
        for name in kind.model_fields["type"].annotation.__args__  # type: ignore[union-attr]
    }


def checked(module: object, message: Message) -> Message:
    """A message, if it has exactly the fields that the schema says for its kind; those of `OPTIONAL` only
    where they are needed."""
    kind = kinds(module)[message["type"]]
    kind.model_validate(message)
    assert kind.model_fields.keys() - message.keys() <= OPTIONAL, message
    assert message.keys() <= kind.model_fields.keys(), message
    return message


def order(message: Message) -> Message:
    """A message to an agent, if it fits the schema."""
    return checked(to_agent, message)


def to_driver(message: Message) -> Message:
    """A message to a Horovod driver, if it fits the schema."""
    return checked(helpers, message)


def report(kind: str, *, trainer: int = 1, started: int = 1, run: int = 0, **fields: Any) -> Report:
    """What an agent says of a worker, as the daemon reads it."""
    found = read(passed_on(kind, trainer=trainer, started=started, run=run, **fields))
    assert found is not None, kind
    return found


def passed_on(kind: str, *, trainer: int = 1, started: int = 1, run: int = 0, **fields: Any) -> Message:
    """What an agent sends of a worker: what that has said, or its end."""
    about = {"trainer": trainer, "started": started, "run": run}
    if kind == "exited":
        return {"type": kind, **about, **fields}
    return {"type": "worker", **about, "said": {"type": kind, **fields}}


def worker(generation: int, phase: str, joined: int = 0, trainer: int = 1) -> Running:
    """A worker in an agent's list of what runs on its node."""
    entry = {"trainer": trainer, "generation": generation, "run": 0, "phase": phase, "joined": joined}
    return TypeAdapter(Running).validate_python(entry)
