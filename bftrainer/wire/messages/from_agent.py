"""Messages of agents and their workers to the daemon, validated.

An agent runs as its user, who may have put any program in its place. What passes has types and bounds that
the store and the engine can take; whether it is true is another matter. Unknown kinds are ignored and unknown
fields dropped, so that a newer agent or script may say more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from bftrainer.wire.messages.fields import (
    MAX_DEVICES,
    MAX_WORKERS,
    MOST,
    AgentPhase,
    Count,
    Entry,
    Metrics,
    Number,
    Rate,
    Schema,
    Seconds,
    Size,
    Text,
    Texts,
    Word,
)
from bftrainer.wire.words import OF_WORKERS

# worker -> agent -> daemon; the agent sends it on in a `Worker`


class OfWorker(Schema):
    """Base of all messages of workers."""

    generation: Count = 0
    """The membership that the worker speaks of; 0 before its first."""


class Ready(OfWorker):
    """The script is up to the point where it waits to become a member."""

    type: Literal["ready"]


class Attached(OfWorker):
    """The script has called `elastic.attach`: it knows of reports, and of stopping together."""

    type: Literal["attached"]


class Joined(OfWorker):
    """The worker trains in a new membership. `survivor`: it brought the state from the one before.

    `pause_s`: since its last step before.
    """

    type: Literal["joined"]
    generation: Count
    step: Count
    size: Size
    survivor: bool
    pause_s: Seconds


class CaughtUp(OfWorker):
    """A worker that joined without the state has received it: `bytes` in `seconds`."""

    type: Literal["caught_up"]
    bytes: Count
    seconds: Seconds


class Standing(OfWorker):
    """Progress of training: `step` and `samples` are committed by all members.

    `at`: the time of the last step, from scripts that another runtime leads. `of`: the samples of the whole
    training, if the script knows them. `warned`: the last warnings of the worker's process. `saved`: the step
    of the last checkpoint that is whole on the disk, as far as the worker knows.
    """

    generation: Count
    step: Count
    samples: Count
    epoch: Count
    metrics: Metrics
    size: Size | None = None
    at: Number | None = None
    of: Count | None = None
    warned: Texts = Field(default_factory=list)
    saved: Count | None = None


class UsedDevice(Schema):
    """Use of a device on which trainers take turns. `step_s`, `held_s` and `waited_s`: how long a step takes,
    has the turn, and waits for it; `peak`: the most memory that it has used, of `memory` that the device has
    (bytes; 0: not known); `beside`: the other trainer there, 0: none."""

    step_s: Seconds
    held_s: Seconds
    waited_s: Seconds
    peak: Count
    memory: Count
    beside: Count


class Progress(Standing):
    """Rank 0, a few times a second. `rate`: samples a second; `problem`: why no checkpoint can be written;
    `device`: added by its agent where trainers take turns."""

    type: Literal["progress"]
    size: Size
    rate: Rate | None
    problem: Text = ""
    device: UsedDevice | None = None


class FreshMetrics(Standing):
    """Rank 0, when the script reports figures between two reports of progress."""

    type: Literal["metrics"]
    size: Size


class Resumed(OfWorker):
    """Rank 0 of a script that another runtime leads: the first step in a new membership, at `at`.

    `pause_s`: since its last step before; None where the process has taken none.
    """

    type: Literal["resumed"]
    generation: Count
    step: Count
    size: Size
    at: Number
    pause_s: Seconds | None = None


class Finished(Standing):
    """The trainer's work is done and written down; what the script has after its loop follows. Rank 0 decides
    whether that ends well."""

    type: Literal["finished"]
    rank: Count = 0


class Left(Standing):
    """The worker leaves; what it had to write down is written."""

    type: Literal["left"]


class Broken(OfWorker):
    """The members of a generation cannot train together, for this reason."""

    type: Literal["broken"]
    generation: Count
    reason: Text


class Failed(OfWorker):
    """The trainer must end as failed, for this reason: to try it again would lead to the same."""

    type: Literal["failed"]
    generation: Count
    reason: Text


class Warned(OfWorker):
    """The last warnings of a script that tells of no progress; none: they were taken back."""

    type: Literal["warned"]
    warned: Texts


class Busy(OfWorker):
    """The script works apart from the others, for `seconds` at most; 0: not any more. The others wait."""

    type: Literal["busy"]
    generation: Count
    seconds: Seconds


class Kv(OfWorker):
    """An entry of a generation's rendezvous. The daemon passes it on unread to all other members."""

    type: Literal["kv"]
    generation: Count
    key: Word
    value: Entry


# worker -> agent


class TakenSnapshot(Schema):
    """A whole snapshot of the state after `step` steps lies in the first `bytes` of a piece of shared memory,
    which is the agent's from now on: it writes that to `file` in the trainer's folder of checkpoints."""

    type: Literal["snapshot"]
    slot: int
    bytes: Count
    file: Word
    step: Count


# agent -> daemon


class About(Schema):
    """Names a message's worker: that of `trainer` which generation `started` started, in `run`."""

    trainer: Count
    started: Count
    run: Count


class Worker(About):
    """A worker's message: `said` is one of `FromWorker`.

    So no worker can pose as its agent: `said` has no messages of agents themselves.
    """

    type: Literal["worker"]
    said: dict[str, Any]


def _last_words(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """An end is an end, whatever the worker said last: nonsense counts as nothing."""
    try:
        return validate(value)
    except ValidationError:
        return None


class Exited(About):
    """A worker's process has ended. `code`: as in `subprocess`, below 0 for a signal.

    `reason`: why the agent ended it or could not start it, or empty; `last`: the last progress that the
    worker reported, {} on the wire if none. The agent repeats it until the daemon has heard it.
    `unfit`: it was not started, as the node has too few devices for it: its program has done nothing wrong.
    `kept`: the step of the trainer's last checkpoint (0: there is none), if no other member has the state.
    """

    type: Literal["exited"]
    code: Annotated[int, Field(ge=-MOST, le=MOST)]
    phase: AgentPhase
    reason: Text
    unfit: bool = False
    kept: Count | None = None
    last: Annotated[
        Annotated[Progress | Finished | Left, Field(discriminator="type")] | None, WrapValidator(_last_words)
    ]


class Bye(Schema):
    """The pilot has been told to end: the daemon may take the node's workers out of their trainers."""

    type: Literal["bye"]


class Devices(Schema):
    """The devices (GPUs) that a pilot has got, and that can be used. `kind`: cuda, rocm and the like.

    `out`: those that failed again and again, each with why, and are not used any more.
    """

    kind: Word = ""
    count: Annotated[int, Field(ge=0, le=MAX_DEVICES)] = 0
    out: Texts = Field(default_factory=list)


class DevicesChanged(Schema):
    """A device has been taken out, see `Devices`."""

    type: Literal["devices"]
    devices: Devices


class Hello(Schema):
    """An agent introduces itself. Its request has named its pilot, and its part of the seals."""

    type: Literal["hello"]
    node: Annotated[Word, Field(min_length=1)]
    workers: Annotated[list[Any], Field(max_length=MAX_WORKERS)]
    """The workers on the node; see `Running`, and `running`, which reads them."""
    devices: Devices | None = None
    """The devices of its pilot; None: the agent is of a version that does not say."""


class Running(Schema):
    """One entry of a hello. `generation`: that started the worker; `joined`: the last that it joined.

    `run`: the membership for which its process was let go; 0 where the launcher does not say `go`.
    `workers`: how many processes it is.
    """

    trainer: Count
    generation: Count
    run: Count
    phase: AgentPhase
    joined: Count
    workers: Annotated[int, Field(ge=1, le=MAX_DEVICES)] = 1


# reading them

FromWorker = (
    Attached
    | Ready
    | Joined
    | CaughtUp
    | Progress
    | FreshMetrics
    | Resumed
    | Finished
    | Left
    | Broken
    | Busy
    | Failed
    | Warned
    | Kv
)
"""A worker's message."""
Said = FromWorker | Exited
"""A message on one worker, by itself or by its agent."""

_FROM_WORKER: TypeAdapter[FromWorker] = TypeAdapter(Annotated[FromWorker, Field(discriminator="type")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report on the worker of `trainer` that generation `started` started, in its run `run`."""

    trainer: int
    started: int
    run: int
    said: Said


def read(message: object) -> Report | None:
    """Read an agent's report on a worker; None where its kind is unknown.

    Raises:
        ValueError: a field is missing or has no possible value.
    """
    kind = _kind(message)
    if kind == "exited":
        end = Exited.model_validate(message)
        return Report(trainer=end.trainer, started=end.started, run=end.run, said=end)
    if kind != "worker":
        return None
    about = Worker.model_validate(message)
    if _kind(about.said) not in OF_WORKERS:
        return None
    said = _FROM_WORKER.validate_python(about.said)
    return Report(trainer=about.trainer, started=about.started, run=about.run, said=said)


def _kind(message: object) -> str:
    kind = message.get("type") if isinstance(message, dict) else None
    if not isinstance(kind, str):
        raise ValueError("a message is an object with a type")
    return kind


def running(workers: Iterable[object]) -> list[Running]:
    """The workers of a hello, without entries that make no sense."""
    found = []
    for entry in workers:
        with contextlib.suppress(ValidationError):
            found.append(Running.model_validate(entry))
    return found
