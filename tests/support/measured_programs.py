"""A folder of measurements as Pollux's authors published theirs, made from a known model."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from bftrainer.performance.goodput import SystemModel

SYSTEM = SystemModel(alpha_grad=0.1, beta_grad=0.01, alpha_local=0.02, alpha_node=0.1, beta_node=0.005)
PLACEMENTS = ("1", "2", "3", "4", "11", "12", "13", "14", "22", "23", "24", "33", "34", "44")
EPOCH_STEPS = 100
"""Steps of m0 in an epoch."""


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file with a header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def write_program(
    folder: Path,
    *,
    epochs: int = 3,
    batches: Sequence[int] = (16, 64, 256),
    local: Sequence[int] = (4, 16, 64),
    phi: float | Sequence[float] = 64.0,
    system: SystemModel = SYSTEM,
) -> Path:
    """Write a program's measurements: every epoch counts 100 steps of m0. `phi` is its noise scale, or that
    of each epoch."""
    noise = [phi] * epochs if isinstance(phi, float | int) else phi
    placed = []
    for placement in PLACEMENTS:
        nodes, workers = len(placement), sum(map(int, placement))
        for batch in local:
            step = float(system.iteration_time(nodes, workers, batch))
            placed.append((placement, batch, step, step - float(system.gradient_time(batch))))
    write_csv(folder / "placements.csv", ("placement", "local_bsz", "step_time", "sync_time"), placed)
    scaled = [
        (nodes, nodes * each, batch, step, step - float(system.gradient_time(batch)))
        for nodes in (3, 4, 8, 16)
        for each in (1, 4)
        for batch in local
        for step in [float(system.iteration_time(nodes, nodes * each, batch))]
    ]
    columns = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    write_csv(folder / "scalability.csv", columns, scaled)
    for batch in batches:
        rows = [
            (
                EPOCH_STEPS * epoch,
                EPOCH_STEPS * epoch * batches[0] // batch,
                0.1 * epoch,
                1.0,
                noise[epoch - 1] / batches[0],
            )
            for epoch in range(1, epochs + 1)
        ]
        write_csv(
            folder / f"validation-{batch}.csv",
            ("progress", "iteration", "metric", "grad_sqr", "grad_var"),
            rows,
        )
    return folder


def write_jobs(path: Path, jobs: Iterable[tuple[str, int, str, int, int]]) -> Path:
    """Write a workload: name, submission (s), program, workers and batch of each job."""
    write_csv(path, ("name", "time", "application", "num_replicas", "batch_size"), jobs)
    return path
