"""What a daemon's books say its trainers are like: speed by nodes, and what rescaling costs. Pure.

Everything is computed from rows of `ports.Store`. Steps are counted exactly (a change of membership
says at which step it happened), so speeds do not depend on how often progress was written down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from bftrainer.model.reports import Row, StoredTrainer
from bftrainer.model.trainer import ASSUMED_COSTS, Points


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What one trainer was measured to be like.

    `curve` has its mean speed on every number of nodes that it trained on, the `stall_*_s` are means
    too. `starts` says when workers were started (Unix seconds), on which nodes, and how long they took
    until they were ready (s). `exit_s` is from its last step until its nodes were free. `processed`
    counts the samples that it trained, those included that it lost with all nodes and trained again.
    """

    curve: Points
    stall_up_s: float
    stall_down_s: float
    starts: tuple[tuple[float, str, float], ...]
    exit_s: float
    processed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """The training of one membership. `lost` steps had been reported and were taken again later."""

    nodes: int
    seconds: float
    steps: int
    lost: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A worker that was started: ready after `seconds`, or called off after so long."""

    time: float
    node: str
    seconds: float
    ready: bool


def fit(
    trainers: Sequence[StoredTrainer],
    events: Sequence[Row],
    pauses: Sequence[Row],
    reports: Sequence[Row],
    end: float,
) -> list[Fitted]:
    """One `Fitted` per trainer. What was not measured of one is what the others have, or assumed."""
    own_pauses, own_reports = _by_trainer(pauses), _by_trainer(reports)
    begun = _starts(events, end)
    every = [start for found in begun.values() for start in found]
    pooled = _durations(every, every)
    ordered = {
        (action["trainer"], action["generation"]): event["time"]
        for event in events
        for action in event["actions"]
        if action["kind"] == "Regroup"
    }
    ended = {event["trainer"]: event["time"] for event in events if event["kind"] == "TrainerEnded"}
    stalls = {t.id: _stalls(ordered, own_pauses[t.id]) for t in trainers}
    exits = {t.id: _exits(ended.get(t.id), own_reports[t.id]) for t in trainers}
    found = []
    for t in trainers:
        memberships = stays(own_pauses[t.id], own_reports[t.id])
        each = samples_per_step(own_pauses[t.id], own_reports[t.id])
        up, down = (
            _mean(stalls[t.id][i], [s for both in stalls.values() for s in both[i]], assumed)
            for i, assumed in enumerate((ASSUMED_COSTS.up.stall_s, ASSUMED_COSTS.down.stall_s))
        )
        found.append(
            Fitted(
                curve=speeds(memberships, each),
                stall_up_s=up,
                stall_down_s=down,
                starts=_durations(begun[t.id], every) if t.id in begun else pooled,
                exit_s=_mean(exits[t.id], [s for some in exits.values() for s in some], 0.0),
                processed=t.samples + each * sum(stay.lost * stay.nodes for stay in memberships),
            )
        )
    return found


def stays(pauses: Sequence[Row], reports: Sequence[Row]) -> list[Stay]:
    """One trainer's memberships in order, from its own rows.

    A membership begins when its members have joined, and ends with the last step before the next one,
    or the last that was reported where all its members were lost.
    """
    joined = _joined(pauses)
    found = []
    for generation, following in pairwise([*sorted(joined), None]):
        rows = joined[generation]  # type: ignore[index]
        marks = [(row["time"], row["step"]) for row in rows]
        marks += [(row["time"], row["step"]) for row in reports if _is_of(row, rows[0])]
        lost = 0
        if following is not None:
            then = joined[following]
            if then[0]["kind"] == "restart":
                lost = max(row["lost_steps"] for row in then)
            else:
                marks.append((min(row["time"] - row["pause_s"] for row in then), then[0]["step"]))
        (begin, first), (end, last) = min(marks), max(marks)
        found.append(Stay(nodes=rows[0]["size"], seconds=end - begin, steps=last - first, lost=lost))
    return found


def samples_per_step(pauses: Sequence[Row], reports: Sequence[Row]) -> float:
    """Samples that one node trains in one step, averaged over a trainer's reports; 0.0 without any."""
    joined = _joined(pauses)
    steps = samples = 0
    for generation, rows in joined.items():
        own = [row for row in reports if row["generation"] == generation and _is_of(row, rows[0])]
        marks = [(0, 0)] if rows[0]["step"] == 0 else []
        marks += [(row["step"], row["samples"]) for row in own]
        if marks:
            steps += (marks[-1][0] - marks[0][0]) * rows[0]["size"]
            samples += marks[-1][1] - marks[0][1]
    return samples / steps if steps else 0.0


def speeds(memberships: Iterable[Stay], samples_of_step: float) -> Points:
    """Mean samples/s by number of nodes: all samples over all time."""
    steps, seconds = defaultdict[int, int](int), defaultdict[int, float](float)
    for stay in memberships:
        steps[stay.nodes] += stay.steps
        seconds[stay.nodes] += stay.seconds
    return tuple(
        (n, steps[n] * n * samples_of_step / seconds[n])
        for n in sorted(steps)
        if seconds[n] > 0 and steps[n] * samples_of_step > 0
    )


def _by_trainer(rows: Iterable[Row]) -> Mapping[int, list[Row]]:
    found = defaultdict[int, list[Row]](list)
    for row in rows:
        found[row["trainer"]].append(row)
    return found


def _joined(pauses: Iterable[Row]) -> dict[int, list[Row]]:
    """Generation -> what its members said when they had joined it."""
    found: dict[int, list[Row]] = {}
    for row in pauses:
        found.setdefault(row["generation"], []).append(row)
    return found


def _is_of(report: Row, joined: Row) -> bool:
    """Whether a report tells of a membership; a worker's last words and mere metrics may not."""
    return (report["generation"], report["size"]) == (joined["generation"], joined["size"]) and bool(
        report["step"] >= joined["step"]
    )


def _stalls(
    ordered: Mapping[tuple[int, int], float], pauses: Iterable[Row]
) -> tuple[list[float], list[float]]:
    """How long a trainer stood still (up, down), the longest of its members, for every rescale.

    From nothing, that is from the order to form a group until it has been formed; `ordered` says when
    that was by trainer and generation.
    """
    up, down = list[float](), list[float]()
    for generation, rows in _joined(pauses).items():
        if rows[0]["kind"] == "restart":
            order = ordered.get((rows[0]["trainer"], generation))
            up += [] if order is None else [max(row["time"] for row in rows) - order]
        else:
            (up if rows[0]["kind"] == "join" else down).append(max(row["pause_s"] for row in rows))
    return up, down


def _exits(ended: float | None, reports: Sequence[Row]) -> list[float]:
    if ended is None or not reports:
        return []
    return [max(0.0, ended - max(row["time"] for row in reports))]


def _starts(events: Iterable[Row], end: float) -> dict[int, list[Start]]:
    """Trainer -> every worker that was started for it."""
    found = defaultdict[int, list[Start]](list)
    waiting: dict[tuple[int, str], tuple[int, float]] = {}  # (trainer, node) -> generation, when started

    def over(trainer: int, node: str, time: float, *, ready: bool) -> None:
        _, begun = waiting.pop((trainer, node))
        found[trainer].append(Start(time=begun, node=node, seconds=time - begun, ready=ready))

    for event in events:
        time, data = event["time"], event["data"]
        if event["kind"] == "WorkersReady":
            for node in data["nodes"]:
                generation, _ = waiting.get((event["trainer"], node), (None, 0.0))
                if generation == data["generation"]:
                    over(event["trainer"], node, time, ready=True)
        gone = data["left"] if event["kind"] == "NodesChanged" else ()
        for trainer, node in [key for key in waiting if key[1] in gone]:
            over(trainer, node, time, ready=False)
        for action in event["actions"]:
            key = (action["trainer"], action["data"].get("node", ""))
            if action["kind"] == "StopWorker" and key in waiting:
                over(*key, time, ready=False)
            elif action["kind"] == "StartWorker":
                waiting[key] = (action["generation"], time)
    for trainer, node in list(waiting):
        over(trainer, node, end, ready=False)
    return found


def _durations(own: Sequence[Start], every: Sequence[Start]) -> tuple[tuple[float, str, float], ...]:
    """(when, where, how long until ready) of all starts.

    One that was called off after L seconds would have taken longer than that: what is known to take
    longer does on average, with this trainer if there is any, else with all.
    """

    def longer(than: Start, among: Sequence[Start]) -> list[float]:
        return [start.seconds for start in among if start.ready and start.seconds > than.seconds]

    def duration(start: Start) -> float:
        if start.ready:
            return start.seconds
        known = longer(start, own) or longer(start, every)
        return fmean(known) if known else start.seconds + ASSUMED_COSTS.up.init_s

    return tuple((start.time, start.node, duration(start)) for start in own)


def _mean(own: Sequence[float], every: Sequence[float], assumed: float) -> float:
    return fmean(own or every or [assumed])
