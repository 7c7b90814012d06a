"""Records of a run: what a script did in each step, and what it has left behind. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Prints = npt.NDArray[np.float64]
"""A row for each tensor: its norm, then sums of its elements with random signs."""
Array = npt.NDArray[Any]
Key = tuple[int, int]
"""An optimizer's number, and a step, from 1 over the whole training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """One step of one optimizer, over all ranks that took it.

    `apart`: how far the ranks' weights lie apart, relative to their sizes. `rows`: how often each sample
    came. `gradients` and `variables` are rank 0's.
    """

    ranks: int
    weights: Prints
    gradients: Prints
    settings: Mapping[str, float]
    rows: Counter[str]
    variables: Mapping[str, float]
    apart: float = 0.0
    shared: bool = False  # more than one rank saw the same samples


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFacts:
    """The state from which a process of rank 0 has begun: before its first step, which is `step`."""

    step: int
    weights: Prints


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """Contents of a file that the script wrote: lines of text, named numbers, or only a digest."""

    lines: Sequence[str] | None = None
    entries: Mapping[str, Any] | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """All that is known of one run.

    `figures`: name -> step -> what each rank has given with its steps; `reported`: name -> step -> what rank
    0 has reported. `taken` counts the steps of rank 0, repeated ones included.
    """

    name: str
    nodes: int
    title: str = ""
    status: str = "completed"
    reason: str = ""
    steps: Mapping[Key, StepFacts] = field(default_factory=dict)
    starts: Sequence[StartFacts] = ()
    names: Sequence[str] = ()
    sizes: Sequence[int] = ()
    kinds: frozenset[str] = frozenset()
    eps: float = 0.0
    final: Mapping[str, Array] = field(default_factory=dict)
    variables: Mapping[str, float] = field(default_factory=dict)
    unused: Sequence[int] = ()
    figures: Mapping[str, Mapping[int, Sequence[float]]] = field(default_factory=dict)
    reported: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    files: Mapping[str, FileFacts] = field(default_factory=dict)
    taken: int = 0
    batch: int | None = None  # samples of a step under elastic.Run
    events: Sequence[str] = ()  # what was done to it, in words
    stops: Sequence[int] = ()  # after which steps all its processes ended and others went on
    warned: Sequence[str] = ()
    trouble: str = ""  # why no more was recorded

    @property
    def length(self) -> int:
        """The last step of its first optimizer."""
        return max((step for optimizer, step in self.steps if optimizer == 0), default=0)

    @property
    def is_whole(self) -> bool:
        """True if it ended well."""
        return self.status == "completed"


def distance(one: Prints, other: Prints, sizes: Sequence[int]) -> Array:
    """Distances of tensors, relative to their norms, one by one; of a tensor that is small beside all others,
    relative to theirs."""
    if one.shape != other.shape or not one.size:
        return np.full(max(len(one), len(other), 1), np.inf)
    counts = np.asarray(sizes, dtype=float) if len(sizes) == len(one) else np.ones(len(one))
    norms = np.maximum(one[:, 0], other[:, 0])
    usual = np.sqrt((norms**2).sum() / max(counts.sum(), 1.0))
    scale = np.maximum(norms, 1e-2 * usual * np.sqrt(counts))
    gap = np.abs(one - other).max(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(gap == 0.0, 0.0, gap / scale)
    return np.where(np.isnan(found), np.inf, found)


def latest_change(record: RunRecord) -> int:
    """The last step in which a variable of the script has changed that changes seldom, such as a best value;
    0 if there is none."""
    steps = [(step, facts.variables) for (optimizer, step), facts in record.steps.items() if optimizer == 0]
    changes: dict[str, list[int]] = {}
    for (_, before), (step, now) in pairwise(steps):
        for name, value in now.items():
            if name in before and before[name] != value:
                changes.setdefault(name, []).append(step)
    return max((steps_of[-1] for steps_of in changes.values() if len(steps_of) < len(steps) / 2), default=0)
