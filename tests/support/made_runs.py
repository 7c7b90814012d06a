"""Records of runs that are made up: a small model under plain gradient descent, on any number of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bftrainer.rehearsal.records import FileFacts, RunRecord, StartFacts, StepFacts

SIGNS = np.array([[1.0, -1.0, 1.0], [1.0, 1.0, -1.0], [-1.0, 1.0, 1.0]])
NAMES, SIZES = ("weight", "bias"), (3, 3)
LENGTH = 10
LR = 0.1


def prints(values: np.ndarray) -> np.ndarray:
    """The fingerprints of tensors, a row of `values` each."""
    return np.array([[np.linalg.norm(row), *(SIGNS @ row)] for row in values])


def run(
    name: str = "alone",
    *,
    nodes: int = 1,
    length: int = LENGTH,
    gradient: Callable[[int, np.ndarray], np.ndarray] = lambda step, weights: weights - 1.0,
    samples: Callable[[int], list[str]] = lambda step: [f"s{step}.{i}" for i in range(4)],
    rate: Callable[[int], float] = lambda step: LR,
    variables: Callable[[int], Mapping[str, float]] = lambda step: {},
    files: Mapping[str, list[str] | FileFacts] | None = None,
    apart: float = 0.0,
    **more: Any,
) -> RunRecord:
    """A run of `length` steps. `gradient` is that of a step at some weights."""
    weights = np.array([[0.5, -0.3, 0.2], [0.1, 0.4, -0.2]])
    begin = prints(weights)
    steps = {}
    for step in range(1, length + 1):
        found = gradient(step, weights)
        weights = weights - rate(step) * found
        steps[0, step] = StepFacts(
            ranks=nodes,
            weights=prints(weights),
            gradients=prints(found),
            settings={"lr": rate(step)},
            rows=Counter(samples(step)),
            variables=variables(step),
            apart=apart,
        )
    return RunRecord(
        **{
            "name": name,
            "nodes": nodes,
            "title": name,
            "steps": steps,
            "starts": (StartFacts(step=1, weights=begin),),
            "names": NAMES,
            "sizes": SIZES,
            "eps": 2.2e-16,
            "final": {"weights/0": weights[0], "weights/1": weights[1]},
            "files": {
                file: held if isinstance(held, FileFacts) else FileFacts(lines=held)
                for file, held in (files or {}).items()
            },
            "taken": length,
            **more,
        }
    )
