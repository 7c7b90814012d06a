"""Programs as Pollux's authors measured them: times of iterations, gradient noise and statistical progress.

A folder holds one folder for each program, with

- `placements.csv` (`placement,local_bsz,step_time,sync_time`): T_iter and T_sync in s with a batch per
  worker, where each digit of the placement is a node's workers, without rotations of the same ring;
- `scalability.csv` (`num_nodes,num_replicas,local_bsz,step_time,sync_time`): the same for more nodes;
- `validation-M.csv` (`progress,iteration,metric,grad_sqr,grad_var`): after each epoch with global batch M,
  the steps of m0 that the training so far counts, and mu^2 and sigma^2 of gradients with m0.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import QhullError

from bftrainer.errors import BftrainerError
from bftrainer.messages.files.replays import BEYOND_MEASURED, ODD_MEASUREMENT
from bftrainer.messages.files.tables import NOTHING_THERE
from bftrainer.performance.curve import Floats
from bftrainer.performance.goodput import BatchLimits, GoodputError
from bftrainer.replay.workload import rows, wrong

MEMORY = {"yolov3": 8}
"""Samples that a worker's memory holds, where the authors allow fewer than they measured."""
MOST_NODES = 16
"""Nodes above which times stay the same: the authors measured no further."""
VALIDATION = re.compile(r"validation-([1-9][0-9]{0,8})\.csv")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
Placement = tuple[int, ...]


class ProfileError(BftrainerError, ValueError):
    """Measurements that cannot be used. The message names file, line, value and remedy."""


@dataclass(frozen=True, slots=True)
class Training:
    """A training with one global batch: after each epoch its progress and iterations, and its gradients."""

    batch: int
    progress: Floats
    iteration: Floats
    grad_sqr: Floats
    grad_var: Floats


@dataclass(frozen=True, eq=False)
class MeasuredProgram:
    """A program's measurements; `trainings` by rising global batch.

    `placed`: placement -> (batches per worker, rising; T_iter and T_sync in s, shape (batches, 2)). `scaled`:
    (nodes, workers, batch per worker) and, in `scaled_times`, T_iter and T_sync there.
    """

    name: str
    limits: BatchLimits
    epochs: int
    trainings: tuple[Training, ...]
    placed: dict[Placement, tuple[Floats, Floats]]
    scaled: Floats
    scaled_times: Floats
    _known: dict[tuple[Placement, int], tuple[float, float]] = field(default_factory=dict)

    def times(self, placement: Placement, batch: int) -> tuple[float, float]:
        """T_iter and T_sync (s) with workers placed so and a batch of each, interpolated as in section 5.3.

        Raises:
            ProfileError: outside of what was measured.
        """
        key = (min(placement[i:] + placement[:i] for i in range(len(placement))), batch)
        if key not in self._known:
            step, sync = self._interpolated(*key)
            if not (0 < step < math.inf and 0 <= sync < math.inf):
                what = f"workers placed {key[0]} with {batch} samples each"
                raise ProfileError(BEYOND_MEASURED.say(name=self.name, what=what))
            self._known[key] = float(step), float(sync)
        return self._known[key]

    def _interpolated(self, placement: Placement, batch: int) -> tuple[float, float]:
        if placement in self.placed:
            sizes, times = self.placed[placement]
            step, sync = (np.interp(batch, sizes, times[:, i], left=np.nan, right=np.nan) for i in (0, 1))
            return float(step), float(sync)
        if self._space is None:
            return math.nan, math.nan
        found = self._space([min(len(placement), MOST_NODES), sum(placement), batch])[0]
        return float(found[0]), float(found[1])

    @cached_property
    def _space(self) -> LinearNDInterpolator | None:
        """Times between what was measured on more nodes; None where too few points span no space."""
        try:
            return LinearNDInterpolator(self.scaled, self.scaled_times)
        except QhullError:
            return None

    def gradients(self, batch: float, epoch: int) -> tuple[float, float]:
        """mu^2 and sigma^2 in an epoch (from 0), linear between the global batches that were trained with."""
        low, high, share = self._around(batch)
        sqr, var = (
            (1 - share) * getattr(low, name)[epoch] + share * getattr(high, name)[epoch]
            for name in ("grad_sqr", "grad_var")
        )
        return float(sqr), float(var)

    def iterations(self, batch: float, epoch: int) -> float:
        """Iterations after an epoch (from 0) with a global batch."""
        low, high, share = self._around(batch)
        return float((1 - share) * low.iteration[epoch] + share * high.iteration[epoch])

    def progress(self, epochs: int) -> float:
        """Steps of m0 after `epochs` epochs: the least of all trainings."""
        return 0.0 if epochs == 0 else float(min(run.progress[epochs - 1] for run in self.trainings))

    def _around(self, batch: float) -> tuple[Training, Training, float]:
        """The trainings with the next smaller and larger batch, and how far it is on the way between them."""
        sizes = [run.batch for run in self.trainings]
        if not sizes[0] <= batch <= sizes[-1]:
            what = f"batch {batch}, which is none of {sizes[0]} to {sizes[-1]}"
            raise ProfileError(BEYOND_MEASURED.say(name=self.name, what=what))
        high = int(np.searchsorted(sizes, batch))
        low = high if sizes[high] == batch else high - 1
        share = (batch - sizes[low]) / (sizes[high] - sizes[low]) if high > low else 0.0
        return self.trainings[low], self.trainings[high], share


def read_program(folder: Path) -> MeasuredProgram:
    """The measurements in a program's folder.

    Raises:
        ProfileError: a file is missing, unreadable or holds what cannot be.
        WorkloadError: a file that is no such table.
    """
    trainings = _trainings(folder)
    placed: dict[Placement, list[tuple[float, float, float]]] = {}
    for digits, batch, step, sync in _times(folder / "placements.csv", ("placement", "local_bsz")):
        text = f"{digits:.0f}"
        if "0" in text or len(text) > MOST_NODES:
            path, wanted = folder / "placements.csv", "a digit for each node, none 0"
            raise ProfileError(wrong(str(path), "placement", text, wanted))
        placed.setdefault(tuple(map(int, text)), []).append((batch, step, sync))
    by_placement = {}
    for placement, times in placed.items():
        block = np.array(sorted(times))
        by_placement[placement] = block[:, 0], block[:, 1:]
    local = np.array([batch for times in placed.values() for batch, _, _ in times])
    points, means = _scaled(folder, by_placement)
    name = folder.name
    try:
        limits = BatchLimits(
            initial=trainings[0].batch,
            most=trainings[-1].batch,
            local_least=int(local.min()),
            local_most=min(int(local.max()), MEMORY.get(name, int(local.max()))),
        )
    except GoodputError as error:
        raise ProfileError(ODD_MEASUREMENT.say(what=folder, why=f"cannot be modelled: {error}")) from error
    epochs = min(len(run.progress) for run in trainings)
    return MeasuredProgram(name, limits, epochs, trainings, by_placement, points, means)


def _scaled(folder: Path, placed: dict[Placement, tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Times by nodes, workers and batch: the placements' means, then what was measured on more nodes."""
    sums: dict[tuple[float, float, float], list[Floats]] = {}
    for placement, (sizes, times) in placed.items():
        for size, pair in zip(sizes, times, strict=True):
            sums.setdefault((len(placement), sum(placement), float(size)), []).append(pair)
    points = [list(key) for key in sorted(sums)]
    means = [np.mean(sums[key], axis=0) for key in sorted(sums)]
    for *point, step, sync in _times(folder / "scalability.csv", ("num_nodes", "num_replicas", "local_bsz")):
        points.append(point)
        means.append(np.array([step, sync]))
    return np.array(points), np.array(means)


def _times(path: Path, columns: tuple[str, ...]) -> list[tuple[float, ...]]:
    """These columns of a table of times, then T_iter and T_sync, which is the shorter one."""
    found = _table(path, (*columns, "step_time", "sync_time"))
    for *point, step, sync in found:
        if sync >= step:
            why = f"is not below step_time {step} for {columns} = {point}"
            raise ProfileError(f"{path}: {ODD_MEASUREMENT.say(what=f'sync_time {sync}', why=why)}")
    return found


def _trainings(folder: Path) -> tuple[Training, ...]:
    """The trainings of a folder, by global batch."""
    found = []
    for path in folder.iterdir():
        if match := VALIDATION.fullmatch(path.name):
            table = np.array(_table(path, ("progress", "iteration", "grad_sqr", "grad_var")))
            if not np.all(table[:, 2] + table[:, 3]):
                said = ODD_MEASUREMENT.say(what="grad_sqr and grad_var", why="are both 0 in a row")
                raise ProfileError(f"{path}: {said}")
            if np.any(np.diff(table[:, 0], prepend=0.0) <= 0):
                said = ODD_MEASUREMENT.say(what="progress", why="does not rise from epoch to epoch")
                raise ProfileError(f"{path}: {said}")
            found.append(Training(int(match[1]), *table.T))
    if not found:
        said = NOTHING_THERE.say(what="validation-BATCH.csv", some="one, which says how a training goes")
        raise ProfileError(f"{folder}: {said}")
    return tuple(sorted(found, key=lambda run: run.batch))


def _table(path: Path, columns: tuple[str, ...]) -> list[tuple[float, ...]]:
    """These columns of a CSV as numbers, none below 0."""
    found = []
    for number, row in rows(path, columns, "a table of measurements"):
        try:
            values = tuple(float(row[column]) for column in columns)
        except ValueError:
            values = (math.nan,)
        if not all(0 <= value < math.inf for value in values):
            given = ", ".join(row[column] for column in columns)
            raise ProfileError(wrong(f"{path}:{number}", ", ".join(columns), given, "numbers from 0"))
        found.append(values)
    if not found:
        said = NOTHING_THERE.say(what="measurement", some="some")
        raise ProfileError(f"{path}: {said}")
    return found
