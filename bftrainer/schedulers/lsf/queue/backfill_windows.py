"""When idle hosts are expected to be taken: from LSF's plans for hosts, and from its backfill windows. Pure.

bslots often tells lengths and numbers of slots only, not the hosts. Then the hosts are taken in the order of
their names, the longest window first: the numbers are right, and LSF itself starts no pilot in a window that
its run limit does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from bftrainer.schedulers.lsf.rows import BackfillWindow, HostRow, PlannedStart

SETTLED_S = 60.0
"""Seconds: an expected end that moves by less is the same. Every answer gives lengths, computed some time
before."""


def expected(
    idle: Mapping[str, HostRow], windows: Sequence[BackfillWindow], plans: Iterable[PlannedStart], now: float
) -> dict[str, float]:
    """Idle host -> when it is expected to be taken; a host that nobody is expected to take is left out."""
    found = _by_windows(idle, windows, now)
    for plan in plans:
        for host in plan.hosts.keys() & idle.keys():
            if plan.finish > now:
                found[host] = min(found.get(host, inf), max(plan.start, now))
    return {host: moment for host, moment in found.items() if moment < inf}


def _by_windows(
    idle: Mapping[str, HostRow], windows: Sequence[BackfillWindow], now: float
) -> dict[str, float]:
    if any(window.hosts for window in windows):
        longest: dict[str, float] = {}
        for window in windows:
            for host in window.hosts.keys() & idle.keys():
                longest[host] = max(longest.get(host, 0.0), window.length_s)
        return {host: now + length_s for host, length_s in longest.items()}
    found: dict[str, float] = {}
    names = sorted(idle, reverse=True)
    free = 0  # slots of the windows so far; a window's slots include those of longer ones
    for window in sorted(windows, key=lambda one: -one.length_s):
        while names and free + max(1, idle[names[-1]].slots) <= window.slots:
            free += max(1, idle[names[-1]].slots)
            found[names.pop()] = now + window.length_s
    shortest = min((window.length_s for window in windows), default=inf)
    return found | {host: now + shortest for host in idle if host not in found}


def settled(before: Mapping[str, float], found: Mapping[str, float]) -> dict[str, float]:
    """The expected ends, each as it was before if it has hardly moved: no event tells of that."""
    return {
        host: before[host] if abs(before.get(host, -inf) - moment) < SETTLED_S else moment
        for host, moment in found.items()
    }
