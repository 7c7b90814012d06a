"""Merges the reports of a node's workers into one. Pure.

A message from one worker of one goes on as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

Message = dict[str, Any]
HUNG_S = 5.0
MOST_S = 1e9
SAME_S = 1.0
"""Ends of a time that differ by less are the same."""
FIRST_ONLY = frozenset({"progress", "metrics", "resumed"})
"""Kinds of which only the first worker's messages count."""


class Ranked(Protocol):
    """A worker, as far as is needed here."""

    @property
    def seat(self) -> Any:
        """Its place, with its number on the node."""
        ...


W = TypeVar("W", bound=Ranked)


class MergedReports:
    """Merges the reports of `count` workers into one. `gated`: their scripts know nothing of memberships, and
    only rank 0 says that the work is done."""

    def __init__(self, count: int, *, gated: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._count, self._gated, self._clock = count, gated, clock
        self._parts: dict[str, tuple[int, dict[int, Message]]] = {}  # kind -> generation, worker -> message
        self._attached = False
        self._heard: dict[int, int] = {}  # worker -> the last generation that it said anything of
        self._broken = 0  # the last generation that any has found broken
        self._silent_since: dict[int, float] = {}  # worker -> when a membership found it to be
        self._ended: set[int] = set()
        self._busy_until: dict[int, float] = {}
        self._busy_told: tuple[object, float] = (None, 0.0)  # of which generation, and until when

    def for_daemon(self, rank: int, message: Message) -> list[Message]:
        """Messages for the daemon after a message of this worker."""
        if self._count == 1:
            return [message]
        kind, generation = message["type"], message.get("generation", 0)
        self._heard[rank] = max(self._heard.get(rank, 0), generation)
        if kind == "broken":
            self._broken = max(self._broken, generation)
        if kind in FIRST_ONLY or (self._gated and kind in ("finished", "left")):
            return [message] if rank == 0 else []
        if kind in ("ready", "joined", "finished", "left"):
            return self._when_all(rank, kind, generation, message)
        if kind == "attached":
            first, self._attached = not self._attached, True
            return [message] if first else []
        return self._busy_anew(rank, message) if kind == "busy" else [message]

    def for_siblings(self, rank: int, message: Message, node: str) -> list[Message]:
        """Messages for the node's other workers, as they would get them from a member elsewhere."""
        if self._count == 1 or message["type"] not in ("kv", "busy"):
            return []
        if message["type"] == "kv":
            return [message]
        return [{"type": "busy", "node": node, "seconds": self._busy(rank, message)["seconds"]}]

    def hung(self, workers: Iterable[W]) -> list[W]:
        """A membership is published: those that have said nothing for `HUNG_S`, since another one was, of
        a group that others of the node have found broken."""
        found, now = [], self._clock()
        for worker in workers:
            rank = worker.seat.local_rank
            if self._count == 1 or self._heard.get(rank, 0) >= self._broken:
                self._silent_since.pop(rank, None)
            elif now - self._silent_since.setdefault(rank, now) >= HUNG_S:
                found.append(worker)
        return found

    def ended(self, rank: int) -> list[Message]:
        """A worker has ended well, and is not waited for any more: messages for the daemon now."""
        self._ended.add(rank)
        return [told for kind in tuple(self._parts) for told in self._told_of(kind)]

    def _when_all(self, rank: int, kind: str, generation: int, message: Message) -> list[Message]:
        """Once all have sent it: the first's message, with the longest pause of any."""
        of = generation if kind == "joined" else 0
        latest, part = self._parts.get(kind, (0, {}))
        if of < latest:
            return []  # the others are further
        part = {**(part if of == latest else {}), rank: message}
        self._parts[kind] = (of, part)
        return self._told_of(kind)

    def _told_of(self, kind: str) -> list[Message]:
        """The merged message, once all workers have sent theirs."""
        _, part = self._parts[kind]
        if len(part.keys() | self._ended) < self._count:
            return []
        del self._parts[kind]
        first = part[min(part)]
        if kind != "joined":
            return [first]
        pause_s = max(_number(own.get("pause_s")) for own in part.values())
        survivor = all(own.get("survivor") is True for own in part.values())
        return [{**first, "survivor": survivor, "pause_s": pause_s}]

    def _busy_anew(self, rank: int, message: Message) -> list[Message]:
        """The first of the workers that are busy together says it, and the last that is not any more."""
        told = self._busy(rank, message)
        of, until = message.get("generation"), self._clock() + told["seconds"]
        if of == self._busy_told[0] and abs(until - self._busy_told[1]) < SAME_S:
            return []
        self._busy_told = of, until
        return [told]

    def _busy(self, rank: int, message: Message) -> Message:
        """The node is busy for as long as any of its workers."""
        now = self._clock()
        self._busy_until[rank] = now + _number(message.get("seconds"))
        left = max(until - now for until in self._busy_until.values())
        return {**message, "seconds": left if left > 0 else 0.0}


def _number(value: object) -> float:
    """A script's number may be anything: the daemon refuses the message then."""
    return float(value) if isinstance(value, int | float) and -MOST_S < value < MOST_S else 0.0
