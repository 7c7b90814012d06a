"""Scaling profiles from published measurements, read in place: step times of Pollux, speeds on Summit.

Pollux (Qiao et al., OSDI 2021, https://github.com/petuum/adaptdl, branch osdi21-artifact): seconds of a step
by placement and local batch size, on machines with four GPUs. Summit (Liu et al. 2021): images/s by nodes.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

Curve = tuple[tuple[int, float], ...]
Steps = dict[int, list[tuple[float, float, float]]]
"""GPUs -> local batch size, seconds of a step, of which seconds of synchronisation."""


def rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def together(folder: Path) -> Steps:
    """Steps of a Pollux model whose GPUs stand together: 1 to 4 on one machine, then whole machines."""
    found: Steps = defaultdict(list)
    for row in rows(folder / "placements.csv"):
        if len(set(row["placement"])) == 1 and (row["placement"][0] == "4" or len(row["placement"]) == 1):
            found[sum(map(int, row["placement"]))].append(_step(row))
    for row in rows(folder / "scalability.csv"):
        if int(row["num_replicas"]) == 4 * int(row["num_nodes"]) and int(row["num_nodes"]) > 4:
            found[int(row["num_replicas"])].append(_step(row))
    return found


def scattered(folder: Path) -> Steps:
    """Steps of a Pollux model each of whose GPUs stands on a machine of its own."""
    found: Steps = defaultdict(list)
    for row in rows(folder / "placements.csv"):
        if set(row["placement"]) == {"1"}:
            found[len(row["placement"])].append(_step(row))
    return found


def strong_scaling(steps: Steps, batch: int) -> Curve:
    """Samples/s by GPUs for a batch of fixed size; gradients are accumulated where memory is short."""
    points = []
    for gpus, measured in sorted(steps.items()):
        sizes, seconds, syncs = map(np.array, zip(*sorted(measured), strict=True))
        local = batch / gpus
        parts = int(np.ceil(local / sizes[-1]))
        step, sync = (float(np.interp(local / parts, sizes, found)) for found in (seconds, syncs))
        points.append((gpus, batch / (parts * step - (parts - 1) * sync)))
    return tuple(points)


def summit(path: Path, model: str) -> Curve:
    """Images/s of a model by Summit nodes (weak scaling, 32 images a GPU)."""
    found = [(int(row["nodes"]), float(row["images_per_s"])) for row in rows(path) if row["model"] == model]
    return tuple((nodes, rate) for nodes, rate in found if nodes)


def per_iteration(curve: Curve, seconds: float) -> float:
    """Return the samples of an iteration that takes `seconds` on the first point's workers."""
    return curve[0][1] * seconds


def _step(row: dict[str, str]) -> tuple[float, float, float]:
    return float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"])
