"""The speed of a trainer in each of its memberships, from the rows of its pauses and reports. Pure.

Steps are counted exactly (a change of membership says at which step it happened), so speeds do not
depend on how often progress was stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bftrainer.model.reports import Row
from bftrainer.model.trainer import Points


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMembership:
    """The training of one membership. `lost` steps had been reported and were taken again later."""

    nodes: int
    seconds: float
    steps: int
    lost: int = 0


def memberships(
    pauses: Sequence[Row], reports: Sequence[Row], losses: Sequence[tuple[float, frozenset[str] | None]] = ()
) -> list[PastMembership]:
    """One trainer's memberships in order, from its own rows and the nodes that the daemon lost when (None:
    all of them).

    A membership begins when its members have joined, and ends with the last step before the next one. If it
    lost all its members, it ends then, with the furthest step that anyone knows of: its workers said it when
    they left, or the next membership says how many steps it takes again.
    """
    ordered = [rows for _, rows in sorted(by_generation(pauses).items())]
    found = []
    for rows, then in zip(ordered, [*ordered[1:], None], strict=False):
        marks = [(row["time"], row["step"]) for row in rows]
        marks += [(row["time"], row["step"]) for row in _reports_of(rows[0], reports, rows[0]["size"])]
        lost = 0
        if then is not None and then[0]["kind"] != "restart":
            marks.append((min(row["time"] - row["pause_s"] for row in then), then[0]["step"]))
        else:
            furthest = [row["step"] for row in _reports_of(rows[0], reports, 0)]
            if then is not None:
                lost = max(row["lost_steps"] for row in then)
                furthest.append(then[0]["step"] + lost)
            (at, known), gone = max(marks), _gone(rows, losses)
            if furthest and gone is not None and gone > at:
                marks.append((gone, max(known, *furthest)))
        (begin, first), (end, last) = min(marks), max(marks)
        found.append(
            PastMembership(nodes=rows[0]["size"], seconds=end - begin, steps=last - first, lost=lost)
        )
    return found


def samples_per_step(pauses: Sequence[Row], reports: Sequence[Row]) -> float:
    """Samples that one node trains in one step, averaged over a trainer's reports; 0.0 without any."""
    steps = samples = 0
    for rows in by_generation(pauses).values():
        own = _reports_of(rows[0], reports, rows[0]["size"])
        marks = [(0, 0)] if rows[0]["step"] == 0 else []
        marks += [(row["step"], row["samples"]) for row in own]
        if marks:
            steps += (marks[-1][0] - marks[0][0]) * rows[0]["size"]
            samples += marks[-1][1] - marks[0][1]
    return samples / steps if steps else 0.0


def speeds(found: Iterable[PastMembership], samples_of_step: float) -> Points:
    """Mean samples/s by number of nodes: all samples over all time."""
    steps, seconds = defaultdict[int, int](int), defaultdict[int, float](float)
    for membership in found:
        steps[membership.nodes] += membership.steps
        seconds[membership.nodes] += membership.seconds
    return tuple(
        (n, steps[n] * n * samples_of_step / seconds[n])
        for n in sorted(steps)
        if seconds[n] > 0 and steps[n] * samples_of_step > 0
    )


def stalls(
    pauses: Sequence[Row], ordered: Mapping[tuple[int, int], float]
) -> tuple[list[float], list[float]]:
    """Time (s) that a trainer stood still in each rescale (up, down): the longest pause of its members.

    A rescale that no member survived takes from the order to form a group until that has been formed.
    `ordered` says when the order was given: (trainer, generation) -> time.
    """
    up, down = list[float](), list[float]()
    for generation, rows in by_generation(pauses).items():
        if rows[0]["kind"] == "restart":
            order = ordered.get((rows[0]["trainer"], generation))
            up += [] if order is None else [max(row["time"] for row in rows) - order]
        else:
            (up if rows[0]["kind"] == "join" else down).append(max(row["pause_s"] for row in rows))
    return up, down


def by_generation(pauses: Iterable[Row]) -> dict[int, list[Row]]:
    """Generation -> what its members reported when they had joined it."""
    found: dict[int, list[Row]] = {}
    for row in pauses:
        found.setdefault(row["generation"], []).append(row)
    return found


def _reports_of(joined: Row, reports: Sequence[Row], size: int) -> list[Row]:
    """The reports of `size` members about a membership; those of metrics alone may be of an earlier one.
    Workers that leave report a size of 0."""
    return [
        row
        for row in reports
        if (row["generation"], row["size"]) == (joined["generation"], size) and row["step"] >= joined["step"]
    ]


def _gone(rows: Sequence[Row], losses: Sequence[tuple[float, frozenset[str] | None]]) -> float | None:
    """Time at which a membership lost its last node; None if unknown."""
    left, since = {row["node"] for row in rows}, max(row["time"] for row in rows)
    if len(left) != rows[0]["size"]:
        return None
    for time, nodes in losses:
        if time >= since:
            left -= left if nodes is None else nodes
            if not left:
                return time
    return None
