"""The main queue's load: jobs on whole hosts, from an SWF log or a seed, at any speed."""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.testbeds.workload import of_log
from bftrainer.traces.formats.swf import Request as Logged
from bftrainer.traces.logs import LogOptions
from lsf.emulator.core.cluster import Coming
from lsf.emulator.core.model import Demand, Request, Site

HOUR_S = 3600.0
BINS = (
    # share of the jobs, smallest and largest share of the machine, longest run limit (s)
    (0.88, 1 / 4608, 45 / 4608, 2 * HOUR_S),
    (0.05, 46 / 4608, 91 / 4608, 6 * HOUR_S),
    (0.055, 92 / 4608, 921 / 4608, 12 * HOUR_S),
    (0.013, 922 / 4608, 2764 / 4608, 24 * HOUR_S),
    (0.002, 2765 / 4608, 1.0, 24 * HOUR_S),
)
"""Summit's five bins of job sizes; how many jobs fall into each is a guess."""
MEDIAN, SPREAD = 0.2, 1.0
"""A run time is lognormal: the median is this share of the limit, which cuts it."""
SHORTEST_S = 60.0
USERS = 50
MISSES = 20
"""Jobs in all that may be too large for what is left of a load; then it is complete."""
FULL_S = 6 * HOUR_S
"""Seconds before its zero when a generated load begins, so that the machine is in use by then."""


def job(site: Site, hosts: int, run_s: float, limit_s: float, name: str, queue: str = "") -> Request:
    """A simulated job on whole hosts."""
    compute = [host for host in site.hosts if not host.launch]
    slots = compute[0].slots
    demand = Demand(slots=slots * hosts, per_host=slots, whole=True, launch=len(compute) < len(site.hosts))
    return Request(
        demand=demand,
        user=f"main{zlib.crc32(name.encode()) % USERS}",
        queue=queue or site.default_queue,
        limit_s=max(limit_s, run_s),
        duration_s=run_s,
        name=name,
        shown="main",
    )


def of_swf(path: Path, site: Site, *, cores_per_node: int = 1, first: int = 0, count: int) -> list[Coming]:
    """Jobs of an SWF log, the first at zero; sizes keep their share of the machine.

    Raises:
        LogError: it cannot be read, or has fewer jobs.
    """
    found, nodes = of_log(path, LogOptions(cores_per_node=cores_per_node), first, count)
    return scaled(found, nodes, site)


def scaled(logged: Sequence[Logged], nodes: int, site: Site) -> list[Coming]:
    """Jobs of a machine of `nodes` on this site, as large a share of it as they were there."""
    size = sum(not host.launch for host in site.hosts)
    longest = next(queue.run_limit_s for queue in site.queues if queue.name == site.default_queue) or math.inf
    begin = logged[0].submit
    return [
        (
            entry.submit - begin,
            job(
                site,
                min(size, max(1, round(entry.size / nodes * size))),
                min(entry.end - entry.start, longest),
                min(entry.limit_s or math.inf, longest),
                entry.label,
            ),
        )
        for entry in logged
    ]


def generated(site: Site, seconds: float, load: float, seed: int) -> list[Coming]:
    """Jobs like Summit's, from `FULL_S` before zero on; the same for a seed.

    Their host-seconds are about `load` of what the site has in that time.
    """
    rng = random.Random(seed)  # noqa: S311  not for secrets
    size = sum(not host.launch for host in site.hosts)
    room = load * size * (seconds + FULL_S)
    jobs: list[Request] = []
    misses = 0
    while misses < MISSES:
        made = _made(rng, site, size, len(jobs) + 1)
        work = (made.duration_s or 0.0) * made.demand.slots / made.demand.per_host
        if work <= room:
            room -= work
            jobs.append(made)
        else:
            misses += 1
    times = sorted(rng.uniform(-FULL_S, seconds) for _ in jobs)
    return list(zip(times, jobs, strict=True))


def _made(rng: random.Random, site: Site, size: int, number: int) -> Request:
    _, low, high, longest = rng.choices(BINS, weights=[row[0] for row in BINS])[0]
    hosts = max(1, min(size, round(size * math.exp(rng.uniform(math.log(low), math.log(high))))))
    limit = max(600.0, round(longest * rng.uniform(0.1, 1.0) / 600.0) * 600.0)
    run = min(limit, max(SHORTEST_S, limit * rng.lognormvariate(math.log(MEDIAN), SPREAD)))
    return job(site, hosts, run, limit, f"main{number}")


def at_speed(coming: Iterable[Coming], speed: float) -> Iterator[Coming]:
    """The same jobs with all times shorter by a factor."""
    for when, request in coming:
        run = None if request.duration_s is None else request.duration_s / speed
        yield when / speed, replace(request, duration_s=run, limit_s=request.limit_s / speed)
