"""What waits for the store: whatever comes, fails or gives way, the store ends with each trainer's latest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.daemon.storage.backlog import FLUSH_S, IN_A_ROW, Backlog
from bftrainer.daemon.storage.writes import (
    DecisionWrite,
    PausesWrite,
    PerformedWrite,
    ReportsWrite,
    StatesWrite,
    StoredDecision,
    StudyWrite,
    SubmissionWrite,
    ValueWrite,
    Write,
)
from bftrainer.model.actions import Ended
from bftrainer.model.events import PolicyChanged
from bftrainer.model.studies import StoredStudy
from bftrainer.model.trainer import Trainer, TrainerSpec, TrainerStatus
from tests.support.reported import pause, report

SPEC = TrainerSpec(name="t", command=("true",), n_min=1, n_max=1)


def decided(number: int, trainer: int, *, ends: bool = False) -> DecisionWrite:
    """The decision with this number, which leaves a trainer in the generation of this number."""
    after = Trainer(id=trainer, spec=SPEC, submitted_at=0.0, generation=number)
    return DecisionWrite(
        since=float(number),
        decision=StoredDecision(
            event=PolicyChanged(time=float(number)),
            trainers=[after],
            plan=None,
            actions=[],
            ended=Ended(trainer=trainer, status=TrainerStatus.CANCELLED) if ends else None,
            pool=frozenset(),
        ),
    )


class Kept:
    """What the store has, from the writes that it was given."""

    def __init__(self) -> None:
        self.generations: dict[int, int] = {}
        self.ended: dict[int, float] = {}
        self.steps: dict[int, int] = {}
        self.events: list[float] = []
        self.pauses: list[int] = []
        self.submitted: list[str] = []
        self.values: dict[str, str] = {}

    def take(self, write: Write) -> None:
        match write:
            case DecisionWrite():
                self.events.append(write.decision.event.time)
                self._states(write.decision.trainers)
                if write.decision.ended is not None:
                    self.ended[write.decision.ended.trainer] = write.decision.event.time
            case StatesWrite():
                self._states(list(write.trainers.values()))
                self.ended |= {id_: time for id_, (_, time) in write.ended.items()}
            case ReportsWrite():
                self.steps |= {r.trainer: r.step for r in write.reports}
            case PausesWrite():
                self.pauses += [p.generation for p in write.pauses]
            case SubmissionWrite():
                self.submitted.append(write.spec.name)
            case ValueWrite():
                self.values[write.key] = write.value

    def _states(self, trainers: Sequence[Trainer]) -> None:
        for t in trainers:
            assert t.generation >= self.generations.get(t.id, 0), "a state never goes back"
            self.generations[t.id] = t.generation


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["decide", "end", "report", "pause", "submit", "value", "write", "fail"]),
        st.integers(1, 5),
    ),
    max_size=120,
)


@given(steps=STEPS, bound=st.integers(8, 20))
def test_the_store_ends_with_the_latest_of_everything(steps: list[tuple[str, int]], bound: int) -> None:
    backlog, kept = Backlog(bound, 0.0), Kept()
    wanted: dict[str, Any] = {"generations": {}, "ended": {}, "steps": {}, "submitted": [], "values": {}}
    paused = 0
    for number, (what, which) in enumerate(steps, 1):
        if what in ("decide", "end") and which not in wanted["ended"]:
            write = decided(number, which, ends=what == "end")
            backlog.add(write)
            backlog.add(PerformedWrite(since=float(number), of=write, time=0.0))
            wanted["generations"][which] = number
            if what == "end":
                wanted["ended"][which] = float(number)
        elif what == "report":
            backlog.report(report(which, number), float(number))
            wanted["steps"][which] = number
        elif what == "pause":
            paused += 1
            backlog.pause(pause(paused))
        elif what == "submit":
            spec = TrainerSpec(name=str(number), command=(), n_min=1, n_max=1)
            backlog.add(SubmissionWrite(since=float(number), spec=spec, time=0.0))
            wanted["submitted"].append(str(number))
        elif what == "value":
            backlog.remember(ValueWrite(since=float(number), key=str(which), value=str(number)))
            wanted["values"][str(which)] = str(number)
        else:
            write_one(backlog, kept, float(number), fails=what == "fail")
        submissions = sum(isinstance(own, SubmissionWrite) for own in backlog._queue)
        assert len(backlog._queue) <= bound + submissions + 2
        assert len(backlog._pauses) <= bound
    for _ in range(1000):
        write_one(backlog, kept, 1e9, at_once=True)
    assert backlog.waiting() == 0 and backlog.oldest() is None and backlog.due_at() == float("inf")
    for trainer, generation in wanted["generations"].items():
        if trainer not in wanted["ended"]:
            assert kept.generations[trainer] == generation
    for what in ("ended", "steps", "submitted", "values"):
        assert getattr(kept, what) == wanted[what], what
    assert kept.events == sorted(kept.events)
    decisions = len({*kept.events}) + backlog.events_left_out
    assert decisions == sum(w in ("decide", "end") for w in taken_kinds(steps))
    assert kept.pauses == sorted(kept.pauses) and len(kept.pauses) + backlog.pauses_left_out == paused


def taken_kinds(steps: list[tuple[str, int]]) -> list[str]:
    """The kinds of the steps, without decisions on trainers that had ended."""
    over: set[int] = set()
    found = []
    for what, which in steps:
        if what in ("decide", "end") and which in over:
            continue
        found.append(what)
        if what == "end":
            over.add(which)
    return found


def write_one(
    backlog: Backlog, kept: Kept, now: float, *, fails: bool = False, at_once: bool = False
) -> None:
    """What the writer's thread does."""
    write = backlog.take(now, at_once=at_once)
    if write is None:
        return
    if not fails:
        kept.take(write)
    if fails:
        backlog.failed(write)
    elif isinstance(write, ReportsWrite):
        backlog.stored(write.reports)


def test_what_gives_way_is_merged_before_what_stays_in_order() -> None:
    """A name may be submitted again after the end of its trainer: the store must have the end first."""
    backlog, bound = Backlog(7, 0.0), 7
    backlog.add(decided(1, 1, ends=True))
    for name in ("first", "second"):
        spec = TrainerSpec(name=name, command=(), n_min=1, n_max=1)
        backlog.add(SubmissionWrite(since=2.0, spec=spec, time=0.0))
    for number in range(3, bound + 1):
        backlog.add(decided(number, 2))
    taken = [backlog.take(100.0) for _ in range(4)]
    assert [str(write) for write in taken] == [
        "the state of trainer 2, 1",
        "the trainer 'first' of this user",
        "the trainer 'second' of this user",
        "the event PolicyChanged",
    ]
    assert backlog.events_left_out == 2


def test_a_later_state_replaces_an_earlier_one_and_parts_have_everything() -> None:
    states, later = StatesWrite(since=1.0), StatesWrite(since=2.0)
    for number, trainer in ((1, 1), (2, 2), (3, 3)):
        states.add(decided(number, trainer).decision)
    later.add(decided(4, 2).decision)
    later.add(decided(5, 3, ends=True).decision)
    states.take_in(later)
    assert {id_: t.generation for id_, t in states.trainers.items()} == {1: 1, 2: 4}
    assert states.ended.keys() == {3}
    assert [str(part) for part in states.smaller()] == [f"the state of trainer {id_}" for id_ in (1, 2, 3)]
    pauses = PausesWrite(since=1.0, pauses=(pause(1), pause(2)))
    assert [part.pauses for part in pauses.smaller() if isinstance(part, PausesWrite)] == [
        (pause(1),),
        (pause(2),),
    ]


def test_many_decisions_in_a_row_do_not_keep_what_else_there_is_waiting_for_ever() -> None:
    backlog = Backlog(1000, 0.0)
    backlog.remember(ValueWrite(since=0.0, key="operation", value="paused"))
    backlog.pause(pause(1))
    backlog.report(report(1, 1), 0.0)
    kinds = []
    for number in range(2 * IN_A_ROW):
        backlog.add(decided(number, 1))
        write = backlog.take(100.0)
        kinds.append(type(write))
        if isinstance(write, ReportsWrite):
            backlog.stored(write.reports)
    assert {ValueWrite, PausesWrite, ReportsWrite} <= {*kinds}


def test_a_report_that_comes_while_an_earlier_one_is_stored_is_stored_too_and_moves_nothing_on() -> None:
    backlog = Backlog(1000, 0.0)
    for tenth in range(20):
        backlog.report(report(1, tenth), tenth / 10)
    write = backlog.take(FLUSH_S)
    assert isinstance(write, ReportsWrite), "so long after the first, however often it reports"
    backlog.report(report(1, 20), FLUSH_S)
    backlog.stored(write.reports)
    assert backlog.has_report(1)


def test_a_trainers_end_waits_for_the_reports_of_others_once() -> None:
    backlog = Backlog(1000, 0.0)
    backlog.add(decided(1, 1, ends=True))
    for step in (1, 2):
        backlog.report(report(2, step), 0.0)
        write = backlog.take(0.0)
        assert isinstance(write, ReportsWrite if step == 1 else DecisionWrite)


def test_a_trainers_end_comes_after_its_last_report_though_that_could_not_be_stored_at_first() -> None:
    backlog = Backlog(1000, 0.0)
    backlog.report(report(1, 1), 0.0)
    backlog.add(decided(1, 1, ends=True))
    for _ in range(2):
        write = backlog.take(0.0)
        assert isinstance(write, ReportsWrite)
        backlog.failed(write)
    write = backlog.take(0.0)
    assert isinstance(write, ReportsWrite)
    backlog.stored(write.reports)
    assert isinstance(backlog.take(0.0), DecisionWrite)


def test_reports_and_pauses_that_wait_are_counted() -> None:
    backlog = Backlog(1000, 0.0)
    backlog.report(report(1, 1), 0.0)
    backlog.pause(pause(1))
    assert backlog.waiting() == 2


def test_a_trainer_that_reports_all_the_time_gets_a_row_now_and_then() -> None:
    backlog = Backlog(1000, 5.0)
    rows: list[float] = []
    for second in range(20):
        now = float(second)
        backlog.report(report(1, second), now - 2)
        write = backlog.take(now)
        assert isinstance(write, ReportsWrite)
        rows += [now] * len(write.rows)
        backlog.stored(write.reports)
    assert rows == [0.0, 5.0, 10.0, 15.0]


def study(id_: int, status: str, *, ahead: bool = False) -> StudyWrite:
    stored = StoredStudy(
        id=id_, user="u", name="s", text="", file="", base="", status=status, reason="", submitted_at=0.0,
        ended_at=None, brief={},
    )  # fmt: skip
    return StudyWrite(since=0.0, study=stored, trials=(), ahead=ahead)


def test_what_users_wait_for_goes_in_turn_with_all_else_and_a_study_in_the_order_of_its_changes() -> None:
    backlog = Backlog(1000, 0.0)
    others = [decided(number, 1) for number in range(1, 4)]
    specs = [SubmissionWrite(since=0.0, spec=SPEC, time=0.0, ahead=True) for _ in range(3)]
    new, later = study(7, "new", ahead=True), study(7, "later")
    for write in (*others, *specs, new, later):
        backlog.add(write)
    wanted = [specs[0], others[0], specs[1], others[1], specs[2], others[2], new, later]
    assert backlog.waiting() == len(wanted) and backlog.due_at() == 0.0
    assert [backlog.take(0.0) for _ in wanted] == wanted
    assert backlog.waiting() == 0 and backlog.oldest() is None
