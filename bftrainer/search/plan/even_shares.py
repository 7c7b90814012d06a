"""Shares nodes evenly between trials: how many run, with how many workers each. For many numbers at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bftrainer.search.plan.model.profile import ExperimentProfile, Floats

Ints = npt.NDArray[np.int64]


class EvenShares:
    """The even shares of a profile's trials. Sizes that make a trial no faster are not used."""

    def __init__(self, profile: ExperimentProfile) -> None:
        sizes = profile.rising()
        self._per, self._least = profile.node_workers, profile.least
        self.speeds: Floats = np.zeros(sizes[-1] + 1)
        """Iterations a second by workers."""
        self.speeds[sizes] = [1 / profile.iteration_s(n) for n in sizes]
        self._floor = np.zeros(max(sizes[-1], self._per) + 1, dtype=int)  # workers -> the size that fits them
        self._floor[sizes] = sizes
        self._floor = np.maximum.accumulate(self._floor)
        self._above = np.zeros(sizes[-1] + 1, dtype=int)  # a size -> the next one on more nodes; 0: none
        for size in sizes:
            nodes = -(-size // self._per)
            larger = next((n for n in sizes if -(-n // self._per) > nodes), 0)
            self._above[size] = self.floor(np.array(-(-larger // self._per) * self._per))

    def floor(self, workers: Ints) -> Ints:
        """The largest size of at most so many workers; 0: they are too few."""
        found: Ints = self._floor[np.minimum(workers, self._floor.size - 1)]
        return found

    def on(self, nodes: Ints, trials: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """For so many trials on so many nodes: how many run, the workers of most of them, how many of them
        have more, and the workers of those."""
        per, own = self._per, -(-self._least // self._per)
        running = np.minimum(trials, nodes // own if own > 1 else nodes * (per // self._least))
        some = np.maximum(1, running)
        small = self.floor(nodes // some * per)
        used = -(-small // per)
        above = self._above[small]
        step = np.where(above > 0, -(-above // per) - used, 1)
        extra = np.where(above > 0, np.minimum(running, (nodes - running * used) // step), 0)
        if per == 1 or own > 1:
            return running, small, extra, above
        few = np.maximum(1, running // np.maximum(1, nodes))  # where several trials share a node
        full = running - few * nodes  # nodes with one trial more than `few`
        dense = nodes < running
        small = np.where(dense, self.floor(np.where(full > 0, per // (few + 1), per // few)), small)
        above = np.where(dense, self.floor(per // few), above)
        extra = np.where(dense, np.where(full > 0, (nodes - full) * few, 0), extra)
        return running, small, extra, above
