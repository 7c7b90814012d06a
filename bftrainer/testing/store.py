"""The contract of `ports.Store`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from bftrainer.errors import NameTakenError, StoreError, UnstorableError
from bftrainer.model.actions import Action, Ended, Regroup, StartWorker
from bftrainer.model.events import NodesChanged, TrainerCancelled
from bftrainer.model.main_jobs import Affected, MainStart
from bftrainer.model.problem import Plan, PlanStatus
from bftrainer.model.reports import Pause, PauseKind, Progress
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.studies import StoredStudy, StoredTrial
from bftrainer.model.trainer import (
    Cost,
    Observations,
    Observed,
    RescaleCosts,
    Trainer,
    TrainerSpec,
    TrainerStatus,
)
from bftrainer.ports import Store

SPEC = TrainerSpec(
    name="a",
    command=("python", "a.py", "--word", "two words; $(none)"),
    n_min=1,
    n_max=4,
    sizes=AllowedSizes(listed=(1, 2, 4)),
    samples=1000,
    curve=((1, 10.0), (4, 30.0)),
    costs=RescaleCosts(up=Cost(stall_s=0.5, init_s=3.0), down=Cost(stall_s=0.25)),
    env=(("KEY", "välue"),),
    curves=(("fat", ((1, 20.0), (2, 35.0))),),
    batch=(("global", 64),),
)
PROGRESS = Progress(
    time=1.0,
    trainer=1,
    generation=1,
    size=2,
    step=3,
    samples=96,
    epoch=0,
    rate=None,
    metrics={"loss": 0.5},
    of=960,
    warned=("a warning",),
    saved=2,
)
PAUSE = Pause(
    time=3.0,
    trainer=1,
    generation=2,
    node="n1",
    kind=PauseKind.JOIN,
    size=3,
    step=7,
    pause_s=0.05,
    lost_steps=0,
)
START = MainStart(
    time=5.0,
    job="17",
    nodes=2,
    cores=0,
    wait_s=0.75,
    queued_s=3.0,
    affected=Affected.CLAIMED,
    given=2,
    seen_s=0.25,
    vacate_s=0.125,
    requeued=1,
)


def end(store: Store, trainer: int, time: float) -> None:
    """Have a trainer complete at `time`."""
    ended = Ended(trainer=trainer, status=TrainerStatus.COMPLETED, reason="done")
    store.record(NodesChanged(time=time), [], None, [], ended, frozenset())


class StudyStoreContract:
    """The contract of every store for studies. `reopen` is as in `StoreContract`."""

    def test_studies_and_their_trials_are_kept_as_they_are_now(self, reopen: Callable[[], Store]) -> None:
        store = reopen()
        study = StoredStudy(
            id=1,
            user="ann",
            name="s",
            text="name: s",
            file="s.yaml",
            base="/home",
            status="running",
            reason="",
            submitted_at=1.0,
            ended_at=None,
            brief={"trials": 3},
        )
        first = StoredTrial(number=0, data={"status": "running"})
        store.studies.keep(study, [first, StoredTrial(number=1, data={})])
        store.studies.keep(replace(study, id=2, user="bob"), [])
        again = StoredTrial(number=0, data={"status": "completed"})
        store.studies.keep(study, [again])
        store = reopen()
        assert store.studies.last_id() == 2
        assert store.studies.trials(1) == [again, StoredTrial(number=1, data={})]
        assert store.studies.trials(2) == []
        assert {own.id for own in store.studies.unfinished()} == {1, 2}
        assert store.studies.ended(9) == []
        over = replace(study, status="completed", ended_at=5.0)
        store.studies.keep(over, [])
        assert store.studies.ended(9) == store.studies.ended(9, "ann") == [over]
        assert store.studies.ended(9, "bob") == []
        assert store.studies.find("s", "ann") == store.studies.find("1") == over
        assert store.studies.find("s", "cyn") is None
        assert store.studies.find("1", "bob") is None


class StoreContract(StudyStoreContract):
    """Needs a fixture `reopen`: a function that returns the store; called again, it closes and reopens it."""

    def test_a_trainer_survives_reopening(self, reopen: Callable[[], Store]) -> None:
        id_ = reopen().submit(SPEC, 5.0)
        (found,) = reopen().trainers()
        assert (found.id, found.spec, found.status) == (id_, SPEC, TrainerStatus.WAITING)
        assert found.engine == Trainer(id=id_, spec=SPEC, submitted_at=5.0)

    def test_names_are_unique_among_the_unfinished(self, reopen: Callable[[], Store]) -> None:
        store = reopen()
        first = store.submit(SPEC, 0.0)
        with pytest.raises(NameTakenError, match=rf"bftrainer cancel {first}\b"):
            store.submit(SPEC, 1.0)
        assert len(store.trainers()) == 1
        end(store, first, 2.0)
        assert store.submit(SPEC, 3.0) > first
        assert store.trainers()[0].status is TrainerStatus.COMPLETED
        assert store.trainers()[0].ended_at == 2.0

    def test_users_do_not_stand_in_each_others_way(self, reopen: Callable[[], Store]) -> None:
        store = reopen()
        own, other = (store.submit(replace(SPEC, user=user), 0.0) for user in ("alice", "bob"))
        with pytest.raises(NameTakenError):
            store.submit(replace(SPEC, user="bob"), 1.0)
        assert [t.spec.user for t in store.trainers()] == ["alice", "bob"]
        plan = Plan(
            allocator="knapsack",
            status=PlanStatus.OPTIMAL,
            counts={own: 1, other: 1},
            objective=1.0,
            bound=1.0,
            allocation={own: frozenset({"n1"}), other: frozenset({"n2"})},
        )
        actions = [
            StartWorker(trainer=own, generation=1, node="n1"),
            StartWorker(trainer=other, generation=1, node="n2"),
        ]
        store.record(NodesChanged(time=2.0), [], plan, actions, None, frozenset({"n1", "n2"}))
        for id_ in (own, other):
            store.record(TrainerCancelled(time=3.0, trainer=id_), [], None, [], None, frozenset())
        change, end = store.rows("events", 10, user="bob")
        assert change["plan"]["allocation"] == {str(other): ["n2"]}
        assert [a["trainer"] for a in change["actions"]] == [end["trainer"]] == [other]
        assert store.rows("events", 10, own, "bob") == []
        assert len(store.rows("events", 1, user="bob")) == 1
        assert len(store.rows("events", 10)) == 3

    def test_a_decision_is_written_whole(self, reopen: Callable[[], Store]) -> None:
        store = reopen()
        id_ = store.submit(SPEC, 0.0)
        trainer = Trainer(
            id=id_,
            spec=SPEC,
            submitted_at=0.0,
            generation=7,
            published=6,
            nodes=frozenset({"n1", "n2", "n3"}),
            members=("n2", "n1"),
            started={"n1": 2, "n2": 1, "n3": 7},
            warm=frozenset({"n3"}),
            observed=Observations(
                speeds=((None, 1, Observed(20, (9.5, 9.0))), ("fat", 2, Observed(1, (17.0,)))),
                up_stall_s=Observed(1, (0.5,)),
                up_init_s=Observed(1, (3.0,)),
            ),
            failures=1,
            progress=12.0,
        )
        plan = Plan(
            allocator="knapsack",
            status=PlanStatus.OPTIMAL,
            counts={id_: 3},
            objective=1.5,
            bound=1.5,
            fallback="no licence",
            allocation={id_: trainer.nodes},
        )
        actions: list[Action] = [
            StartWorker(trainer=id_, generation=7, node="n3"),
            Regroup(trainer=id_, generation=6, members=("n2", "n1")),
        ]
        event = NodesChanged(time=1.0, joined=frozenset({"n3"}))
        ids = store.record(event, [trainer], plan, actions, None, frozenset({"n1", "n2", "n3"}))
        store.performed(ids[:1], 2.0)
        store = reopen()
        assert store.trainers()[0].engine == trainer
        assert store.trainers()[0].status is TrainerStatus.RUNNING
        (row,) = store.rows("events", 10)
        assert (row["kind"], row["data"]["joined"], row["pool_size"]) == ("NodesChanged", ["n3"], 3)
        assert row["plan"]["proven"] is True
        assert row["plan"]["fallback"] == "no licence"
        assert row["plan"]["allocation"] == {str(id_): ["n1", "n2", "n3"]}
        assert [a["performed_at"] for a in row["actions"]] == [2.0, None]

    def test_a_plan_without_a_bound_has_none(self, reopen: Callable[[], Store]) -> None:
        store = reopen()
        plan = Plan(
            allocator="equal",
            status=PlanStatus.HEURISTIC,
            counts={},
            objective=1.0,
            bound=float("inf"),
            allocation={},
        )
        store.record(NodesChanged(time=0.0), [], plan, [], None, frozenset())
        (event,) = store.rows("events", 1)
        assert (event["plan"]["bound"], event["plan"]["proven"]) == (None, plan.proven)

    def test_progress_and_pauses(self, reopen: Callable[[], Store]) -> None:
        store = reopen()
        id_ = store.submit(SPEC, 0.0)
        first = replace(PROGRESS, trainer=id_)
        store.progress([first, replace(first, time=2.0, step=6, samples=192, rate=96.0, epoch=2)])
        store.pause(replace(PAUSE, trainer=id_))
        store = reopen()
        (found,) = store.trainers()
        assert (found.samples, found.rate, found.step, found.epoch) == (192, 96.0, 6, 2)
        assert (found.metrics, found.of, found.warned) == (PROGRESS.metrics, 960, PROGRESS.warned)
        assert found.saved == found.summary.saved == store.unfinished_summaries()[0].saved == 2
        end(store, id_, 4.0)
        (over,) = store.trainers()
        assert (over.samples, over.rate) == (192, None), "nothing trains any more"
        assert [row["step"] for row in store.rows("reports", 10, id_)] == [3, 6]
        assert store.rows("pauses", 10, id_)[0]["pause_s"] == 0.05
        assert store.rows("pauses", 10, id_ + 1) == []

    def test_reports_become_rows_only_where_they_are_to(self, reopen: Callable[[], Store]) -> None:
        store = reopen()
        first, second = (store.submit(replace(SPEC, name=name), 0.0) for name in "ab")
        store.progress([replace(PROGRESS, trainer=first), replace(PROGRESS, trainer=second)], {second})
        assert [t.step for t in store.trainers()] == [PROGRESS.step] * 2
        assert [row["trainer"] for row in store.rows("reports", None)] == [second]

    def test_states_are_stored_without_the_events_that_led_to_them(self, reopen: Callable[[], Store]) -> None:
        store = reopen()
        goes_on, ends = (store.submit(replace(SPEC, name=name), 0.0) for name in "ab")
        now = Trainer(
            id=goes_on, spec=replace(SPEC, name="a"), submitted_at=0.0, generation=9, nodes=frozenset({"n1"})
        )
        store.catch_up([now], [(Ended(trainer=ends, status=TrainerStatus.FAILED, reason="exit 1"), 7.0)])
        store.catch_up([], [])
        first, second = store.trainers()
        assert (first.engine, first.status) == (now, now.status)
        assert (second.status, second.reason, second.ended_at) == (TrainerStatus.FAILED, "exit 1", 7.0)
        assert store.count_ended() == {TrainerStatus.FAILED: 1}
        assert store.rows("events", None) == []

    def test_lookups_find_what_the_whole_list_has(self, reopen: Callable[[], Store]) -> None:
        store = reopen()
        for number, (user, name) in enumerate((u, n) for u in ("alice", "bob") for n in ("a", "b", "a")):
            id_ = store.submit(replace(SPEC, user=user, name=name), float(number))
            if number % 3 != 1:
                end(store, id_, 10.0 - number)  # the first of all ends last
        every = store.trainers()
        assert [store.trainer(t.id) for t in every] == every
        assert store.trainer(every[-1].id + 1) is None
        assert store.unfinished() == [t for t in every if t.ended_at is None]
        assert [t.id for t in store.unfinished()] == [2, 5]
        assert store.latest_named("a") == {"alice": 3, "bob": 6}
        assert store.latest_named("b") == {"alice": 2, "bob": 5}
        assert store.latest_named("c") == {}

    def test_summaries_are_of_the_unfinished_and_of_those_that_ended_last(
        self, reopen: Callable[[], Store]
    ) -> None:
        store = reopen()
        for number in range(8):
            spec = replace(SPEC, user=("alice", "bob")[number % 2], name=f"t{number}", samples=number or None)
            id_ = store.submit(spec, float(number))
            if number < 6:
                end(store, id_, 10.0 - number)
        assert [t.name for t in store.unfinished_summaries()] == ["t6", "t7"]
        assert [t.name for t in store.unfinished_summaries("bob")] == ["t7"]
        assert [t.name for t in store.ended_summaries(10)] == ["t0", "t1", "t2", "t3", "t4", "t5"]
        assert [t.name for t in store.ended_summaries(2, 1)] == ["t1", "t2"]
        assert [t.name for t in store.ended_summaries(2, 1, "alice")] == ["t2", "t4"]
        failed = Ended(trainer=8, status=TrainerStatus.FAILED, reason="exit 1")
        assert store.count_ended() == {TrainerStatus.COMPLETED: 6}
        assert store.count_ended("bob") == {TrainerStatus.COMPLETED: 3}
        assert store.count_ended("carol") == {}
        store.record(NodesChanged(time=20.0), [], None, [], failed, frozenset())
        store.record(NodesChanged(time=21.0), [], None, [], failed, frozenset())
        assert store.count_ended("bob") == {TrainerStatus.COMPLETED: 3, TrainerStatus.FAILED: 1}
        end(store, 7, 20.0)
        assert [t.id for t in store.ended_summaries(2)] == [8, 7], "of one moment: the last that came"
        assert [t.ended_at for t in store.ended_summaries(1)] == [20.0], "a trainer ends once"
        every = {t.id: t for t in store.trainers()}
        for summary in (*store.unfinished_summaries(), *store.ended_summaries(10)):
            assert summary == every[summary.id].summary

    def test_the_oldest_events_go_whole(self, reopen: Callable[[], Store]) -> None:
        store = reopen()
        id_ = store.submit(SPEC, 0.0)
        plan = Plan(
            allocator="knapsack",
            status=PlanStatus.OPTIMAL,
            counts={id_: 1},
            objective=1.0,
            bound=1.0,
            allocation={id_: frozenset({"n1"})},
        )
        start = StartWorker(trainer=id_, generation=1, node="n1")
        for time in range(10):
            store.record(NodesChanged(time=float(time)), [], plan, [start, start], None, frozenset())
            store.progress([replace(PROGRESS, time=float(time), trainer=id_)])
            store.pause(replace(PAUSE, time=float(time), trainer=id_))
            store.main_started([replace(START, time=float(time))], 100)
        assert store.prune(0.0, 100) == 0
        assert store.prune(5.0, 2) == 8, "two events, two reports, two pauses and two starts"
        assert [row["time"] for row in store.rows("events", None)] == [float(t) for t in range(2, 10)]
        assert [store.prune(5.0, 100) for _ in range(2)] == [12, 0]
        for what in ("events", "reports", "pauses"):
            assert [row["time"] for row in store.rows(what, None)] == [5.0, 6.0, 7.0, 8.0, 9.0]
        for event in store.rows("events", None):
            assert event["plan"]["allocation"] == {str(id_): ["n1"]}
            assert [action["event"] for action in event["actions"]] == [event["id"]] * 2
        store = reopen()
        assert store.prune(100.0, 100) == 20
        assert store.rows("events", None) == []
        assert [t.id for t in store.unfinished()] == [id_]

    def test_rows_are_the_last_ones_oldest_first(self, reopen: Callable[[], Store]) -> None:
        store = reopen()
        for time in range(5):
            store.record(NodesChanged(time=float(time)), [], None, [], None, frozenset())
        assert [row["time"] for row in store.rows("events", 2)] == [3.0, 4.0]
        assert [row["time"] for row in store.rows("events", None)][-2:] == [3.0, 4.0]

    def test_memory(self, reopen: Callable[[], Store]) -> None:
        store = reopen()
        assert store.get("key") is None
        store.put("key", "one")
        store.put("key", "two")
        assert reopen().get("key") == "two"

    @pytest.mark.parametrize("value", ["\ud800", 2**63], ids=["half a pair", "too large"])
    def test_what_cannot_be_stored_is_a_store_error_and_leaves_nothing(
        self, reopen: Callable[[], Store], value: object
    ) -> None:
        store = reopen()
        id_ = store.submit(SPEC, 0.0)
        ended = Ended(trainer=id_, status=TrainerStatus.COMPLETED, reason=value)  # type: ignore[arg-type]
        with pytest.raises(UnstorableError):
            store.record(NodesChanged(time=1.0), [], None, [], ended, frozenset())
        assert store.trainers()[0].ended_at is None and store.rows("events", None) == []
        with pytest.raises(StoreError):
            store.progress([replace(PROGRESS, step=2**63)])
        store.progress([PROGRESS])
        assert store.trainers()[0].step == PROGRESS.step
