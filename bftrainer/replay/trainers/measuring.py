"""Replays in which the engine knows about trainers only what was measured.

The simulated trainers behave as their specs say. The engine gets specs without curves and costs
(`hidden`), and the measurements that a real launcher would report: the speed over windows in which
nothing disturbed the trainer, and what each rescale cost.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bftrainer.model.actions import Regroup
from bftrainer.model.events import Measured
from bftrainer.model.reports import MEASURE_AGAIN_S, MEASURE_S
from bftrainer.model.trainer import AdaptingBatch, Cost, Scalability, TrainerSpec
from bftrainer.ports import Clock, Emit
from bftrainer.replay.trainers.launcher import SimulatedLauncher
from bftrainer.replay.trainers.simulated import SimulatedTrainer
from bftrainer.replay.workload import Submission

MOST_WINDOWS = 5
"""Windows measured of a trainer on one number of nodes. Real launchers go on; in a replay that costs time."""
Kind = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MeasuredWindow:
    """The measurements of a trainer at one time: its speed (samples/s), and its batch if that adapts.

    `kind`: the number of nodes, and what else makes a difference. `until`: when that changes by itself.
    """

    kind: Kind
    speed: float
    batch: AdaptingBatch | None = None
    until: float = math.inf


def hidden(workload: Sequence[Submission]) -> list[Submission]:
    """The same trainers without curves and costs, as the engine gets them.

    Trainers of one model are taken to run the same program. Classes of nodes that a trainer cannot use
    stay known.
    """
    return [
        replace(
            submission,
            spec=replace(
                submission.spec,
                command=(submission.model or submission.spec.name,),
                curve=None,
                costs=None,
                curves=tuple((name, points) for name, points in submission.spec.curves if not points),
                scalability=Scalability.AUTO,
            ),
        )
        for submission in workload
    ]


class MeasuringLauncher(SimulatedLauncher):
    """Simulates `submissions`, whatever the engine knows about them, and measures as real launchers do.

    Measured speeds scatter by `noise` (relative, log-normal); the same `seed` gives the same noise.
    """

    most_windows = MOST_WINDOWS

    def __init__(
        self, emit: Emit, clock: Clock, *, submissions: Sequence[Submission], noise: float, seed: int
    ) -> None:
        super().__init__(emit, clock)
        self._submissions, self._noise = submissions, noise
        self._random = random.Random(seed)  # noqa: S311  not for secrets
        self._windows: Counter[tuple[int, Kind]] = Counter()

    def add(self, trainer: int, spec: TrainerSpec) -> None:
        """Make a trainer known; its spec in `submissions` counts, not the one that the engine has."""
        super().add(trainer, self._submissions[trainer - 1].spec)

    def measurement(self, event: Measured) -> Measured | None:
        """The measurement, unless something disturbed its window; after a whole window the next begins."""
        if event.left is not None:
            return super().measurement(event)
        trainer = self.trainers[event.trainer]
        if trainer.ended_at is not None or trainer.published != event.generation:
            return None
        if event.point is not None:
            if len(trainer.members) != event.point[0]:
                return None
            self._windows[event.trainer, self.window(trainer, event.time).kind] += 1
            self._begin_window(event.trainer, trainer, event.time)
        return event

    def regroup(self, trainer: SimulatedTrainer, action: Regroup) -> None:
        """Publish a membership, measure what that costs, and begin to measure the speed after the stall."""
        newcomers = [node for node in action.members if node in trainer.starting]
        super().regroup(trainer, action)
        if not trainer.members:
            return
        begin = trainer.stalled_until
        if len(newcomers) < len(trainer.members):  # only a member that was there before can time the stall
            costs = trainer.costs
            up = Cost(stall_s=costs.up.stall_s, init_s=costs.up.init_s) if newcomers else None
            down = None if newcomers else Cost(stall_s=costs.down.stall_s)
            self.emit(
                Measured(time=begin, trainer=action.trainer, generation=trainer.published, up=up, down=down)
            )
        self._begin_window(action.trainer, trainer, begin)

    def window(self, trainer: SimulatedTrainer, at: float) -> MeasuredWindow:
        """The measurements of a trainer at a time."""
        return MeasuredWindow((len(trainer.members),), trainer.rate)

    def _begin_window(self, id_: int, trainer: SimulatedTrainer, begin: float) -> None:
        """Announce the speed that will have been measured at the end of a window that begins now, or as soon
        as there is something new to measure."""
        found = self.window(trainer, begin)
        if self._windows[id_, found.kind] >= self.most_windows and found.until < math.inf:
            begin = found.until
            found = self.window(trainer, begin)
        windows = self._windows[id_, found.kind]
        if found.speed <= 0 or windows >= self.most_windows:
            return
        speed = found.speed * math.exp(self._noise * self._random.gauss(0.0, 1.0))
        self.emit(
            Measured(
                time=begin + (MEASURE_AGAIN_S if windows else MEASURE_S),
                trainer=id_,
                generation=trainer.published,
                point=(found.kind[0], speed),
                batch=found.batch,
            )
        )
