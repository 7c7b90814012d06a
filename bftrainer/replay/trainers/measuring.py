"""A replay in which the engine knows nothing of the trainers but what is measured.

The simulated trainers behave as their specs say; the engine is given specs without curves and costs
(`hidden`), and is told what a real launcher would measure: the speed over windows in which the trainer
ran undisturbed, and what each rescale cost.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from bftrainer.model.actions import Regroup
from bftrainer.model.events import Event, Measured
from bftrainer.model.reports import MEASURE_AGAIN_S, MEASURE_S
from bftrainer.model.trainer import Cost, Scalability, TrainerSpec
from bftrainer.replay.trainers.simulated import SimulatedLauncher, SimulatedTrainer
from bftrainer.replay.workload import Submission

ENOUGH = 5
"""So many windows of a trainer on one size are measured; in life it goes on, at a replay's expense."""


def hidden(workload: Sequence[Submission]) -> list[Submission]:
    """The same trainers, of which neither speeds nor costs are known.

    Trainers of one model run one program. Which classes of nodes they cannot use is no matter of speed,
    and stays known.
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
    """Simulates `submissions`, whatever the engine knows of them, and measures as real launchers do.

    Measured speeds spread by `noise` (relative, log-normal); the same `seed` gives the same noise.
    """

    def __init__(
        self, emit: Callable[[Event], None], *, submissions: Sequence[Submission], noise: float, seed: int
    ) -> None:
        super().__init__(emit)
        self._submissions, self._noise = submissions, noise
        self._random = random.Random(seed)  # noqa: S311  not for secrets
        self._windows: Counter[tuple[int, int]] = Counter()  # of each trainer on each number of nodes

    def submit(self, trainer: int, spec: TrainerSpec, now: float) -> None:
        super().submit(trainer, self._submissions[trainer - 1].spec, now)

    def told(self, event: Measured) -> Measured | None:
        """Nothing of a window that something disturbed; after a whole one, the next begins."""
        run = self.runs[event.trainer]
        if run.ended_at is not None or run.published != event.generation:
            return None
        if event.point is not None:
            if len(run.members) != event.point[0]:
                return None
            self._windows[event.trainer, event.point[0]] += 1
            self._window(event.trainer, run, event.time)
        return event

    def _regroup(self, run: SimulatedTrainer, action: Regroup, now: float) -> None:
        newcomers = [node for node in action.members if node in run.starting]
        super()._regroup(run, action, now)
        if not run.members:
            return
        begin = run.stalled_until
        if len(newcomers) < len(run.members):  # somebody saw it all
            up = Cost(stall_s=run.costs.up.stall_s, init_s=run.costs.up.init_s) if newcomers else None
            down = None if newcomers else Cost(stall_s=run.costs.down.stall_s)
            self._emit(
                Measured(time=begin, trainer=action.trainer, generation=run.published, up=up, down=down)
            )
        self._window(action.trainer, run, begin)

    def _window(self, trainer: int, run: SimulatedTrainer, begin: float) -> None:
        n = len(run.members)
        windows = self._windows[trainer, n]
        length = MEASURE_AGAIN_S if windows else MEASURE_S
        if run.rate > 0 and windows < ENOUGH:
            speed = run.rate * math.exp(self._noise * self._random.gauss(0.0, 1.0))
            self._emit(
                Measured(time=begin + length, trainer=trainer, generation=run.published, point=(n, speed))
            )
