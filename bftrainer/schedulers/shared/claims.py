"""Claims of main jobs on nodes: for how long nodes are kept for jobs that should start.

A user whose claims lapse again and again is doubted: what its jobs ask for says nothing about their start, so
that each of them would keep nodes from trainers for nothing. They still get what Slurm plans for them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from bftrainer.model.machine import Claim


@dataclass(frozen=True, slots=True)
class Claims:
    """The nodes that pending main jobs would need: ours, and free ones."""

    claims: tuple[Claim, ...] = ()
    taken: Mapping[str, str] = field(
        default_factory=dict
    )  # free node -> the job that is about to start there
    ready: frozenset[str] = frozenset()  # jobs that need no other nodes than these
    ahead: frozenset[str] = frozenset()  # jobs that cannot start now, and have their nodes cleared before
    users: Mapping[str, str] = field(default_factory=dict)  # of the jobs that could start: whose they are

    @property
    def jobs(self) -> frozenset[str]:
        """The jobs that are expected to start now."""
        return (frozenset(claim.job for claim in self.claims) | frozenset(self.taken.values())) - self.ahead


log = logging.getLogger(__name__)

AGAIN = 10  # times the patience: a claim that lapsed counts again after that
DOUBTED = 2
"""Lapses from which on a user is doubted. Every further one doubles the time."""
LONGEST_S = 86_400.0
"""Seconds, at most, that a user is doubted, and after which its lapses are forgotten."""


@dataclass(frozen=True, slots=True)
class Known:
    """Knowledge of main jobs from earlier polls.

    Attributes:
        lapsed: Jobs for which nothing is kept at the moment.
        doubted: Users whose jobs get nodes only where Slurm plans them.
        ready: Since when jobs have had all that they need, as far as we know.
    """

    lapsed: frozenset[str] = frozenset()
    doubted: frozenset[str] = frozenset()
    ready: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Doubt:
    """The number of a user's lapsed claims, and until when that counts."""

    lapses: int
    until: float


class ClaimPatience:
    """Remembers since when main jobs should have started. Nodes are kept for one for `patience_s`."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._expected: dict[str, float] = {}  # main job -> since when it should have started
        self._lapsed: dict[str, float] = {}  # main job -> until when it is not waited for
        self._doubts: dict[str, _Doubt] = {}  # by user
        self._ready: Mapping[str, float] = {}

    def known(self, now: float, behind_s: float = 0.0) -> Known:
        """Return the knowledge that counts now, its times later by `behind_s`."""
        self._lapsed = {job: until for job, until in self._lapsed.items() if until > now}
        doubted = (user for user, d in self._doubts.items() if d.lapses >= DOUBTED and d.until > now)
        ready = {job: since + behind_s for job, since in self._ready.items()}
        return Known(frozenset(self._lapsed), frozenset(doubted), ready)

    def remember(self, found: Claims, now: float) -> None:
        """Take in what the main jobs need as of a poll."""
        self._ready = {job: self._ready.get(job, now) for job in found.ready}
        self._expected = {job: self._expected.get(job, now) for job in found.jobs}
        whose: dict[str, str] = {}  # heterogeneous jobs lapse as a whole
        for job, since in list(self._expected.items()):
            if now - since > self._patience_s:
                log.warning("job %s should have started %.0f s ago: no longer waited for", job, now - since)
                self._lapsed[job] = now + AGAIN * self._patience_s
                del self._expected[job]
                if user := found.users.get(job, ""):
                    whose[job.partition("+")[0]] = user
        self._doubts = {user: d for user, d in self._doubts.items() if now < d.until + LONGEST_S}
        for user in whose.values():
            self._doubt(user, now)

    def _doubt(self, user: str, now: float) -> None:
        doubt = self._doubts.setdefault(user, _Doubt(0, 0.0))
        doubt.lapses += 1
        doubt.until = now + min(LONGEST_S, AGAIN * self._patience_s * 2.0 ** min(doubt.lapses - 1, 32))
