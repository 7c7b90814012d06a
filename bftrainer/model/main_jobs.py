"""Jobs of the main scheduler: what a poll shows of them, and what is kept of their starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, inf


@dataclass(frozen=True, slots=True, kw_only=True)
class MainJob:
    """A main job that could start, or has just started, at one poll.

    `on` are the nodes that it runs on; empty: it waits, for nothing but the scheduler itself and idle or
    pilots' nodes. Times are Unix seconds as the scheduler tells them; each may be later than said by less
    than `rounded_s`.
    """

    job: str
    nodes: int  # that it has, or asks for
    cores: int = 0  # in all, of a job that shares its nodes with others; 0: it has whole nodes
    submitted: float | None = None
    started: float | None = None
    on: frozenset[str] = frozenset()
    rounded_s: float = 0.0


@dataclass(frozen=True, slots=True)
class JobOnNode:
    """The main jobs on a node: the `job` that ends last, the number of others, and the latest time at which
    it `ends`, by its time limit (Unix seconds; None: it has none, or that is not known)."""

    job: str
    ends: float | None


def jobs_on_nodes(jobs: Iterable[tuple[str, float | None, Iterable[str]]]) -> dict[str, JobOnNode]:
    """Node -> what is made of it by these jobs, each with its end and its nodes."""
    there: dict[str, list[tuple[float, str]]] = {}
    for job, ends, nodes in jobs:
        for node in nodes:
            there.setdefault(node, []).append((inf if ends is None else ends, job))
    found = {}
    for node, jobs_there in there.items():
        ends, job = max(jobs_there)
        more = f" and {len(jobs_there) - 1} more" if len(jobs_there) > 1 else ""
        found[node] = JobOnNode(job + more, None if ends == inf else ends)
    return found


class Affected(StrEnum):
    """Possible effect of the pilots' nodes on a main job's wait."""

    NO = "no"
    """It started on nodes that no pilot held while it waited."""
    CLAIMED = "claimed"
    """The daemon saw that it could start on pilots' nodes, and gave them back."""
    TAKEN = "taken"
    """It started on nodes that pilots held a moment before: the scheduler took them by itself."""
    IN_VAIN = "in vain"
    """Nodes were given back for it, and it did not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounted:
    """The batch system's own accounting: the number of main jobs that have started. None: it says nothing,
    `why` in words."""

    started: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MainStart:
    """The start of a main job at `time`; of one that got nodes in vain, when that was given up.

    `wait_s` is how long it waited after nothing but the scheduler and we kept it from starting, `queued_s`
    how long since its submission (None: not known). `given` pilots' nodes were given back for it: a poll
    showed it after `seen_s`, and `vacate_s` later their pilots had ended. `fresh`: it never waited for other
    main jobs. `requeued`: how often it had started before and was put back into the queue. `on` are its
    nodes; of an earlier start that we can have affected, `where` has them in short, n[1-8].
    """

    time: float
    job: str
    nodes: int
    cores: int = 0
    wait_s: float
    queued_s: float | None = None
    affected: Affected = Affected.NO
    given: int = 0
    seen_s: float | None = None
    vacate_s: float | None = None
    requeued: int = 0
    fresh: bool = False
    on: frozenset[str] = frozenset()
    where: str = ""


STARTED = frozenset({Affected.CLAIMED, Affected.TAKEN})
"""Possible effects on jobs that have started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Number of jobs, and their waits (s); None where there is none."""

    count: int = 0
    median_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None
    most_s: float | None = None


def waits(values: Iterable[float]) -> Waits:
    """The quantiles of some waits."""
    found = sorted(values)
    if not found:
        return Waits()
    return Waits(
        count=len(found),
        median_s=quantile(found, 0.5),
        p90_s=quantile(found, 0.9),
        p99_s=quantile(found, 0.99),
        most_s=found[-1],
    )


def quantile(in_order: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return in_order[max(0, ceil(share * len(in_order) - 1e-9) - 1)]


def affected(starts: Iterable[MainStart]) -> list[MainStart]:
    """Those that started after pilots' nodes were claimed for them, or on pilots' former nodes."""
    return [start for start in starts if start.affected in STARTED]


def others(starts: Iterable[MainStart]) -> list[MainStart]:
    """Those in whose way no pilot was: they tell what the scheduler itself takes."""
    return [start for start in starts if start.affected is Affected.NO]
