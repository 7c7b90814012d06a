"""The course of nodes: who had which node when, from the daemon's events. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Row = Mapping[str, Any]
"""A row of an answer of the API."""


TAKEN = frozenset({"poll", "log"})
"""Reasons why nodes leave the pool to the main scheduler."""


class Occupancy(StrEnum):
    """User of a node."""

    BUSY = "main job"
    OUT = "not usable"
    """Its pilot is gone, or it can have none."""
    IDLE = "idle"
    STARTING = "starting"
    TRAINING = "training"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time (Unix seconds) in which a node's use did not change; `trainer` is an id, None: no trainer's."""

    begin: float
    end: float
    use: Occupancy
    trainer: int | None = None


@dataclass(frozen=True, slots=True)
class RescalePause:
    """A change of a trainer's members, with the longest pause (s) of those that stayed."""

    time: float
    trainer: int
    kind: str
    size: int
    pause_s: float
    lost_steps: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The stretches of each node between `begin` and `end` (Unix seconds), without gaps, and all rescales."""

    begin: float
    end: float
    nodes: Mapping[str, tuple[Stretch, ...]]
    rescales: tuple[RescalePause, ...]

    def at(self, node: str, time: float) -> Stretch | None:
        """The stretch of a node at a time; None where the time lies outside."""
        found = (s for s in self.nodes[node] if s.begin <= time < s.end)
        return next(found, None)


def timeline(
    events: Sequence[Row], pauses: Iterable[Row], pool: Iterable[Row], begin: float, end: float
) -> Timeline:
    """The course of the nodes from `begin` to `end`.

    `events` and `pauses` are the API's rows, oldest first, and `pool` its nodes now. A node that no event
    names has been for all the time as it is now.
    """
    changes: dict[str, list[tuple[float, Occupancy, int | None]]] = {}
    before: dict[str, tuple[Occupancy, int | None]] = {}
    now: dict[str, tuple[Occupancy, int | None]] = {}
    for event in events:
        for node, was, use, trainer in _changes(event, now):
            before.setdefault(node, was)
            now[node] = use, trainer
            changes.setdefault(node, []).append((event["time"], use, trainer))
    rows = {n["node"]: n for n in pool}
    nodes = {
        node: tuple(_stretches(before.get(node) or _now(rows[node]), changes.get(node, []), begin, end))
        for node in sorted({*rows, *changes})
    }
    return Timeline(begin, end, nodes, tuple(r for r in rescales(pauses) if begin <= r.time <= end))


def rescales(pauses: Iterable[Row]) -> list[RescalePause]:
    """The rescales that members' pauses tell of, in order of time."""
    found: dict[tuple[int, int, str], RescalePause] = {}
    for p in pauses:
        key = (p["trainer"], p["generation"], p["kind"])
        longest = found[key].pause_s if key in found else 0.0
        time = found[key].time if key in found else p["time"]
        found[key] = RescalePause(
            time, p["trainer"], p["kind"], p["size"], max(longest, p["pause_s"]), p["lost_steps"]
        )
    return sorted(found.values(), key=lambda r: r.time)


def _changes(
    event: Row, now: Mapping[str, tuple[Occupancy, int | None]]
) -> Iterator[tuple[str, tuple[Occupancy, int | None], Occupancy, int | None]]:
    """Each node whose use an event changes: the node, its use before as far as that follows, and after."""
    data = event["data"]
    gone = set[str]()
    if event["kind"] == "NodesChanged":
        gone = set(data["left"])
        for node in data["left"]:
            taken = data["reason"] in TAKEN or node in data["vacated"]
            yield node, (Occupancy.IDLE, None), Occupancy.BUSY if taken else Occupancy.OUT, None
        yield from ((node, (Occupancy.BUSY, None), Occupancy.IDLE, None) for node in data["joined"])
    for action in event["actions"]:
        trainer, own = action["trainer"], action["data"]
        if action["kind"] == "StartWorker":
            yield own["node"], (Occupancy.IDLE, None), Occupancy.STARTING, trainer
        elif action["kind"] == "StopWorker" and own["node"] not in gone:
            yield own["node"], (Occupancy.STARTING, trainer), Occupancy.IDLE, None
        elif action["kind"] == "Regroup":
            members = own["members"]
            yield from (
                (node, (Occupancy.STARTING, trainer), Occupancy.TRAINING, trainer) for node in members
            )
            leaving = {node for node, held in now.items() if held == (Occupancy.TRAINING, trainer)}
            for node in sorted(leaving.union(own["leaving"]) - {*members, *gone}):
                if now.get(node, (Occupancy.TRAINING, trainer))[0] is Occupancy.TRAINING:
                    yield node, (Occupancy.TRAINING, trainer), Occupancy.IDLE, None


def _now(row: Row) -> tuple[Occupancy, int | None]:
    if row["state"] == "busy":
        return Occupancy.BUSY, None
    if row["state"] == "unused":
        return Occupancy.OUT, None
    return {"member": Occupancy.TRAINING, "joining": Occupancy.STARTING}.get(
        row["role"], Occupancy.IDLE
    ), None


def _stretches(
    before: tuple[Occupancy, int | None],
    changes: Sequence[tuple[float, Occupancy, int | None]],
    begin: float,
    end: float,
) -> Iterator[Stretch]:
    """A node's stretches within the time, neighbours of one use as one."""
    since, (use, trainer) = begin, before
    last_of = {time: (next_use, next_trainer) for time, next_use, next_trainer in changes}
    for time, (next_use, next_trainer) in last_of.items():
        if (next_use, next_trainer) != (use, trainer):
            if begin < time < end:
                yield Stretch(since, time, use, trainer)
                since = time
            if time < end:
                use, trainer = next_use, next_trainer
    if end > since:
        yield Stretch(since, end, use, trainer)
