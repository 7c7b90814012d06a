"""What is stored, in which order, while the store works and while it does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bftrainer.daemon.journal import Decision, Journal
from bftrainer.errors import StoreError, UnstorableError
from bftrainer.model.actions import Ended, StopWorker
from bftrainer.model.events import Event, TrainerCancelled
from bftrainer.model.reports import Pause, Progress
from bftrainer.model.trainer import TrainerStatus
from bftrainer.telemetry.telemetry import Telemetry


class Disk:
    """A store that says what it was asked to write; while `full`, it refuses."""

    def __init__(self) -> None:
        self.full = False
        self.refused: Callable[[str, Any], bool] | None = None
        self.written: list[tuple[str, Any]] = []

    def _write(self, what: str, value: Any) -> None:
        if self.full:
            raise StoreError("disk full")
        if self.refused is not None and self.refused(what, value):
            raise UnstorableError("a value cannot be stored")
        self.written.append((what, value))

    def record(self, event: Event, *decided: object) -> list[int]:
        assert isinstance(event, TrainerCancelled)
        self._write("decision", event.trainer)
        return [event.trainer * 10]

    def performed(self, actions: Sequence[int], time: float) -> None:
        self._write("performed", list(actions))

    def progress(self, rows: Sequence[Progress]) -> None:
        self._write("progress", [(row.trainer, row.step) for row in rows])

    def pause(self, pause: Pause) -> None:
        self._write("pause", pause.generation)

    def put(self, key: str, value: str) -> None:
        self._write("value", (key, value))

    def now(self) -> float:
        return 7.0


def decision(trainer: int, *, ends: bool = False) -> Decision:
    return Decision(
        event=TrainerCancelled(time=1.0, trainer=trainer),
        trainers=[],
        plan=None,
        actions=[StopWorker(trainer=trainer, generation=1, node="n1")],
        ended=Ended(trainer=trainer, status=TrainerStatus.CANCELLED) if ends else None,
        pool=frozenset(),
    )


def report(trainer: int, step: int) -> Progress:
    return Progress(
        time=1.0,
        trainer=trainer,
        generation=1,
        size=1,
        step=step,
        samples=step,
        epoch=0,
        rate=None,
        metrics={},
    )


def pause(generation: int) -> Pause:
    return Pause(
        time=1.0,
        trainer=1,
        generation=generation,
        node="n1",
        kind="join",
        size=1,
        step=1,
        pause_s=0.1,
        lost_steps=0,
    )


Made = tuple[Disk, Journal, Telemetry]


@pytest.fixture
def made() -> Made:
    disk, telemetry = Disk(), Telemetry()
    return disk, Journal(disk, telemetry, disk), telemetry  # type: ignore[arg-type]


def test_a_decision_is_stored_before_it_is_acted_on(made: Made) -> None:
    disk, journal, _ = made
    actions = journal.decided(decision(1))
    assert (actions, disk.written) == ([10], [("decision", 1)])
    journal.performed(actions)
    assert disk.written[1:] == [("performed", [10])]


@pytest.mark.parametrize("again", [lambda j: j.decided(decision(3)), lambda j: j.flush()])
def test_what_a_full_disk_refused_is_stored_in_order_when_there_is_room(
    made: Made, again: Callable[[Journal], object]
) -> None:
    disk, journal, telemetry = made
    disk.full = True
    assert journal.decided(decision(1)) == journal.decided(decision(2)) == []
    assert telemetry.troubles.texts(details=True) == ["disk full"]
    disk.full = False
    again(journal)
    expected = [("decision", 1), ("performed", [10]), ("decision", 2), ("performed", [20])]
    assert disk.written[:4] == expected, "those were carried out long ago"
    assert not telemetry.troubles.has("store")


def test_only_the_latest_report_is_stored_and_none_is_lost_to_a_full_disk(made: Made) -> None:
    disk, journal, _ = made
    for trainer in (1, 2):
        journal.begin(trainer)
        journal.progressed(report(trainer, 1))
    journal.progressed(report(1, 2))
    disk.full = True
    journal.flush()
    journal.progressed(report(2, 5))
    disk.full = False
    journal.flush()
    journal.flush()
    assert disk.written == [("progress", [(1, 2), (2, 5)])]
    assert journal.latest(1) == report(1, 2)


def test_pauses_wait_for_the_disk_in_order_and_are_counted_once(made: Made) -> None:
    disk, journal, telemetry = made
    disk.full = True
    for generation in (1, 2):
        journal.pause(pause(generation))
    disk.full = False
    journal.flush()
    assert disk.written == [("pause", 1), ("pause", 2)]
    assert telemetry.metrics.rescales.labels("join")._value.get() == 2


def test_a_trainer_that_ended_is_forgotten_once_its_last_report_is_stored(made: Made) -> None:
    disk, journal, _ = made
    for trainer in (1, 2):
        journal.begin(trainer)
        journal.progressed(report(trainer, 1))
    disk.full = True
    journal.decided(decision(1, ends=True))
    journal.flush()
    assert journal.latest(1) == report(1, 1), "the store does not have it yet"
    disk.full = False
    journal.flush()
    assert journal.latest(1) is None and journal.latest(2) == report(2, 1)
    journal.progressed(report(1, 2))  # its last worker's goodbye
    assert journal.latest(1) == report(1, 2)
    journal.flush()
    assert journal.latest(1) is None and disk.written[-1] == ("progress", [(1, 2)])


def test_a_value_that_cannot_be_stored_is_no_error(made: Made) -> None:
    disk, journal, telemetry = made
    disk.full = True
    journal.remember("operation", "paused")
    assert telemetry.troubles.has("store")
    disk.full = False
    journal.remember("operation", "paused")
    assert disk.written == [("value", ("operation", "paused"))] and not telemetry.troubles.has("store")


def test_what_can_never_be_stored_keeps_nothing_back(made: Made) -> None:
    disk, journal, telemetry = made
    disk.refused = lambda what, value: value in (1, 2) or (what == "progress" and (3, 1) in value)
    assert journal.decided(decision(1)) == [] and journal.decided(decision(2)) == []
    journal.pause(pause(1))
    for trainer in (3, 4):
        journal.progressed(report(trainer, 1))
    assert journal.decided(decision(5)) == [50], "of the decision itself, not of one before"
    journal.pause(pause(3))
    journal.flush()
    assert disk.written == [("decision", 5), ("pause", 3), ("progress", [(4, 1)])]
    journal.flush()
    assert len(disk.written) == 3, "nothing is tried again"
    assert not telemetry.troubles.has("store"), "the store works"
