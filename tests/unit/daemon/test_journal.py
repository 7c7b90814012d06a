"""What is stored, in which order, and what waits for it, while the store works and while it does not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from bftrainer.daemon.storage import journal as journal_
from bftrainer.daemon.storage import writer as writer_
from bftrainer.daemon.storage.backlog import Backlog
from bftrainer.daemon.storage.journal import StoreJournal
from bftrainer.daemon.storage.writer import Writer
from bftrainer.daemon.storage.writes import TRIAL, DecisionWrite, StoredDecision, SubmissionWrite
from bftrainer.errors import NameTakenError, StoreError, UnstorableError
from bftrainer.model.actions import Ended, StopWorker
from bftrainer.model.events import Event, TrainerCancelled
from bftrainer.model.reports import Pause, Progress
from bftrainer.model.trainer import Trainer, TrainerSpec, TrainerStatus
from bftrainer.telemetry.telemetry import Telemetry
from tests.support.nodes_world import run
from tests.support.reported import pause, report
from tests.support.waiting import until_true

SPEC = TrainerSpec(name="t", command=("true",), n_min=1, n_max=1)


class Disk:
    """A store that says what it was asked to write; it may be `full`, or hang while not `answers`."""

    def __init__(self) -> None:
        self.full = False
        self.answers = threading.Event()
        self.answers.set()
        self.never: set[object] = set()  # what it will never take
        self.written: list[tuple[str, Any]] = []

    def _write(self, what: str, value: Any) -> None:
        self.answers.wait(20)
        if self.full:
            raise StoreError("disk full")
        if {what, str(value)} & self.never:
            raise UnstorableError("no text")
        self.written.append((what, value))

    def record(self, event: Event, *decided: object) -> list[int]:
        assert isinstance(event, TrainerCancelled)
        self._write("decision", event.trainer)
        return [event.trainer * 10]

    def performed(self, actions: Sequence[int], time: float) -> None:
        self._write("performed", list(actions))

    def catch_up(self, trainers: Sequence[Trainer], ended: Sequence[tuple[Ended, float]]) -> None:
        self._write("states", [t.id for t in trainers] + [-e.trainer for e, _ in ended])

    def progress(self, reports: Sequence[Progress], rows: Collection[int]) -> None:
        self._write("progress", [(r.trainer, r.step) for r in reports])

    def pause(self, *pauses: Pause) -> None:
        self._write("pauses", [pause.generation for pause in pauses])

    def submit(self, spec: TrainerSpec, time: float) -> int:
        if spec.name == "taken":
            raise NameTakenError("taken")
        self._write("trainer", spec.name)
        return 77

    def put(self, key: str, value: str) -> None:
        self._write("value", (key, value))

    def now(self) -> float:
        return 7.0


def decision(trainer: int, *, ends: bool = False) -> StoredDecision:
    return StoredDecision(
        event=TrainerCancelled(time=1.0, trainer=trainer),
        trainers=[Trainer(id=trainer, spec=SPEC, submitted_at=0.0)],
        plan=None,
        actions=[StopWorker(trainer=trainer, generation=1, node="n1")],
        ended=Ended(trainer=trainer, status=TrainerStatus.CANCELLED) if ends else None,
        pool=frozenset(),
    )


class Made:
    """A journal with its writer over a `Disk`."""

    def __init__(self) -> None:
        self.disk, self.telemetry = Disk(), Telemetry()
        self.tidied = 0
        backlog = Backlog(1000, 0.0)
        self.writer = Writer(self.disk, self.telemetry, backlog, self.tidy_up)  # type: ignore[arg-type]
        self.journal = StoreJournal(self.writer, self.telemetry, self.disk)

    def tidy_up(self) -> float:
        self.tidied += 1
        return 1000.0

    async def all_written(self) -> None:
        await until_true(lambda: self.writer.standing().behind_since is None)

    def problems(self) -> list[str]:
        self.journal.look()
        return self.telemetry.troubles.texts(details=True)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr("bftrainer.daemon.storage.backlog.FLUSH_S", 0.0)
    return Made()


def test_a_decision_is_stored_before_it_is_acted_on(made: Made) -> None:
    async def scenario() -> None:
        write = await made.journal.decided(decision(1))
        assert (write.actions, made.disk.written) == ([10], [("decision", 1)])
        made.journal.performed(write)
        await made.journal.close()
        assert made.disk.written[1:] == [("performed", [10])]
        made.journal.performed(DecisionWrite(since=0.0, decision=replace(decision(2), actions=())))
        assert made.writer._backlog.waiting() == 0, "there is nothing to be stored"

    run(scenario)


def test_what_a_full_disk_refused_is_stored_in_order_when_there_is_room(made: Made) -> None:
    async def scenario() -> None:
        made.disk.full = True
        for trainer in (1, 2):
            made.journal.performed(await made.journal.decided(decision(trainer)))
        await until_true(lambda: "disk full" in "".join(made.problems()))
        made.disk.full = False
        await made.all_written()
        expected = [("decision", 1), ("performed", [10]), ("decision", 2), ("performed", [20])]
        assert sorted(made.disk.written) == sorted(expected)
        assert made.disk.written.index(("decision", 1)) < made.disk.written.index(("decision", 2))
        assert made.problems() == []

    run(scenario)


def test_a_write_that_fails_is_tried_again_after_pauses_that_grow_up_to_a_bound(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_, "MOST_RETRY_S", 2 * writer_.RETRY_S)
    tries: list[float] = []

    def progress(reports: Sequence[Progress], rows: Collection[int]) -> None:
        tries.append(time.monotonic())
        raise StoreError("disk full")

    monkeypatch.setattr(made.disk, "progress", progress)

    async def scenario() -> None:
        made.journal.progressed(report(1, 1))
        await until_true(lambda: len(tries) >= 4)
        first, *others = (after - before for before, after in pairwise(tries[:4]))
        assert first >= writer_.RETRY_S and min(others) >= 2 * writer_.RETRY_S
        assert made.writer._retry_s == 2 * writer_.RETRY_S
        failing_since = made.writer.standing().behind_since
        assert failing_since is not None and failing_since < tries[1], "since the first try"
        assert made.telemetry.metrics.store_failures._value.get() >= 3

    run(scenario)


def test_a_store_that_hangs_is_waited_for_once_and_a_moment(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_, "WAIT_S", 0.05)
    monkeypatch.setattr(journal_, "SLOW_S", 0.1)

    async def scenario() -> None:
        made.disk.answers.clear()
        writes: list[DecisionWrite] = []
        began = time.monotonic()
        for trainer in range(1, 101):
            writes.append(await made.journal.decided(decision(trainer)))
            made.journal.performed(writes[-1])
        assert time.monotonic() - began < 2, "only the first has waited"
        assert not any(write.stored.done() for write in writes)
        await until_true(made.problems)
        assert "has not taken anything for" in made.problems()[0]
        made.disk.answers.set()
        await made.all_written()
        assert [value for what, value in made.disk.written if what == "decision"] == [*range(1, 101)]
        assert [value for what, value in made.disk.written if what == "performed"] == [
            [10 * trainer] for trainer in range(1, 101)
        ]
        assert made.problems() == []

    run(scenario)


def test_a_store_that_hangs_on_one_write_is_told_though_nothing_else_waits(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_, "SLOW_S", 0.02)

    async def scenario() -> None:
        made.disk.answers.clear()
        made.journal.remember("key", "value")
        await until_true(made.problems, 20)
        assert "has not taken anything for" in made.problems()[0]
        made.disk.answers.set()
        await made.all_written()

    run(scenario)


def test_at_the_bound_events_give_way_and_no_state_is_lost(made: Made) -> None:
    async def scenario() -> None:
        made.writer._backlog._bound = 8
        made.disk.full = True
        for trainer in range(1, 51):
            made.journal.performed(await made.journal.decided(decision(trainer, ends=trainer % 2 == 0)))
            made.journal.pause(pause(trainer))
        assert len(made.writer._backlog._queue) <= 9
        told = "".join(made.problems())
        assert "the history lacks" in told and made.problems()
        (hits,) = made.telemetry.bounds.last_hour()
        own = made.writer.standing()
        assert hits.times == own.events_left_out + own.pauses_left_out, "each is counted once"
        made.disk.full = False
        await made.all_written()
        known: set[int] = set()
        for what, value in made.disk.written:
            known |= set(map(abs, value)) if what == "states" else {value} if what == "decision" else set()
        assert known == set(range(1, 51))
        states = next(value for what, value in made.disk.written if what == "states")
        assert all((id_ < 0) == (id_ % 2 == 0) for id_ in states)
        pauses = [g for what, value in made.disk.written if what == "pauses" for g in value]
        assert pauses == [*range(43, 51)]

    run(scenario)


def test_only_the_latest_report_is_stored_and_none_is_lost_to_a_full_disk(made: Made) -> None:
    async def scenario() -> None:
        made.disk.full = True
        for trainer in (1, 2):
            made.journal.begin(trainer)
            made.journal.progressed(report(trainer, 1))
        await until_true(made.problems)
        made.journal.progressed(report(1, 2))
        made.disk.full = False
        await made.journal.close()
        assert made.disk.written == [("progress", [(1, 2), (2, 1)])]
        assert made.journal.latest(1) == report(1, 2)

    run(scenario)


def test_pauses_wait_for_the_disk_in_order_and_are_counted_once(made: Made) -> None:
    async def scenario() -> None:
        made.disk.full = True
        for generation in (1, 2):
            made.journal.pause(pause(generation))
        await until_true(made.problems)
        made.disk.full = False
        await made.journal.close()
        written = [generation for what, value in made.disk.written for generation in value]
        assert written == [1, 2]
        assert made.telemetry.metrics.rescales.labels("join")._value.get() == 2

    run(scenario)


def test_a_trainers_end_comes_after_its_last_report_and_its_pauses(made: Made) -> None:
    async def scenario() -> None:
        made.disk.answers.clear()
        await made.journal.decided(decision(2))  # in flight
        made.journal.progressed(report(1, 1))
        made.journal.pause(pause(1))
        await made.journal.decided(decision(1, ends=True))
        made.disk.answers.set()
        await made.journal.close()
        kinds = [what for what, _ in made.disk.written]
        assert kinds == ["decision", "pauses", "progress", "decision"]

    run(scenario)


def test_a_trainer_that_ended_is_forgotten_once_its_last_report_is_stored(made: Made) -> None:
    async def scenario() -> None:
        journal = made.journal
        for trainer in (1, 2):
            journal.begin(trainer)
        made.disk.full = True
        for trainer in (1, 2):
            journal.progressed(report(trainer, 1))
        await journal.decided(decision(1, ends=True))
        journal.look()
        assert journal.latest(1) == report(1, 1), "the store does not have it yet"
        made.disk.full = False
        await until_true(lambda: not made.problems() and journal.latest(1) is None)
        assert journal.latest(2) == report(2, 1)
        journal.progressed(report(1, 2))  # its last worker's goodbye
        assert journal.latest(1) == report(1, 2)
        await until_true(lambda: made.disk.written[-1] == ("progress", [(1, 2)]))
        await until_true(lambda: not made.writer.has_report(1))
        journal.look()
        assert journal.latest(1) is None
        assert journal._over == set() and journal._unfinished == {2}

    run(scenario)


def test_the_last_value_of_a_key_is_stored_when_the_store_works(made: Made) -> None:
    async def scenario() -> None:
        made.disk.full = True
        made.journal.remember("operation", "paused")
        await until_true(made.problems)
        for value in ("draining", "running"):
            made.journal.remember("operation", value)
        made.disk.full = False
        await made.journal.close()
        assert made.disk.written[-1] == ("value", ("operation", "running"))
        assert ("value", ("operation", "draining")) not in made.disk.written

    run(scenario)


# --- submissions ---------------------------------------------------------------------------------


def test_a_submission_is_stored_or_refused(made: Made) -> None:
    async def scenario() -> None:
        assert await made.journal.submit(SPEC, 1.0) == 77
        with pytest.raises(NameTakenError):
            await made.journal.submit(TrainerSpec(name="taken", command=(), n_min=1, n_max=1), 1.0)
        made.disk.never.add("trainer")
        with pytest.raises(UnstorableError):
            await made.journal.submit(SPEC, 1.0)
        made.disk.never.clear()
        assert await made.journal.submit(SPEC, 1.0) == 77

    run(scenario)


def test_a_user_waits_for_few_of_the_decisions_that_another_has_caused(made: Made) -> None:
    """A study of a thousand trials that was cancelled had others' submits wait for seconds, or refused."""

    async def scenario() -> None:
        made.disk.answers.clear()
        for trainer in range(500):
            made.writer.add(DecisionWrite(since=0.0, decision=decision(trainer)))
        await until_true(lambda: made.writer._in_flight is not None)
        asked = asyncio.create_task(made.journal.submit(SPEC, 1.0, ahead=True))
        await until_true(lambda: made.writer._backlog._ahead)
        made.disk.answers.set()
        assert await asked == 77
        await made.all_written()
        assert ("trainer", SPEC.name) in made.disk.written[:3] and len(made.disk.written) == 501
        assert made.problems() == [], "it takes what waits, however much that is"

    run(scenario)


def test_a_name_whose_trainer_has_ended_is_free_though_that_is_not_stored_yet(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(spec: TrainerSpec, time: float) -> int:
        if ("decision", 1) not in made.disk.written:
            raise NameTakenError(spec.name)
        return 78

    monkeypatch.setattr(made.disk, "submit", submit)

    async def scenario() -> None:
        made.disk.answers.clear()
        for trainer in (0, 1):
            made.writer.add(DecisionWrite(since=time.monotonic(), decision=decision(trainer)))
        await until_true(lambda: made.writer._in_flight is not None)
        asked = asyncio.create_task(made.journal.submit(SPEC, 1.0, ahead=True))
        await until_true(lambda: made.writer._backlog._ahead)
        made.disk.answers.set()
        assert await asked == 78

    run(scenario)


def test_a_submission_that_the_store_refuses_for_too_long_is_not_carried_out(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_, "ANSWER_S", 0.2)

    async def scenario() -> None:
        made.disk.full = True
        for _ in range(3):
            with pytest.raises(StoreError, match="does not answer: disk full; nothing was submitted"):
                await made.journal.submit(SPEC, 1.0)
        made.disk.full = False
        await made.all_written()
        assert all(what == "value" for what, _ in made.disk.written)

    run(scenario)


def test_a_submission_that_was_taken_back_does_not_end_the_trouble_with_the_store(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_, "RETRY_S", 0.001)
    monkeypatch.setattr(writer_, "MOST_RETRY_S", 0.001)
    tries = list[str]()

    def put(key: str, value: str) -> None:
        tries.append(made.writer.standing().error)
        made.disk._write("value", (key, value))

    monkeypatch.setattr(made.disk, "put", put)

    async def scenario() -> None:
        made.disk.full = True
        submission = SubmissionWrite(since=time.monotonic(), spec=SPEC, time=1.0)
        made.writer.add(submission)
        await until_true(lambda: made.writer.standing().error)
        since = made.writer.standing().behind_since
        assert made.writer.withdraw(submission)
        await until_true(lambda: len(tries) > 5)
        assert {*tries} == {"disk full"} and made.writer.standing().behind_since == since
        made.disk.full = False
        await made.all_written()
        assert made.problems() == [] and made.disk.written == [("value", (TRIAL, ""))]

    run(scenario)


def test_what_there_is_no_memory_for_is_tried_again(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    record, tries = made.disk.record, list[Event]()

    def without_memory(event: Event, *decided: object) -> list[int]:
        tries.append(event)
        if len(tries) < 3:
            raise MemoryError
        return record(event, *decided)

    monkeypatch.setattr(made.disk, "record", without_memory)

    async def scenario() -> None:
        await made.journal.decided(decision(1))
        await made.all_written()
        assert made.disk.written == [("decision", 1)]

    run(scenario)


def test_a_submission_to_a_store_that_has_failed_for_long_is_refused_at_once(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        made.disk.full = True
        await made.journal.decided(decision(1))
        await until_true(made.problems)
        monkeypatch.setattr(journal_, "ANSWER_S", 0.0)
        added = list[object]()
        monkeypatch.setattr(made.writer, "add", added.append)
        with pytest.raises(StoreError, match="does not answer: disk full; nothing was submitted"):
            await made.journal.submit(SPEC, 1.0)
        assert not added, "nothing of it waits in memory"

    run(scenario)


@pytest.mark.parametrize("gone", ["time", "client"])
def test_a_submission_that_is_stored_too_late_is_cancelled_in_the_store(
    made: Made, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    monkeypatch.setattr(journal_, "ANSWER_S", 0.1 if gone == "time" else 10.0)

    async def scenario() -> None:
        made.disk.answers.clear()
        asked = asyncio.create_task(made.journal.submit(SPEC, 1.0))
        await until_true(lambda: made.writer._in_flight is not None)
        if gone == "client":
            asked.cancel()
            await asyncio.wait([asked])
        else:
            with pytest.raises(StoreError, match="nothing was submitted"):
                await asked
        made.disk.answers.set()
        await made.journal.close()
        assert made.disk.written == [("trainer", "t"), ("states", [-77])]

    run(scenario)


def test_a_submission_that_was_answered_when_its_client_had_gone_is_cancelled_in_the_store(
    made: Made,
) -> None:
    async def scenario() -> None:
        submission = SubmissionWrite(since=0.0, spec=SPEC, time=1.0)
        made.writer.add(submission)
        await until_true(submission.answer.done)
        assert not made.writer.withdraw(submission), "its user is told that it is stored"
        assert made.writer.withdraw(submission, anyway=True)
        await made.journal.close()
        assert made.disk.written == [("trainer", "t"), ("states", [-77])]

    run(scenario)


# --- what the store will never take --------------------------------------------------------------


def test_an_event_that_cannot_be_stored_keeps_nothing_waiting_and_its_trainers_are_stored(
    made: Made, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        made.disk.never = {"1", "[2]", "[(4, 1)]", "[(4, 1), (5, 1)]"}
        made.disk.answers.clear()
        await made.journal.decided(decision(3))
        for trainer in (1, 2):
            made.journal.performed(await made.journal.decided(decision(trainer)))
        for trainer in (4, 5):
            made.journal.progressed(report(trainer, 1))
        made.disk.never.add("2")
        made.disk.answers.set()
        await made.journal.close()
        assert made.disk.written == [
            *(("decision", 3), ("states", [1]), ("performed", []), ("performed", [])),
            ("progress", [(5, 1)]),
        ]
        assert not made.writer.has_report(4)

    run(scenario)
    assert "TrainerCancelled" in str([vars(record) for record in caplog.records])


def test_a_bug_in_one_write_does_not_end_the_thread(
    made: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def put(key: str, value: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(made.disk, "put", put)

    async def scenario() -> None:
        made.journal.remember("key", "value")
        await until_true(lambda: "ZeroDivisionError" in caplog.text)
        await made.journal.decided(decision(1))
        assert made.disk.written == [("decision", 1)]

    run(scenario)


# --- the end -------------------------------------------------------------------------------------


def test_a_store_that_never_answers_does_not_keep_the_daemon_from_ending(
    made: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal_, "CLOSE_S", 0.1)

    async def scenario() -> None:
        made.disk.full = True
        for trainer in (1, 2):
            await made.journal.decided(decision(trainer))
        await made.journal.close()

    run(scenario)
    assert "not_stored" in caplog.text
    thread = made.writer._thread
    assert thread is not None and thread.daemon, "nor does a thread that waits for the disk"


def test_what_is_old_is_tidied_up_when_nothing_else_is_to_be_done(made: Made) -> None:
    async def scenario() -> None:
        made.journal.remember("key", "value")
        await until_true(lambda: made.tidied)
        assert made.disk.written == [("value", ("key", "value"))]
        for trainer in range(20):
            await made.journal.decided(decision(trainer))
        assert made.tidied == 1

    run(scenario)


def test_what_is_overdue_is_tidied_up_before_the_next_write(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_, "OVERDUE_S", 0.0)
    written_before = list[int]()

    def tidy_up() -> float:
        written_before.append(len(made.disk.written))
        return 1000.0

    monkeypatch.setattr(made.writer, "_tidy_up", tidy_up)

    async def scenario() -> None:
        with made.writer._changed:  # the thread finds all of them at once
            for trainer in range(20):
                made.writer.add(DecisionWrite(since=0.0, decision=decision(trainer)))
        await made.all_written()
        assert (written_before, len(made.disk.written)) == ([0], 20)

    run(scenario)


def test_in_a_hurry_it_is_tidied_up_after_every_write(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def tidy_up() -> float:
        order.append("tidy")
        return 0.0

    def record(event: Event, *decided: object) -> list[int]:
        order.append("write")
        return []

    monkeypatch.setattr(made.writer, "_tidy_up", tidy_up)
    monkeypatch.setattr(made.disk, "record", record)

    async def scenario() -> None:
        made.journal.remember("key", "value")
        await until_true(lambda: order)
        for trainer in range(20):
            made.writer.add(DecisionWrite(since=0.0, decision=decision(trainer)))
        await made.all_written()
        first = order.index("write")
        assert "write-write" not in "-".join(order[first:])

    run(scenario)


def test_a_writer_that_has_ended_by_a_bug_ends_the_daemon(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(*given: object, **how: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("threading.excepthook", lambda told: None)
    monkeypatch.setattr(made.writer._backlog, "take", take)

    async def scenario() -> None:
        made.journal.remember("key", "value")
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(10):
                await made.journal.watch()

    run(scenario)


def test_a_bug_in_tidying_up_keeps_nothing_from_being_stored(
    made: Made, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(made.writer, "_tidy_up", lambda: 1 / 0)

    async def scenario() -> None:
        made.journal.remember("key", "value")
        await until_true(lambda: "ZeroDivisionError" in caplog.text)
        await made.journal.decided(decision(1))
        assert made.disk.written[-1] == ("decision", 1)

    run(scenario)
