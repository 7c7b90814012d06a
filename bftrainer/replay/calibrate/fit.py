"""Fits trainers to a daemon's store: speed by nodes, and costs of rescales. Pure.

Everything is computed from rows of `ports.Store`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from bftrainer.model.reports import Row, StoredTrainer
from bftrainer.model.trainer import ASSUMED_COSTS, Points
from bftrainer.replay.calibrate.memberships import memberships, samples_per_step, speeds, stalls
from bftrainer.replay.calibrate.starts import Started, durations, starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The measured properties of one trainer.

    Attributes:
        curve: Its mean speed on every number of nodes that it trained on.
        stall_up_s, stall_down_s: How long it stood still in a rescale on average, by direction.
        starts: Every start of a worker: when, where, how long it took.
        exit_s: From its last step until its nodes were free.
        processed: Samples that it trained, including those that it lost and trained again.
    """

    curve: Points
    stall_up_s: float
    stall_down_s: float
    starts: tuple[Started, ...]
    exit_s: float
    processed: float


def fit(
    trainers: Sequence[StoredTrainer],
    events: Sequence[Row],
    pauses: Sequence[Row],
    reports: Sequence[Row],
    end: float,
) -> list[Fitted]:
    """One `Fitted` per trainer. What was not measured of one is what the others have, or assumed."""
    own_pauses, own_reports = _by_trainer(pauses), _by_trainer(reports)
    begun = starts(events, end)
    every = [start for found in begun.values() for start in found]
    pooled = durations(every, every)
    ordered = _orders(events)
    ended = {event["trainer"]: event["time"] for event in events if event["kind"] == "TrainerEnded"}
    losses = [
        (event["time"], None if event["kind"] == "Drain" else frozenset(event["data"]["left"]))
        for event in events
        if event["kind"] in ("Drain", "NodesChanged")
    ]
    stood = {t.id: stalls(own_pauses[t.id], ordered) for t in trainers}
    exits = {t.id: _exits(ended.get(t.id), own_reports[t.id]) for t in trainers}
    found = []
    for t in trainers:
        trained = memberships(own_pauses[t.id], own_reports[t.id], losses)
        each = samples_per_step(own_pauses[t.id], own_reports[t.id])
        up, down = (
            _mean(stood[t.id][i], [s for both in stood.values() for s in both[i]], assumed)
            for i, assumed in enumerate((ASSUMED_COSTS.up.stall_s, ASSUMED_COSTS.down.stall_s))
        )
        found.append(
            Fitted(
                curve=speeds(trained, each),
                stall_up_s=up,
                stall_down_s=down,
                starts=durations(begun[t.id], every) if t.id in begun else pooled,
                exit_s=_mean(exits[t.id], [s for some in exits.values() for s in some], 0.0),
                processed=t.samples + each * sum(one.lost * one.nodes for one in trained),
            )
        )
    return found


def _by_trainer(rows: Iterable[Row]) -> Mapping[int, list[Row]]:
    found = defaultdict[int, list[Row]](list)
    for row in rows:
        found[row["trainer"]].append(row)
    return found


def _orders(events: Iterable[Row]) -> dict[tuple[int, int], float]:
    """(trainer, generation) -> when that membership was ordered."""
    return {
        (action["trainer"], action["generation"]): event["time"]
        for event in events
        for action in event["actions"]
        if action["kind"] == "Regroup"
    }


def _exits(ended: float | None, reports: Sequence[Row]) -> list[float]:
    """Time a trainer took to exit after its last report (s): one value, or none if unknown."""
    if ended is None or not reports:
        return []
    return [max(0.0, ended - max(row["time"] for row in reports))]


def _mean(own: Sequence[float], every: Sequence[float], assumed: float) -> float:
    """The mean of a trainer's own values, else of all trainers' values, else what is assumed."""
    return fmean(own or every or [assumed])
