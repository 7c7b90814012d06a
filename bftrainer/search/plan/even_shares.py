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
        """Return the largest size of at most `workers`; 0: they are too few."""
        found: Ints = self._floor[np.minimum(workers, self._floor.size - 1)]
        return found

    def on(self, nodes: Ints, trials: Ints) -> tuple[Ints, Ints, Ints]:
        """Return for these trials on these nodes: how many run; the sizes that they have, a row for each
        number, the largest first; and how many have this size or a larger one."""
        per, own = self._per, -(-self._least // self._per)
        running = np.minimum(trials, nodes // own if own > 1 else nodes * (per // self._least))
        some = np.maximum(1, running)
        small = self.floor(nodes // some * per)
        used = -(-small // per)
        above = self._above[small]
        step = np.where(above > 0, -(-above // per) - used, 1)
        extra = np.where(above > 0, np.minimum(running, (nodes - running * used) // step), 0)
        sizes, counts = np.stack([above, small], axis=1), np.stack([extra, running - extra], axis=1)
        if per > 1 and own == 1:
            sizes, counts = (np.pad(each, ((0, 0), (0, 2))) for each in (sizes, counts))
            dense = np.flatnonzero(nodes < running)
            sizes[dense], counts[dense] = self._beside(nodes[dense], running[dense])
        return running, sizes, counts.cumsum(axis=1)

    def _beside(self, nodes: Ints, running: Ints) -> tuple[Ints, Ints]:
        """The sizes of trials of which several share a node, the largest first, and how many have each. Some
        nodes have one trial more than others, and some trials of a node one worker more than others."""
        few = running // np.maximum(1, nodes)
        full = running - few * nodes  # nodes with one trial more than `few`
        sizes, counts = [], []
        for on_node, those in ((np.maximum(1, few), nodes - full), (few + 1, full)):
            size, more = np.divmod(self._per, on_node)
            sizes += [self.floor(size + 1), self.floor(size)]
            counts += [those * more, those * (on_node - more)]
        found, numbers = np.stack(sizes, axis=1), np.stack(counts, axis=1)
        order = np.argsort(-found, axis=1, kind="stable")
        return np.take_along_axis(found, order, axis=1), np.take_along_axis(numbers, order, axis=1)
