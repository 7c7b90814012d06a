"""A simulated launcher whose trainers behave as a daemon's history says that they did."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bftrainer.model.actions import Regroup, StartWorker
from bftrainer.model.trainer import ASSUMED_COSTS, Cost, RescaleCosts, TrainerSpec
from bftrainer.ports import Clock, Emit
from bftrainer.replay.calibrate.history import History
from bftrainer.replay.trainers.launcher import SimulatedLauncher
from bftrainer.replay.trainers.simulated import SimulatedTrainer


@dataclass(slots=True)
class ReplayedCheckpoints:
    """A trainer's checkpoints: one per interval since `since`, when `node` became its rank 0.

    `samples` says how far it was at which `times` (s) since then.
    """

    node: str
    since: float
    times: list[float]
    samples: list[float]

    def at(self, now: float, every_s: float) -> float:
        """The samples in the last checkpoint before `now`."""
        last = self.since + (now - self.since) // every_s * every_s
        return float(np.interp(last, self.times, self.samples))


class HistoryLauncher(SimulatedLauncher):
    """Simulates trainers as they were measured to be, whatever their specs say.

    As in reality, rank 0 writes a checkpoint every `checkpoint_every_s`, and a trainer that loses all
    its nodes at once goes on from the last one.
    """

    def __init__(self, emit: Emit, clock: Clock, history: History) -> None:
        super().__init__(emit, clock)
        self._history = history
        self._checkpoints: dict[int, ReplayedCheckpoints] = {}

    def add(self, trainer: int, spec: TrainerSpec) -> None:
        """Make a trainer known, with its fitted speeds, stalls and time to exit."""
        fitted = self._history.fitted[trainer - 1]
        super().add(trainer, replace(spec, curve=fitted.curve, curves=()) if fitted.curve else spec)
        added = self.trainers[trainer]
        added.exit_s = fitted.exit_s
        added.costs = RescaleCosts(up=Cost(stall_s=fitted.stall_up_s), down=Cost(stall_s=fitted.stall_down_s))

    def init_s(self, action: StartWorker) -> float:
        """Duration (s) of the start nearest in time, if possible one on the same node."""
        starts = self._history.fitted[action.trainer - 1].starts
        if not starts:
            return ASSUMED_COSTS.up.init_s
        now = self.clock.now()
        return min(starts, key=lambda start: (abs(start[0] - now), start[1] != action.node))[2]

    def lose(self, nodes: frozenset[str]) -> None:
        """Nodes are gone; trainers that had no others go back to their last checkpoints."""
        hit = [id_ for id_, trainer in self.trainers.items() if not nodes.isdisjoint(trainer.members)]
        super().lose(nodes)
        now = self.clock.now()
        for id_ in hit:
            trainer, checkpoints = self.trainers[id_], self._checkpoints[id_]
            checkpoints.times.append(now)
            checkpoints.samples.append(trainer.samples)
            if not trainer.members and now not in self._history.drains:
                kept = checkpoints.at(now, trainer.spec.checkpoint_every_s)
                trainer.go_back(kept)
                del self._checkpoints[id_]

    def regroup(self, trainer: SimulatedTrainer, action: Regroup) -> None:
        """Publish a membership; a new rank 0 begins its own series of checkpoints."""
        super().regroup(trainer, action)
        if not trainer.members:
            return
        now = self.clock.now()
        checkpoints = self._checkpoints.get(action.trainer)
        if checkpoints is None or checkpoints.node != trainer.members[0]:
            checkpoints = self._checkpoints[action.trainer] = ReplayedCheckpoints(
                trainer.members[0], now, [], []
            )
        checkpoints.times.append(now)
        checkpoints.samples.append(trainer.samples)
