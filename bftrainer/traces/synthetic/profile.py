"""The target statistics of a generated log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A quantile function through points (share, value); the value's logarithm is linear between them."""

    points: tuple[tuple[float, float], ...]

    def integral(self, share: Floats) -> Floats:
        """The function's integral from 0 to each share, exactly."""
        at = np.array([point[0] for point in self.points])
        value = np.array([point[1] for point in self.points])
        slope = np.log(value[1:] / value[:-1]) / np.diff(at)
        flat = slope == 0
        safe = np.where(flat, 1.0, slope)

        def up_to(segment: Ints, width: Floats) -> Floats:
            rising = np.expm1(safe[segment] * width) / safe[segment]
            found: Floats = value[segment] * np.where(flat[segment], width, rising)
            return found

        every = np.arange(at.size - 1)
        before = np.concatenate([[0.0], np.cumsum(up_to(every, np.diff(at)))])
        segment = np.clip(np.searchsorted(at, share, side="right") - 1, 0, at.size - 2)
        total: Floats = before[segment] + up_to(segment, share - at[segment])
        return total

    def share(self, value: Floats) -> Floats:
        """Share below each value."""
        at, known = zip(*self.points, strict=True)
        found: Floats = np.interp(np.log(value), np.log(known), at)
        return found

    def means(self, edges: Floats) -> Floats:
        """The mean value between each two neighbouring shares."""
        found: Floats = np.diff(self.integral(edges)) / np.diff(edges)
        return found


@dataclass(frozen=True, slots=True)
class MachineProfile:
    """Statistics of a machine's idle nodes; fitted by `benchmarks/fit_profiles.py`.

    Attributes:
        nodes: Nodes of the machine that it was fitted to; rates scale with the nodes of the log.
        step_s: All times are multiples of this.
        groups_per_h: Groups an hour.
        join_moments_per_h, leave_moments_per_h: Moments an hour that groups begin and end at.
        group_nodes: Sizes of groups.
        fragment_s: Lengths of fragments (s).
        pool_share: The pool's share of the machine, over time.
        size_matters: Correlation of the logarithms of a group's size and length, -1 to 1.
        most_node_h: Node-hours that no group has more of.
        relax_h: Hours after which the pool's size is another one.
    """

    nodes: int
    step_s: int
    groups_per_h: float
    join_moments_per_h: float
    leave_moments_per_h: float
    group_nodes: Quantiles
    fragment_s: Quantiles
    pool_share: Quantiles
    size_matters: float
    most_node_h: float
    relax_h: float
