"""How long nodes are kept for main jobs that should start: a claim that leads to no start lapses."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from bftrainer.schedulers.slurm.walk import Claims

log = logging.getLogger(__name__)

AGAIN = 10  # a claim that lapsed counts again after so many times the patience


class Patience:
    """Remembers since when main jobs should have started. Nodes are kept for one for `patience_s`.

    `ready` says since when jobs have had all nodes that they need, as far as we know.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._expected: dict[str, float] = {}  # main job -> since when it should have started
        self._lapsed: dict[str, float] = {}  # main job -> until when it is not waited for
        self.ready: Mapping[str, float] = {}

    def lapsed(self, now: float) -> Collection[str]:
        """The jobs for which nothing is kept at the moment."""
        self._lapsed = {job: until for job, until in self._lapsed.items() if until > now}
        return self._lapsed.keys()

    def remember(self, found: Claims, now: float) -> None:
        """Take in what the main jobs need as of a poll."""
        self.ready = {job: self.ready.get(job, now) for job in found.ready}
        self._expected = {job: self._expected.get(job, now) for job in found.jobs}
        for job, since in list(self._expected.items()):
            if now - since > self._patience_s:
                log.warning("job %s should have started %.0f s ago: no longer waited for", job, now - since)
                self._lapsed[job] = now + AGAIN * self._patience_s
                del self._expected[job]
