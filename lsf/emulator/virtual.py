"""A load played in virtual time: no process, no server, no waiting."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median

from lsf.emulator.commands.context import Call, Lsf
from lsf.emulator.commands.registry import answer
from lsf.emulator.core.cluster import Cluster, Coming
from lsf.emulator.core.jobs import Job
from lsf.emulator.core.model import Site

QUESTIONS = (
    ("bhosts", ("-R", "select[CN]", "-json", "-o", "host_name status max njobs run ssusp ususp rsv")),
    ("bjobs", ("-u", "all", "-json", "-o", "jobid stat queue nreq_slot exec_host start_time time_left")),
    ("bslots", ("-R", "select[CN]")),
)
SHORT = {"LSB_SHORT_HOSTLIST": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The results of a load.

    Attributes:
        jobs: All that have ended, in the order of their ends.
        left: Jobs that still ran or waited when time was up.
        refused: Jobs that no queue took.
        used: The share of the hosts' time that jobs used, from zero on.
        took_s: Real seconds.
    """

    jobs: tuple[Job, ...]
    left: int
    refused: int
    used: float
    took_s: float

    def waits(self) -> list[float]:
        """Return how long each job waited that has ended, in s."""
        return sorted(job.start - job.submitted for job in self.jobs if job.start is not None)


See = Callable[[Cluster], None]


def play(
    site: Site,
    coming: Sequence[Coming],
    until: float,
    *,
    each: See | None = None,
    poll: tuple[float, See] | None = None,
) -> Played:
    """Play jobs until a time.

    `each` sees the cluster after every moment at which something has happened, `poll` at a fixed interval (s)
    from zero on.
    """
    began = time.monotonic()
    cluster = Cluster(site, min(0.0, coming[0][0] if coming else 0.0))
    finished: list[Job] = []
    cluster.state.finished = finished
    cluster.feed(coming)
    used, every = 0.0, poll[0] if poll else math.inf
    polled = 0.0
    while True:
        upcoming = cluster.next_time()
        moment = min(polled if poll else math.inf, math.inf if upcoming is None else upcoming)
        if moment >= until:
            break
        used += _busy(cluster) * max(0.0, moment - max(cluster.state.now, 0.0))
        cluster.advance(moment)
        if each is not None:
            each(cluster)
        if poll is not None and moment == polled:
            poll[1](cluster)
            polled += every
    used += _busy(cluster) * max(0.0, until - max(cluster.state.now, 0.0))
    slots = int(cluster.state.hosts.slots[cluster.state.hosts.compute].sum())
    return Played(
        jobs=tuple(finished),
        left=len(cluster.state.active),
        refused=cluster.state.refused,
        used=used / (slots * until) if until > 0 else 0.0,
        took_s=time.monotonic() - began,
    )


class Watcher:
    """Asks what a program that watches LSF asks: hosts, jobs and windows."""

    def __init__(self) -> None:
        """It has asked nothing yet."""
        self._lsf: Lsf | None = None

    def __call__(self, cluster: Cluster) -> None:
        """Ask all three."""
        self._lsf = self._lsf or Lsf(cluster)
        for name, words in QUESTIONS:
            answer(name, Call(lsf=self._lsf, words=words, now=cluster.state.now, env=SHORT))


def _busy(cluster: Cluster) -> int:
    state = cluster.state
    return int(state.hosts.slots[state.hosts.compute].sum() - state.free.sum())


def lines(played: Played, site: Site, until: float) -> list[str]:
    """Return the results in words."""
    waits, hosts = played.waits(), sum(not host.launch for host in site.hosts)
    said = [
        f"{until / 3600:.1f} hours of {hosts:,} hosts in {played.took_s:.1f} s",
        f"jobs: {len(played.jobs):,} have ended, {played.left:,} are left, {played.refused:,} were refused; "
        f"they used {played.used:.1%} of the hosts",
    ]
    if waits:
        late = waits[int(0.95 * (len(waits) - 1))]
        said.append(
            f"waits: mean {mean(waits) / 60:.1f} min, median {median(waits) / 60:.1f} min, "
            f"95 % below {late / 60:.1f} min"
        )
    return said
