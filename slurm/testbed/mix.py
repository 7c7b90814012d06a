"""Main jobs of many kinds in given shares: single cores, arrays, heterogeneous jobs, reservations, ..."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bftrainer.traces.formats.swf import Request
from slurm.testbed.plan import CORES, GPUS, LICENCE, LICENCES, MEMORY_MB, QOS, URGENT
from slurm.testbed.workload import MainJob, Reserved, fitted

Components = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a job asks for.

    Attributes:
        components: Options of sbatch; a heterogeneous job has more than one set of them.
        size: Nodes' worth of one task, where nodes are shared.
        nodes: Nodes of one task, where they are not.
        tasks: Of an array; 1: it is none.
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


def _nodes(rng: random.Random, nodes: int, size: int) -> Shape:
    return Shape(components=((f"--nodes={size}", "--exclusive"),), size=size, nodes=size)


def _cores(rng: random.Random, nodes: int, size: int) -> Shape:
    cores = rng.randint(1, CORES)
    return Shape(components=((f"--cpus-per-task={cores}",),), size=cores / CORES)


def _array(rng: random.Random, nodes: int, size: int) -> Shape:
    tasks, cores = rng.randint(2, 6), rng.randint(1, 2)
    components = ((f"--array=0-{tasks - 1}", f"--cpus-per-task={cores}"),)
    return Shape(components=components, size=cores / CORES, tasks=tasks)


def _several(rng: random.Random, nodes: int, size: int) -> Shape:
    count, each = min(nodes, max(2, size)), rng.randint(1, CORES)
    components = ((f"--nodes={count}", f"--ntasks-per-node={each}"),)
    return Shape(components=components, size=count * each / CORES, nodes=count)


def _exclusive(rng: random.Random, nodes: int, size: int) -> Shape:
    count = min(nodes, rng.randint(1, 2))
    return Shape(components=((f"--nodes={count}", "--exclusive"),), size=count, nodes=count)


def _heterogeneous(rng: random.Random, nodes: int, size: int) -> Shape:
    count, first = min(nodes - 1, rng.randint(1, 2)), rng.randint(1, CORES)
    components = ((f"--cpus-per-task={first}",), (f"--nodes={count}", f"--ntasks-per-node={CORES}"))
    return Shape(components=components, size=first / CORES + count, nodes=1 + count)


def _memory(rng: random.Random, nodes: int, size: int) -> Shape:
    wanted = rng.randrange(MEMORY_MB // 4, MEMORY_MB, 50)
    return Shape(components=((f"--mem={wanted}",),), size=max(1 / CORES, wanted / MEMORY_MB))


def _gpus(rng: random.Random, nodes: int, size: int) -> Shape:
    return Shape(components=((f"--gres=gpu:{rng.randint(1, GPUS)}",),), size=1 / CORES)


def _licence(rng: random.Random, nodes: int, size: int) -> Shape:
    wanted = rng.randint(1, LICENCES // 2)
    return Shape(components=((f"--licenses={LICENCE}:{wanted}",),), size=1 / CORES)


def _urgent(rng: random.Random, nodes: int, size: int) -> Shape:
    cores = rng.randint(1, 2 * CORES)
    components = ((f"--partition={URGENT}", f"--ntasks={cores}"),)
    return Shape(components=components, size=cores / CORES, nodes=-(-cores // CORES), short=True)


def _qos(rng: random.Random, nodes: int, size: int) -> Shape:
    cores = rng.randint(1, CORES)
    return Shape(components=((f"--qos={QOS}", f"--cpus-per-task={cores}"),), size=cores / CORES)


def _dependent(rng: random.Random, nodes: int, size: int) -> Shape:
    return replace(_cores(rng, nodes, size), dependent=True)


def _reserved(rng: random.Random, nodes: int, size: int) -> Shape:
    return replace(_cores(rng, nodes, size), reserved=True, short=True)


KINDS: Mapping[str, Kind] = {
    "nodes": _nodes,
    "cores": _cores,
    "array": _array,
    "several": _several,
    "exclusive": _exclusive,
    "heterogeneous": _heterogeneous,
    "memory": _memory,
    "gpus": _gpus,
    "licence": _licence,
    "urgent": _urgent,
    "qos": _qos,
    "dependent": _dependent,
    "reserved": _reserved,
}


@dataclass(frozen=True, slots=True)
class Mix:
    """Kinds with their shares of all jobs; whether users' accounts have QOS, which needs slurmdbd."""

    shares: Mapping[str, float]
    slurmdbd: bool = False


MIXES: Mapping[str, Mix] = {
    "nodes": Mix({"nodes": 1}),
    "cores": Mix(
        {
            "cores": 0.45,
            "array": 0.12,
            "several": 0.12,
            "exclusive": 0.08,
            "heterogeneous": 0.08,
            "memory": 0.08,
            "dependent": 0.07,
        }
    ),
    "everything": Mix(
        {
            "cores": 0.24,
            "array": 0.1,
            "several": 0.1,
            "exclusive": 0.06,
            "heterogeneous": 0.08,
            "memory": 0.08,
            "gpus": 0.08,
            "licence": 0.06,
            "urgent": 0.1,
            "dependent": 0.06,
            "reserved": 0.04,
        }
    ),
    "accounts": Mix({"cores": 0.4, "several": 0.15, "urgent": 0.15, "qos": 0.3}, slurmdbd=True),
}

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
    rng = random.Random(seed)  # noqa: S311  not for secrets
    kinds = deck(mix.shares, len(requests))
    rng.shuffle(kinds)
    shapes = []
    for request, kind in zip(requests, kinds, strict=True):
        size = min(nodes, max(1, round(request.size / machine_nodes * nodes)))
        shapes.append(KINDS[kind](rng, nodes, size))
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
    for job, shape, kind in zip(plain, shapes, kinds, strict=True):
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
