"""Orders of the tasks that wait: pure functions from what is known of jobs to a key each, lowest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from bftrainer.iterations.model import Flags, Floats, Ints

LEVELS = (54.0, 120.0, 300.0)
"""Limits of Tiresias's queues, in intervals of device time that a job has had: its public simulator has
3,250, 7,200 and 18,000 s, and an interval is 60 s."""
HYSTERESIS = 5.0
"""Intervals by which a job that has just run is nearer to its turn: equal jobs do not swap in each."""
GUARD = 0.7
"""A job that would last longer than this share of all remaining work is taken before shorter ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsWaiting:
    """The jobs that have arrived; one entry a job, but for `job` and `product`.

    Attributes:
        arrival: When it came (s).
        remaining: How long it takes at least (s).
        work: Device time of its remaining tasks (s).
        attained: Device time that it has had (s).
        ran: It ran in the last interval.
        job: The job of each worker.
        product: Memory times time of each worker's task, each relative to the largest.
        devices: How many devices there are.
        interval_s: Time from plan to plan (s).
    """

    arrival: Floats
    remaining: Floats
    work: Floats
    attained: Floats
    ran: Flags
    job: Ints
    product: Floats
    devices: int
    interval_s: float


Order = Callable[[JobsWaiting], Floats]
"""Gives each worker's task a key."""


def product(jobs: JobsWaiting) -> Floats:
    """The tasks that need most first: memory times time, relative to the job's largest.

    Jigsaw (section 3.2) has a normalized product. To divide by what all jobs share changes no order.
    """
    largest = np.zeros(len(jobs.arrival))
    np.maximum.at(largest, jobs.job, jobs.product)
    return -jobs.product / largest[jobs.job]


def size(jobs: JobsWaiting) -> Floats:
    """The tasks that need most first, whatever their job: long jobs with short tasks may wait to the end."""
    return -jobs.product


def least_attained(jobs: JobsWaiting) -> Floats:
    """Jobs that have had little first, by level, then by arrival (Tiresias)."""
    level = np.searchsorted(np.array(LEVELS), jobs.attained / jobs.interval_s, side="right")
    keys: Floats = (level * 1e9 + jobs.arrival)[jobs.job]
    return keys


def longest_remaining(jobs: JobsWaiting) -> Floats:
    """Jobs that last longest first, those that run a little longer than they do."""
    keys: Floats = -(jobs.remaining + HYSTERESIS * jobs.interval_s * jobs.ran)[jobs.job]
    return keys


def shortest_guarded(jobs: JobsWaiting) -> Floats:
    """Jobs that end soonest first, but for those that would end last of all if they had to wait."""
    sooner = jobs.remaining - HYSTERESIS * jobs.interval_s * jobs.ran
    keys: Floats = np.where(would_end_last(jobs), -jobs.remaining, sooner)[jobs.job]
    return keys


def would_end_last(jobs: JobsWaiting) -> Flags:
    """The jobs that would end last of all if they had to wait."""
    end = max(float(jobs.work.sum()) / jobs.devices, float(jobs.remaining.max(initial=0.0)))
    late: Flags = jobs.remaining >= GUARD * end
    return late


ORDERS: Mapping[str, Order] = {
    "product": product,
    "size": size,
    "las": least_attained,
    "longest": longest_remaining,
    "shortest": shortest_guarded,
}
"""The orders by name."""
