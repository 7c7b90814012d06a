"""The simulated launcher: performs the engine's actions on a virtual clock.

A regrouped trainer stands still for `stall_s` of the direction of change: up where nodes join, down
where none does. New nodes initialise for `init_s` while the members train on, then report ready. The
paper's model is init_s = 0: newcomers are ready at once and all members wait for R_up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from bftrainer.model.actions import Action, Regroup, StartWorker, StopWorker
from bftrainer.model.events import Measured, TrainerEnded, WorkersReady
from bftrainer.model.trainer import TrainerSpec
from bftrainer.ports import Clock, Emit, Executor
from bftrainer.replay.trainers.simulated import SimulatedTrainer, one_class

TELLS_S = 60.0
"""Seconds between trainers' reports of their remaining work, where decisions depend on it."""


class SimulatedLauncher(Executor):
    """Carries out decisions by arithmetic. `emit` takes the events that follow, at their own times.

    With `tells_left`, trainers tell how many samples they have left to do.
    """

    def __init__(self, emit: Emit, clock: Clock) -> None:
        self.emit, self.clock = emit, clock
        self.class_of: Callable[[str], str] = one_class
        self.tells_left = False
        self.trainers: dict[int, SimulatedTrainer] = {}
        self._busy: set[int] = set()  # trainers that have had nodes and have not ended

    def add(self, trainer: int, spec: TrainerSpec) -> None:
        """Make a trainer known, as submitted now."""
        self.trainers[trainer] = self.made(trainer, spec)

    def made(self, trainer: int, spec: TrainerSpec) -> SimulatedTrainer:
        """A trainer that is submitted now, as it is simulated."""
        return SimulatedTrainer.submitted(spec, self.clock.now(), self.class_of)

    def forget(self, trainer: int) -> None:
        """A trainer has ended. Only its figures are kept."""
        self.trainers[trainer].end(self.clock.now())
        self._busy.discard(trainer)

    def perform(self, actions: Sequence[Action]) -> None:
        """Perform the actions of one decision. Workers that become ready together report together."""
        now = self.clock.now()
        started: dict[tuple[int, int, float], set[str]] = {}
        for action in actions:
            trainer = self.trainers[action.trainer]
            if trainer.ended_at is not None:
                continue
            self._busy.add(action.trainer)
            match action:
                case StartWorker():
                    trainer.starting[action.node] = now
                    ready = now + self.init_s(action)
                    started.setdefault((action.trainer, action.generation, ready), set()).add(action.node)
                case StopWorker():
                    trainer.stop_initialising(action.node, now)
                case Regroup():
                    self.regroup(trainer, action)
        for (id_, generation, ready), nodes in started.items():
            self.emit(WorkersReady(time=ready, trainer=id_, generation=generation, nodes=frozenset(nodes)))

    def init_s(self, action: StartWorker) -> float:
        """Seconds until a worker that starts now is ready."""
        return self.trainers[action.trainer].costs.up.init_s

    def regroup(self, trainer: SimulatedTrainer, action: Regroup) -> None:
        """Publish a membership, and predict when the trainer's work will be done with it."""
        now = self.clock.now()
        trainer.regroup(action.members, action.generation, now)
        if self.tells_left and trainer.members and trainer.spec.samples is not None:
            self._tell_left(action.trainer, trainer, now)
        if trainer.due < float("inf"):
            self.emit(
                TrainerEnded(
                    time=trainer.due + trainer.exit_s, trainer=action.trainer, generation=action.generation
                )
            )

    def lose(self, nodes: frozenset[str]) -> None:
        """Nodes are gone, with all workers on them."""
        for id_ in sorted(self._busy):
            self.trainers[id_].lose(nodes, self.clock.now())

    def is_due(self, event: TrainerEnded) -> bool:
        """True if a predicted end is still right: a later change may have moved it."""
        trainer = self.trainers[event.trainer]
        return trainer.ended_at is None and trainer.due + trainer.exit_s == event.time

    def measurement(self, event: Measured) -> Measured | None:
        """The measurement that the engine is given for `event`; None if it must not be counted.

        One that does not tell what is left comes from a daemon's history here: it is given as one of the
        current membership.
        """
        trainer = self.trainers[event.trainer]
        if event.left is None:
            return replace(event, generation=trainer.published)
        if trainer.ended_at is not None or trainer.published != event.generation:
            return None
        self._tell_left(event.trainer, trainer, event.time + TELLS_S)
        return replace(event, left=max(0.0, event.left - trainer.samples_at(event.time)))

    def _tell_left(self, id_: int, trainer: SimulatedTrainer, at: float) -> None:
        """Announce what will be left at a time: all of its work, less what it will have done by then."""
        work = float(trainer.spec.samples or 0)
        self.emit(Measured(time=at, trainer=id_, generation=trainer.published, left=work))

    def close(self) -> None:
        """The replay ends: count all trainers that have not ended up to now."""
        for trainer in self.trainers.values():
            if trainer.ended_at is None:
                trainer.close(self.clock.now())

    @property
    def busy(self) -> Iterator[SimulatedTrainer]:
        """The trainers that have had nodes and have not ended: only their figures can still grow."""
        return (self.trainers[id_] for id_ in self._busy)
