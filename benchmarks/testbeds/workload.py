"""Load of the main queue: jobs from an SWF log or a generator, compressed to a testbed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bftrainer.traces.formats.lines import Lines
from bftrainer.traces.formats.swf import Parser, Request, machine
from bftrainer.traces.intervals import DAMAGES, LogError
from bftrainer.traces.logs import LogOptions
from bftrainer.traces.packed import open_text

SHORTEST_S = 0.5
LONGEST = 0.1
"""Share of the span that a job lasts at most: one long job does not fill the machine all the time."""
GENERATED_NODES = 128
SMALL = 0.92
"""The share of generated jobs that take up to a quarter of the machine; the others take more."""
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class Reserved:
    """A reservation that is made when its job is submitted: `begins_s` later, of one node."""

    begins_s: float
    node: str


@dataclass(frozen=True, slots=True)
class MainJob:
    """A job for the testbed.

    Attributes:
        submit_s: When it is submitted, after the load's start.
        size: Nodes' worth that each of its tasks takes: 0.25 is one core of four.
        run_s: How long each task runs.
        limit_s: The time that it asks for; the batch system rounds it up to a minute.
        kind: The kind of job that it is an example of.
        components: Options of sbatch or bsub, one set for each component of a heterogeneous job;
            (): `size` nodes.
        tasks: Tasks of an array; the options say so, too.
        after: The number of the job whose end it waits for; 0: none.
        reserved: The reservation that it waits for.
    """

    number: int
    submit_s: float
    size: float
    run_s: float
    limit_s: float
    kind: str = "nodes"
    components: tuple[tuple[str, ...], ...] = ()
    tasks: int = 1
    after: int = 0
    reserved: Reserved | None = None


def of_log(path: Path, options: LogOptions, first: int, count: int) -> tuple[list[Request], int]:
    """`count` jobs of an SWF log in order of submission, `first` left out, and its machine's nodes.

    Raises:
        LogError: it cannot be read, or has fewer jobs.
    """
    parser = Parser(options.cores_per_node)
    try:
        with open_text(path) as file:
            requests = sorted(Lines(file).each(parser), key=lambda request: request.submit)
        nodes = machine(options, parser.header)
    except (*DAMAGES, LogError) as error:
        raise LogError(f"{path}: {error}") from error
    if first + count > len(requests):
        raise LogError(f"{path}: has {len(requests):,} jobs, fewer than {first:,} + {count:,}; ask for fewer")
    return list(islice(requests, first, first + count)), nodes


def generated(count: int, seed: int) -> tuple[list[Request], int]:
    """Jobs as machines of some hundred nodes see them, and their machine's nodes; the same for a seed.

    Arrivals are a Poisson process that is slower at night; most jobs are small; times are lognormal, minutes
    to hours; limits are guessed far too high.
    """
    rng = random.Random(seed)
    found, now = [], 0.0
    for number in range(1, count + 1):
        now += rng.expovariate(1) * 600 / (1 + 0.7 * math.sin(2 * math.pi * now / DAY_S))
        power = rng.uniform(0, 5) if rng.random() < SMALL else rng.uniform(5, 7)
        size = math.ceil(2**power)
        run = min(DAY_S, rng.lognormvariate(math.log(1800), 1.0))
        found.append(Request(now, now + run, size, str(number), now, run * rng.uniform(1.1, 5)))
    return found, GENERATED_NODES


def compressed(
    requests: Sequence[Request], machine_nodes: int, *, nodes: int, seconds: float, load: float
) -> tuple[MainJob, ...]:
    """The same jobs on `nodes` within `seconds`: sizes keep their share of it.

    Gaps between submissions keep their proportions. Run times are shortened by one factor, so that the
    jobs' node-seconds are `load` of what `nodes` have in `seconds`; none gets shorter than SHORTEST_S,
    nor longer than LONGEST of the span. Limits are shortened by the same factor.

    Raises:
        LogError: such short jobs are more than `load` already, or the longest ones are still less.
    """
    sizes = [min(nodes, max(1, round(r.size / machine_nodes * nodes))) for r in requests]
    return fitted(requests, sizes, room=load * nodes * seconds, seconds=seconds)


def fitted(
    requests: Sequence[Request],
    sizes: Sequence[float],
    *,
    room: float,
    seconds: float,
    tasks: Sequence[int] = (),
    fixed: Mapping[int, float] | None = None,
) -> tuple[MainJob, ...]:
    """Return jobs of these sizes within `seconds`, with run times that make `room` node-seconds in all.

    `tasks` are those of each job (one, if it is empty); `fixed` has the run times (in s) of the jobs, by
    their place, that keep theirs.

    Raises:
        LogError: the jobs cannot be that load.
    """
    first, last = requests[0].submit, requests[-1].submit
    pace = seconds / ((last - first) or 1.0)
    tasks, fixed = tasks or [1] * len(requests), fixed or {}

    def runs(factor: float) -> list[float]:
        """Return the run times in s, stretched by a factor and cut to sensible ones."""
        stretched = (min(max((r.end - r.start) * factor, SHORTEST_S), LONGEST * seconds) for r in requests)
        return [fixed.get(at, run) for at, run in enumerate(stretched)]

    def work(factor: float) -> float:
        """Return the node-seconds of all jobs for a factor."""
        return sum(size * count * run for size, count, run in zip(sizes, tasks, runs(factor), strict=True))

    factor = _solve(work, room)
    return tuple(
        MainJob(
            number=number,
            submit_s=(r.submit - first) * pace,
            size=size,
            run_s=round(run, 3),
            limit_s=max(r.limit_s * factor, run),
            tasks=count,
        )
        for number, (r, size, run, count) in enumerate(
            zip(requests, sizes, runs(factor), tasks, strict=True), 1
        )
    )


def _solve(work: Callable[[float], float], wanted: float) -> float:
    """The factor that gives the work `wanted`, which grows with it."""
    low, high = 1e-9, 1e3
    if not work(low) <= wanted <= work(high):
        raise LogError(
            f"these jobs are between {work(low):.0f} and {work(high):.0f} node-seconds, not {wanted:.0f}: "
            "take fewer jobs or more seconds for a lower load, more jobs for a higher one"
        )
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if work(middle) > wanted else (middle, high)
    return low


def enough(nodes: int, seconds: float) -> int:
    """Main jobs that make a good part of a testbed's load: one every 4 s, and some for every node."""
    return max(24, 3 * nodes, round(seconds / 4))


def requests_for(count: int, seed: int, log: Path | None = None, first: int = 0) -> tuple[list[Request], int]:
    """Jobs of an SWF log, or generated ones, and their machine's nodes.

    Raises:
        LogError: the log cannot be read.
    """
    return generated(count, seed) if log is None else of_log(log, LogOptions(), first, count)


def jobs_for(
    nodes: int, seconds: float, load: float, *, count: int, seed: int, log: Path | None = None, first: int = 0
) -> tuple[MainJob, ...]:
    """Main jobs of whole nodes for a testbed: from an SWF log, or generated.

    Raises:
        LogError: the log cannot be read, or these jobs cannot be that load.
    """
    requests, machine = requests_for(count, seed, log, first)
    return compressed(requests, machine, nodes=nodes, seconds=seconds, load=load)
