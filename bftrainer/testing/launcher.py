"""The contract of `ports.Launcher`: the same story for real workers and simulated ones."""

from __future__ import annotations

from typing import Protocol, TypeVar

from bftrainer.model import (
    Action,
    Event,
    Regroup,
    StartWorker,
    StopWorker,
    TrainerEnded,
    TrainerStatus,
    WorkersReady,
)

E = TypeVar("E", bound=Event)

TRAINER = 1


class LauncherUnderTest(Protocol):
    """A launcher with a trainer of id 1 on nodes a, b, c, whose work takes a few seconds on one node."""

    def perform(self, *actions: Action) -> None: ...

    def next(self, kind: type[E]) -> E:
        """Wait for the next event of a kind; others are dropped. Fails after a reasonable time."""
        ...

    def samples(self) -> float:
        """What has been trained so far."""
        ...

    def work(self) -> int:
        """The trainer's work in samples."""
        ...


def start(launcher: LauncherUnderTest, generation: int, *nodes: str) -> None:
    """Start workers and wait until all of them are ready."""
    launcher.perform(*(StartWorker(trainer=TRAINER, generation=generation, node=node) for node in nodes))
    ready: set[str] = set()
    while ready != set(nodes):
        event = launcher.next(WorkersReady)
        assert (event.trainer, event.generation) == (TRAINER, generation)
        ready |= event.nodes


class LauncherContract:
    """Needs a fixture `launcher`: a `LauncherUnderTest`."""

    def test_a_trainer_does_its_work_and_ends(self, launcher: LauncherUnderTest) -> None:
        start(launcher, 1, "a")
        launcher.perform(Regroup(trainer=TRAINER, generation=2, members=("a",)))
        ended = launcher.next(TrainerEnded)
        assert (ended.trainer, ended.generation, ended.status) == (TRAINER, 2, TrainerStatus.COMPLETED)
        assert launcher.samples() == launcher.work()

    def test_grows_and_shrinks_without_losing_work(self, launcher: LauncherUnderTest) -> None:
        start(launcher, 1, "a")
        launcher.perform(Regroup(trainer=TRAINER, generation=2, members=("a",)))
        start(launcher, 3, "b", "c")
        launcher.perform(Regroup(trainer=TRAINER, generation=4, members=("a", "b", "c")))
        launcher.perform(Regroup(trainer=TRAINER, generation=5, members=("b", "c"), leaving=("a",)))
        ended = launcher.next(TrainerEnded)
        assert ended.generation == 5
        assert launcher.samples() == launcher.work()

    def test_a_stopped_newcomer_is_never_missed(self, launcher: LauncherUnderTest) -> None:
        start(launcher, 1, "a")
        launcher.perform(Regroup(trainer=TRAINER, generation=2, members=("a",)))
        launcher.perform(StartWorker(trainer=TRAINER, generation=3, node="b"))
        launcher.perform(StopWorker(trainer=TRAINER, generation=4, node="b"))
        assert launcher.next(TrainerEnded).generation == 2
        assert launcher.samples() == launcher.work()

    def test_goes_on_after_having_had_no_node(self, launcher: LauncherUnderTest) -> None:
        start(launcher, 1, "a")
        launcher.perform(Regroup(trainer=TRAINER, generation=2, members=("a",)))
        start(launcher, 3, "b")
        launcher.perform(Regroup(trainer=TRAINER, generation=4, members=("a", "b")))
        launcher.perform(Regroup(trainer=TRAINER, generation=5, members=(), leaving=("a", "b")))
        start(launcher, 6, "c")
        launcher.perform(Regroup(trainer=TRAINER, generation=7, members=("c",)))
        assert launcher.next(TrainerEnded).generation == 7
        assert launcher.samples() == launcher.work()
