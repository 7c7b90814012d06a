"""Views of main jobs and of what is left to them, as typed JSON objects. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypedDict

from bftrainer.model.main_jobs import Accounted, Affected, MainStart, Waits, affected, others, waits
from bftrainer.nodes.headroom.promise import Kept
from bftrainer.nodes.headroom.reserve import Reserve
from bftrainer.settings.headroom import Promise
from bftrainer.settings.values import Settings

DAY_S = 86_400.0
WORST = 10
"""Jobs that waited longest and are named."""


class HeadroomView(TypedDict):
    """Idle nodes that are left to main jobs: `setting` is what the settings say, `wanted` what that means
    now, of `usable` nodes, which are idle or ours, and `free` how many of them have none of our pilots.
    `promised` is what main jobs are promised (s), `extra` the share left for it, and `at_risk` why.
    """

    setting: str
    promised: dict[str, float] | None
    extra: float
    at_risk: str
    wanted: int
    usable: int
    free: int


class WaitsView(TypedDict):
    """The number of jobs, and their waits (s); None where there is none."""

    count: int
    median_s: float | None
    p90_s: float | None
    p99_s: float | None
    most_s: float | None


class WorstView(TypedDict):
    """One job that waited long with our nodes in its way, with what is known of the reason. `where`: its
    nodes, in short such as n[1-8]; of a long list the beginning."""

    time: float
    job: str
    nodes: int
    where: str
    wait_s: float
    affected: str
    why: str


class ImpactView(TypedDict):
    """The waits of main jobs since `since`, for `days` at most.

    `affected` could have been by what we held, `unaffected` could not; `all` are both. `more_s` is by how
    much the quantiles of `all` exceed those of `unaffected`. `given` jobs got `nodes` of our nodes after
    `vacate`; `taken` took theirs without our help, `in_vain` got nodes and did not start. `requeued` and
    `requeued_unaffected`: how often jobs had gone back to the queue before. `per_day` has the same figures
    day by day.
    """

    since: float | None
    until: float
    days: float
    affected: WaitsView
    unaffected: WaitsView
    all: WaitsView
    more_s: dict[str, float | None]
    given: int
    nodes: int
    vacate: WaitsView
    taken: int
    in_vain: int
    requeued: int
    requeued_unaffected: int
    worst: list[WorstView]
    per_day: list[DayView]
    notes: list[str]


class DayView(TypedDict):
    """One day, which begins at `begin`: how many jobs started, and how many of them we could have affected,
    with the waits of these and of the others."""

    begin: float
    affected: WaitsView
    unaffected: WaitsView


def headroom_view(settings: Settings, reserve: Reserve) -> HeadroomView:
    """Return the nodes left to main jobs, as the status shows them."""
    spared, kept = reserve.spared, reserve.promise
    return {
        "setting": settings.headroom,
        "promised": None if settings.promise is None else settings.promise.model_dump(),
        "extra": kept.extra,
        "at_risk": kept.why,
        "wanted": spared.total,
        "usable": spared.usable,
        "free": spared.free,
    }


def impact_view(
    starts: Sequence[MainStart], days: float, now: float, notes: Sequence[str] = ()
) -> ImpactView:
    """Return the figures on the starts of the last days."""
    ours, theirs = affected(starts), others(starts)
    vain = [start for start in starts if start.affected is Affected.IN_VAIN]
    every, alone = waits(s.wait_s for s in [*ours, *theirs]), waits(s.wait_s for s in theirs)
    given = [start for start in ours if start.given]
    return {
        "since": starts[0].time if starts else None,
        "until": now,
        "days": days,
        "affected": _view(waits(s.wait_s for s in ours)),
        "unaffected": _view(alone),
        "all": _view(every),
        "more_s": {
            "median": _less(every.median_s, alone.median_s),
            "p90": _less(every.p90_s, alone.p90_s),
            "p99": _less(every.p99_s, alone.p99_s),
        },
        "given": len(given),
        "nodes": sum(start.given for start in given),
        "vacate": _view(waits(s.vacate_s for s in given if s.vacate_s is not None)),
        "taken": sum(start.affected is Affected.TAKEN for start in ours),
        "in_vain": len(vain),
        "requeued": sum(start.requeued for start in ours),
        "requeued_unaffected": sum(start.requeued for start in theirs),
        "worst": [_worst(start) for start in sorted([*ours, *vain], key=lambda s: -s.wait_s)[:WORST]],
        "per_day": _per_day(ours, theirs),
        "notes": list(notes),
    }


def _view(found: Waits) -> WaitsView:
    return {
        "count": found.count,
        "median_s": found.median_s,
        "p90_s": found.p90_s,
        "p99_s": found.p99_s,
        "most_s": found.most_s,
    }


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def _worst(start: MainStart) -> WorstView:
    return {
        "time": start.time,
        "job": start.job,
        "nodes": start.nodes,
        "where": start.where,
        "wait_s": start.wait_s,
        "affected": start.affected.value,
        "why": why(start),
    }


def why(start: MainStart) -> str:
    """Return the known reasons for a job's wait."""
    parts = []
    if start.seen_s is not None:
        parts.append(f"seen after {start.seen_s:.1f} s")
    if start.vacate_s is not None:
        parts.append(f"pilots of {start.given} nodes ended {start.vacate_s:.1f} s later")
    rest = start.wait_s - (start.seen_s or 0.0) - (start.vacate_s or 0.0)
    if start.affected is Affected.TAKEN:
        parts.append("the scheduler took nodes of ours")
    elif start.affected is Affected.IN_VAIN:
        parts.append("another job got them, or it waits for more")
    elif rest > 0.05 and parts:
        parts.append(f"then {rest:.1f} s to be cleared and started")
    return "; ".join(parts)


def checked(starts: Sequence[MainStart], accounted: Accounted, since: float) -> str:
    """Compare the batch system's accounting with what the daemon has seen, in words."""
    hours = f"since {datetime.fromtimestamp(since, UTC):%d %b %H:%M} UTC"
    if accounted.started is None:
        return f"Nothing tells how many starts the daemon has not seen: {accounted.why}."
    seen = sum(start.time >= since and start.affected is not Affected.IN_VAIN for start in starts)
    return f"The daemon has seen {seen:,} of the {accounted.started:,} main jobs that have started {hours}."


def promised(promise: Promise | None, kept: Kept) -> list[str]:
    """Return the state of the promise to main jobs, in words; empty where there is none."""
    if promise is None:
        return []
    bounds = f"The promise to main jobs (median {promise.median_s:g} s, p99 {promise.p99_s:g} s)"
    if not kept.level:
        return [f"{bounds} is kept."]
    return [f"{bounds} was at risk: {kept.why}. {kept.extra:.0%} of what is idle or ours is left for it."]


def _per_day(ours: Sequence[MainStart], theirs: Sequence[MainStart]) -> list[DayView]:
    by_day: defaultdict[float, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for at, starts in enumerate((ours, theirs)):
        for start in starts:
            by_day[start.time // DAY_S * DAY_S][at].append(start.wait_s)
    return [
        {"begin": begin, "affected": _view(waits(one)), "unaffected": _view(waits(other))}
        for begin, (one, other) in sorted(by_day.items())
    ]
