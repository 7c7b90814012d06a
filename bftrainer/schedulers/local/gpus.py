"""The GPUs of each of the local scheduler's nodes: this machine's, or simulated ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from bftrainer.model.gpus import gpus_of

CUDA = "CUDA_VISIBLE_DEVICES"
HIP = "HIP_VISIBLE_DEVICES"
SIMULATED = "SIMULATED_VISIBLE_DEVICES"
"""Agents take the devices that it names, which do not exist, and no others, even where it names none."""
_FILE = re.compile(r"nvidia(\d+)")


def gpus_here(environ: Mapping[str, str], dev: Path = Path("/dev")) -> list[str]:
    """The names of this machine's NVIDIA GPUs, as far as this process may use them."""
    if CUDA in environ:
        words = (word.strip() for word in environ[CUDA].split(","))
        return [word for word in words if word and not word.startswith("-")]
    try:
        found = [_FILE.fullmatch(file.name) for file in dev.iterdir()]
    except OSError:
        return []
    return sorted((match[1] for match in found if match), key=int)


def shared_out(nodes: Collection[str], each: int, here: Sequence[str]) -> dict[str, dict[str, str]]:
    """Node -> what its pilot's environment says of its GPUs: `each` of those `here`; simulated ones, where
    these do not suffice, with this machine's hidden; none where `each` is 0."""
    enough = 0 < each * len(nodes) <= len(here)
    names = sorted(nodes, key=lambda name: (len(name), name))
    if enough:
        return {node: {CUDA: ",".join(here[i * each : (i + 1) * each])} for i, node in enumerate(names)}
    hidden = dict.fromkeys((CUDA, HIP), "") if each else {}  # else all workers would compute on the same GPU
    simulated = {SIMULATED: ",".join(map(str, range(each))), **hidden}
    return {node: dict(simulated) for node in names}


def count_of(environ: Mapping[str, str]) -> int:
    """Return how many GPUs a pilot's environment names."""
    return max((len(list(filter(None, named.split(",")))) for named in environ.values()), default=0)


def one_by_one(of_nodes: Mapping[str, Mapping[str, str]], each: int) -> dict[str, dict[str, str]]:
    """The same by GPU (`n1:0`), each with one of its node's."""
    return {
        gpu: {variable: devices and devices.split(",")[i] for variable, devices in environ.items()}
        for node, environ in of_nodes.items()
        for i, gpu in enumerate(gpus_of(node, each))
    }
