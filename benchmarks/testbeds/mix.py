"""Main jobs of many kinds in given shares; what kinds there are is the batch system's."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.testbeds.workload import MainJob, Reserved, fitted
from bftrainer.traces.formats.swf import Request

Components = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The resources that a job asks for.

    Attributes:
        components: Options of sbatch or bsub; a heterogeneous job has more than one set of them.
        size: Nodes' worth of one task, where nodes are shared.
        nodes: Nodes of one task, where they are not.
        tasks: Of an array; 1: no array.
        dependent: It waits for the end of the job before it.
        reserved: It waits for a reservation of its own.
        short: It runs for a few seconds only.
    """

    components: Components
    size: float
    nodes: int = 1
    tasks: int = 1
    dependent: bool = False
    reserved: bool = False
    short: bool = False


Kind = Callable[[random.Random, int, int], Shape]
"""(random numbers, nodes of the testbed, nodes' worth that the log has) -> what the job asks for."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Kinds with their shares of all jobs; whether users' accounts have QOS, which needs slurmdbd."""

    shares: Mapping[str, float]
    slurmdbd: bool = False


SHORT_S = (1.0, 4.0)
RESERVED_AFTER_S = (4.0, 10.0)


def deck(shares: Mapping[str, float], count: int) -> list[str]:
    """Return `count` kinds in their shares, as nearly as can be; at least one of each if they fit."""
    total = sum(shares.values())
    exact = {kind: count * share / total for kind, share in shares.items()}
    found = dict.fromkeys(shares, 1 if count >= len(shares) else 0)
    while sum(found.values()) < count:
        found[max(found, key=lambda kind: (exact[kind] - found[kind], kind))] += 1
    return [kind for kind, number in found.items() for _ in range(number)]


def mixed(
    requests: Sequence[Request],
    machine_nodes: int,
    mix: Mix,
    kinds: Mapping[str, Kind],
    *,
    nodes: int,
    seconds: float,
    load: float,
    seed: int,
    shared: bool,
) -> tuple[MainJob, ...]:
    """Return the log's jobs with kinds of the mix, compressed to `nodes` and `seconds` as `compressed` does.

    Submissions and run times are the log's; so are sizes of the kinds that take a choice of nodes. The seed
    deals the kinds out and chooses what else jobs ask for. Where nodes are not `shared`, every job has
    whole ones.

    Raises:
        LogError: the jobs cannot be that load.
    """
    rng = random.Random(seed)
    dealt = deck(mix.shares, len(requests))
    rng.shuffle(dealt)
    shapes = []
    for request, kind in zip(requests, dealt, strict=True):
        size = min(nodes, max(1, round(request.size / machine_nodes * nodes)))
        shapes.append(kinds[kind](rng, nodes, size))
    sizes = [shape.size if shared else shape.nodes for shape in shapes]
    plain = fitted(
        requests,
        sizes,
        tasks=[shape.tasks for shape in shapes],
        fixed={at: rng.uniform(*SHORT_S) for at, shape in enumerate(shapes) if shape.short},
        room=nodes * seconds * load,
        seconds=seconds,
    )
    found: list[MainJob] = []
    for job, shape, kind in zip(plain, shapes, dealt, strict=True):
        found.append(
            replace(
                job,
                kind=kind,
                components=shape.components,
                after=_before(found) if shape.dependent else 0,
                reserved=_reservation(rng, nodes) if shape.reserved else None,
            )
        )
    return tuple(found)


def _before(jobs: Sequence[MainJob]) -> int:
    """The number of the last job that does not wait for a reservation; 0: there is none."""
    return next((job.number for job in reversed(jobs) if job.reserved is None), 0)


def _reservation(rng: random.Random, nodes: int) -> Reserved:
    return Reserved(begins_s=round(rng.uniform(*RESERVED_AFTER_S), 1), node=f"n{rng.randint(1, nodes)}")
