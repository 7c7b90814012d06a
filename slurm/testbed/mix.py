"""Main jobs of many kinds in given shares: single cores, arrays, heterogeneous jobs, reservations, ..."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from benchmarks.testbeds.mix import Components, Kind, Mix, Shape
from slurm.testbed.plan import CORES, GPUS, LICENCE, LICENCES, MEMORY_MB, QOS, URGENT

TYPES = ("a100", "v100")
"""Types of GPUs, where nodes differ in them."""
IN_PARTS = frozenset({"gpus"})
"""Mixes on nodes with as many GPUs as cores, of one of `TYPES`, of which pilots may have some."""


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


def _part(rng: random.Random, nodes: int, size: int) -> Shape:
    """Some GPUs of a node, of a type in half of the cases, with cores and memory in proportion."""
    count = rng.choice((1, 1, 2, 3, 4))
    kind = rng.choice(("", "", *(f"{name}:" for name in TYPES)))
    words = (f"--gres=gpu:{kind}{count}", f"--cpus-per-task={count}", f"--mem={count * MEMORY_MB // CORES}")
    return Shape(components=(words,), size=count / CORES)


def _part_array(rng: random.Random, nodes: int, size: int) -> Shape:
    """Tasks of a GPU each, as of a study."""
    tasks = rng.randint(2, 6)
    words = (f"--array=0-{tasks - 1}", "--gres=gpu:1", f"--mem={MEMORY_MB // CORES}")
    return Shape(components=(words,), size=1 / CORES, tasks=tasks)


def _whole(rng: random.Random, nodes: int, size: int) -> Shape:
    """All GPUs of one or two nodes."""
    count = min(nodes // len(TYPES), rng.randint(1, 2))
    words = (f"--nodes={count}", "--exclusive", f"--gres=gpu:{rng.choice(TYPES)}:{CORES}")
    return Shape(components=(words,), size=count, nodes=count)


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
    "part": _part,
    "part-array": _part_array,
    "whole": _whole,
    "licence": _licence,
    "urgent": _urgent,
    "qos": _qos,
    "dependent": _dependent,
    "reserved": _reserved,
}


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
    "gpus": Mix({"part": 0.6, "part-array": 0.12, "whole": 0.1, "cores": 0.18}),
    "accounts": Mix({"cores": 0.4, "several": 0.15, "urgent": 0.15, "qos": 0.3}, slurmdbd=True),
}


def gpus_of(components: Components) -> int:
    """Return how many GPUs a task of a job has in all, by the options that this mix writes."""
    found = 0
    for words in components:
        values = dict(word.removeprefix("--").split("=", 1) for word in words if "=" in word)
        each = int(values["gres"].rpartition(":")[2]) if values.get("gres", "").startswith("gpu:") else 0
        found += each * int(values.get("nodes", "1"))
    return found


def gres(name: str, nodes: int) -> dict[str, str]:
    """Node sets -> the GPUs that their nodes have, for a mix of this name."""
    if name in IN_PARTS:
        half = nodes // len(TYPES)
        first, second = (f"gpu:{kind}:{CORES}" for kind in TYPES)
        return {f"n[1-{half}]": first, f"n[{half + 1}-{nodes}]": second}
    return {f"n[1-{nodes}]": f"gpu:{GPUS}"} if "gpus" in MIXES[name].shares else {}
