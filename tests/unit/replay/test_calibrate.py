"""Histories as replays: a hand-made store, for which the figures can be worked out by hand."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bftrainer.cli.replay_command import command as replay
from bftrainer.errors import BftrainerError, StoreError
from bftrainer.model.actions import Action, Ended, Regroup, StartWorker, StopWorker
from bftrainer.model.events import (
    Drain,
    Event,
    Measured,
    NodesChanged,
    TrainerCancelled,
    TrainerEnded,
    TrainerSubmitted,
    WorkersReady,
)
from bftrainer.model.machine import NodeInfo
from bftrainer.model.reports import Pause, Progress
from bftrainer.model.trainer import Cost, TrainerSpec, TrainerStatus
from bftrainer.replay.calibrate import fit, history
from bftrainer.replay.calibrate.compare import compare
from bftrainer.replay.calibrate.history import HistoryError
from bftrainer.replay.calibrate.memberships import PastMembership, memberships, speeds
from bftrainer.settings.values import Settings
from bftrainer.store.sql import SqlStore

SPEC = TrainerSpec(name="t", command=("x",), n_min=1, n_max=2, samples=10**6, curve=((1, 1.0), (2, 2.0)))


class Journal:
    """A state directory whose database is written line by line; every trainer trains 10 samples a step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = SqlStore(folder / history.DATABASE)

    def run(self, begin: float, **settings: Any) -> None:
        runs = json.loads(self.store.get("runs") or "[]")
        made = Settings(**settings).model_dump(mode="json")
        self.store.put("runs", json.dumps([*runs, {"begin": begin, "settings": made}]))

    def submit(self, time: float, spec: TrainerSpec = SPEC) -> int:
        return self.store.submit(spec, time)

    def event(self, event: Event, *actions: Action, ended: Ended | None = None) -> None:
        self.store.record(event, [], None, actions, ended, frozenset())

    def nodes(self, time: float, *actions: Action, joined: str = "", left: str = "") -> None:
        self.event(NodesChanged(time=time, joined=frozenset(joined), left=frozenset(left)), *actions)

    def ready(self, time: float, generation: int, nodes: str, *actions: Action, trainer: int = 1) -> None:
        self.event(
            WorkersReady(time=time, trainer=trainer, generation=generation, nodes=frozenset(nodes)), *actions
        )

    def joined(self, time: float, generation: int, nodes: str, kind: str, step: int, **more: Any) -> None:
        row = {"trainer": 1, "pause_s": 0.0, "lost_steps": 0, **more}
        for node in nodes:
            self.store.pause(
                Pause(
                    time=time, generation=generation, node=node, kind=kind, size=len(nodes), step=step, **row
                )
            )

    def report(
        self, time: float, generation: int, size: int, step: int, samples: int, trainer: int = 1
    ) -> None:
        self.store.progress(
            [
                Progress(
                    time=time,
                    trainer=trainer,
                    generation=generation,
                    size=size,
                    step=step,
                    samples=samples,
                    epoch=0,
                    rate=None,
                    metrics={},
                )
            ]
        )

    def fitted(self) -> list[fit.Fitted]:
        return list(history.load(self.folder).fitted)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path)
    yield made
    made.store.close()


def start(generation: int, node: str, trainer: int = 1) -> StartWorker:
    return StartWorker(trainer=trainer, generation=generation, node=node)


def stop(generation: int, node: str, trainer: int = 1) -> StopWorker:
    return StopWorker(trainer=trainer, generation=generation, node=node)


def regroup(generation: int, members: str, trainer: int = 1) -> Regroup:
    return Regroup(trainer=trainer, generation=generation, members=tuple(members))


def written(journal: Journal) -> None:
    """Two nodes, then one, then none, then one: 200 samples/s on two, 150 on one."""
    journal.run(-1.0)
    journal.nodes(0.0, joined="ab")
    journal.submit(0.0)
    journal.event(TrainerSubmitted(time=0.0, trainer=1, spec=SPEC), start(1, "a"), start(1, "b"))
    journal.ready(3.0, 1, "a")
    journal.ready(4.0, 1, "b", regroup(2, "ab"))
    journal.joined(4.5, 2, "ab", "restart", 0)
    journal.report(6.5, 2, 2, 20, 400)
    journal.report(10.5, 2, 2, 60, 1200)
    journal.nodes(12.0, regroup(3, "a"), left="b")
    journal.joined(12.6, 3, "a", "loss", 75, pause_s=0.6)
    journal.report(14.6, 3, 1, 105, 1800)
    journal.report(16.6, 3, 1, 135, 2100)
    journal.nodes(16.6, left="a")
    journal.nodes(20.0, start(4, "a"), joined="a")
    journal.ready(23.0, 4, "a", regroup(5, "a"))
    journal.joined(23.5, 5, "a", "restart", 105, lost_steps=30)
    journal.report(27.5, 5, 1, 165, 2400)
    journal.report(29.5, 5, 1, 195, 2700)
    journal.event(Drain(time=30.0))


def test_what_a_trainer_is_like(journal: Journal) -> None:
    written(journal)
    (fitted,) = journal.fitted()
    assert dict(fitted.curve) == pytest.approx({1: 150.0, 2: 200.0})
    assert fitted.stall_up_s == pytest.approx(0.5)  # from the order to the group, both times
    assert fitted.stall_down_s == pytest.approx(0.6)
    assert fitted.starts == ((0.0, "a", 3.0), (0.0, "b", 4.0), (20.0, "a", 3.0))
    assert fitted.processed == pytest.approx(2700 + 30 * 10)


def test_the_replay_works_out_what_follows(journal: Journal) -> None:
    written(journal)
    record = history.load(journal.folder)
    assert (record.begin, record.end) == (0.0, 30.0)
    comparison = compare(record)
    (run,) = comparison.result.trainers.values()
    trained = (12.0 - 4.5) * 200 + (16.6 - 12.6) * 150 + (30.0 - 23.5) * 150
    (line,) = comparison.trainers
    assert line.predicted == pytest.approx(trained)
    # rank 0 has been one since 4.0: its last checkpoint before it is lost at 16.6 is of 14.0
    assert run.repeated == pytest.approx((16.6 - 14.0) / (16.6 - 12.0) * 600)
    assert line.difference == pytest.approx(trained / 3000 - 1)
    assert (comparison.total.recorded, comparison.total.predicted) == (line.recorded, line.predicted)


def test_rank_0_is_followed_by_who_writes_a_checkpoint_at_once(journal: Journal) -> None:
    written(journal)
    record = history.load(journal.folder)
    changes = [
        replace(c, left=frozenset("b" if "a" in c.left else "a"), joined=frozenset("ab") & c.joined)
        if isinstance(c, NodesChanged) and c.left and c.time < 20.0
        else c
        for c in record.changes
    ]
    comparison = compare(replace(record, changes=tuple(changes)))
    (run,) = comparison.result.trainers.values()
    # b follows a at 12.0 and has written none since when it is lost at 16.6
    assert run.repeated == pytest.approx(600)


def test_speeds_are_of_all_samples_over_all_time(journal: Journal) -> None:
    slow, fast = (
        PastMembership(nodes=1, seconds=9.0, steps=90),
        PastMembership(nodes=1, seconds=1.0, steps=50),
    )
    assert speeds([slow, fast, PastMembership(nodes=2, seconds=2.0, steps=10)], 10.0) == (
        (1, 140.0),
        (2, 100.0),
    )
    assert (
        speeds(
            [PastMembership(nodes=1, seconds=0.0, steps=3), PastMembership(nodes=2, seconds=1.0, steps=0)],
            1.0,
        )
        == ()
    )


def test_words_about_an_earlier_membership_do_not_count(journal: Journal) -> None:
    written(journal)
    before = journal.fitted()
    journal.report(12.7, 3, 2, 70, 1400)  # metrics with the figures of before
    journal.report(29.7, 5, 1, 104, 1790)  # the same, and as many nodes
    (after,) = journal.fitted()
    assert replace(after, processed=0.0) == replace(before[0], processed=0.0)


def test_a_membership_lasts_until_its_last_node_is_lost_whatever_was_kept_of_it(journal: Journal) -> None:
    journal.run(-1.0)
    journal.nodes(0.0, joined="a")
    journal.submit(0.0)
    journal.event(TrainerSubmitted(time=0.0, trainer=1, spec=SPEC), start(1, "a"))
    journal.ready(2.0, 1, "a", regroup(2, "a"))
    journal.joined(2.0, 2, "a", "restart", 0)
    journal.report(3.0, 2, 1, 30, 300)  # fast at first
    journal.nodes(12.0, left="a")  # at step 100: 40 steps had been saved
    journal.nodes(20.0, start(3, "a"), joined="a")
    journal.ready(22.0, 3, "a", regroup(4, "a"))
    journal.joined(22.0, 4, "a", "restart", 40, lost_steps=60)
    journal.event(Drain(time=32.0))
    journal.report(35.0, 4, 0, 60, 600)  # said when it had saved, 3 s after its last step
    (fitted,) = journal.fitted()
    assert dict(fitted.curve) == pytest.approx({1: (1000 + 200) / (10 + 10)})
    assert fitted.processed == pytest.approx(600 + 600)


def test_workers_that_were_called_off_would_have_taken_longer(journal: Journal) -> None:
    journal.run(-1.0)
    journal.submit(0.0)
    journal.nodes(0.0, start(1, "a"), joined="a")
    journal.ready(3.0, 1, "a")
    journal.nodes(10.0, start(2, "b"), joined="b")
    journal.ready(17.0, 2, "b")
    journal.nodes(20.0, start(3, "c"), start(3, "d"), joined="cd")
    journal.nodes(22.0, left="c")
    journal.nodes(25.0, stop(4, "d"))  # after 5 s: of 3 s and 7 s, only 7 s are longer
    journal.nodes(30.0, start(5, "e"), joined="e")
    journal.nodes(38.0, left="e")  # after 8 s: no start took longer
    journal.nodes(40.0, start(6, "f"), joined="f")
    journal.event(Drain(time=41.0))  # after 1 s
    (fitted,) = journal.fitted()
    assert [(start[1], start[2]) for start in fitted.starts] == [
        *(("a", 3.0), ("b", 7.0), ("c", 5.0), ("d", 7.0), ("e", 13.0), ("f", 5.0))
    ]


def test_a_worker_that_was_replaced_ends_no_start_of_its_successor(journal: Journal) -> None:
    journal.run(-1.0)
    journal.submit(0.0)
    journal.nodes(0.0, start(1, "a"), joined="a")
    journal.nodes(4.0, start(2, "a"))
    journal.ready(5.0, 1, "a")  # the first one, late
    journal.ready(9.0, 2, "a")
    journal.event(Drain(time=10.0))
    (fitted,) = journal.fitted()
    assert [(start[1], start[2]) for start in fitted.starts] == [("a", 5.0)]


def test_no_end_is_known_of_a_membership_of_which_not_all_members_are() -> None:
    row = {"time": 0.0, "generation": 2, "size": 2, "step": 0, "kind": "restart", "node": "a"}
    said = {"time": 9.0, "generation": 2, "size": 0, "step": 40}
    losses = [(10.0, frozenset({"a"}))]
    (known,) = memberships([row, {**row, "node": "b"}], [said], [*losses, (12.0, frozenset({"b"}))])
    assert (known.seconds, known.steps) == (12.0, 40)
    (unknown,) = memberships([row], [said], losses)
    assert (unknown.seconds, unknown.steps) == (0.0, 0)


def test_workers_of_one_batch_are_ready_one_by_one(journal: Journal) -> None:
    journal.run(-1.0)
    journal.submit(0.0)
    journal.nodes(0.0, start(1, "a"), start(1, "b"), joined="ab")
    journal.ready(3.0, 1, "a")
    journal.nodes(10.0, regroup(2, "a"), left="b")  # b never was: a has waited for it until now
    journal.joined(10.0, 2, "a", "restart", 0)
    journal.report(15.0, 2, 1, 50, 500)
    journal.event(Drain(time=15.0))
    comparison = compare(history.load(journal.folder))
    assert comparison.total.predicted == pytest.approx(500)


def test_what_is_not_known_of_one_trainer_is_taken_from_the_others(journal: Journal) -> None:
    written(journal)
    journal.submit(1.0, replace(SPEC, name="never ran"))
    ran, other = journal.fitted()
    assert other == replace(ran, curve=(), processed=0.0)
    assert compare(history.load(journal.folder)).trainers[1].difference is None


def test_a_trainer_holds_its_nodes_until_it_has_exited(journal: Journal) -> None:
    journal.run(-1.0)
    journal.nodes(0.0, joined="a")
    journal.submit(0.0, replace(SPEC, samples=1000))
    journal.event(TrainerSubmitted(time=0.0, trainer=1, spec=SPEC), start(1, "a"))
    journal.ready(2.0, 1, "a", regroup(2, "a"))
    journal.joined(2.0, 2, "a", "restart", 0)
    journal.report(12.0, 2, 1, 100, 1000)
    ended = Ended(trainer=1, status=TrainerStatus.COMPLETED, reason="")
    journal.event(TrainerEnded(time=14.0, trainer=1, generation=2), ended=ended)
    journal.nodes(20.0, left="a")
    journal.event(Drain(time=21.0))
    record = history.load(journal.folder)
    assert record.fitted[0].exit_s == pytest.approx(2.0)
    comparison = compare(record)
    assert comparison.total.difference == 0.0
    assert comparison.result.trainers[1].ended_at == pytest.approx(14.0)
    assert comparison.result.tally.idle_node_s == pytest.approx(6.0)
    assert compare(replace(record, end=13.0)).total.predicted == pytest.approx(1000)


def test_ends_that_cannot_be_foreseen_are_taken_over(journal: Journal) -> None:
    written(journal)
    journal.submit(5.0, replace(SPEC, name="cancelled"))
    journal.submit(6.0, replace(SPEC, name="endless", samples=None))
    for id_, status in ((2, TrainerStatus.CANCELLED), (3, TrainerStatus.COMPLETED)):
        journal.event(
            TrainerCancelled(time=10.0 + id_, trainer=id_), ended=Ended(trainer=id_, status=status, reason="")
        )
    record = history.load(journal.folder)
    assert [c for c in record.changes if isinstance(c, TrainerCancelled)] == [
        TrainerCancelled(time=12.0, trainer=2),
        TrainerCancelled(time=13.0, trainer=3),
    ]
    runs = compare(record).result.trainers
    assert (runs[2].ended_at, runs[3].ended_at) == (12.0, 13.0)
    assert runs[2].samples < 10**6


def test_a_stopped_daemon_has_no_nodes_until_the_next_begins(journal: Journal) -> None:
    written(journal)
    journal.nodes(30.5, joined="b")  # still heard while it stopped
    journal.run(40.0, objective="efficiency")
    journal.nodes(41.0, joined="a")
    journal.nodes(50.0, left="a")
    record = history.load(journal.folder)
    pool = [(c.time, set(c.left), set(c.joined)) for c in record.changes if isinstance(c, NodesChanged)]
    assert pool[-3:] == [(30.0, {"a"}, set()), (41.0, set(), {"a"}), (50.0, {"a"}, set())]
    assert record.end == 50.0
    assert record.settings == Settings(objective="efficiency").engine
    runs = compare(replace(record, changes=record.changes[:-2])).result.trainers
    assert runs[1].repeated == pytest.approx((16.6 - 14.0) / (16.6 - 12.0) * 600)  # none lost by the stop


def test_what_was_known_of_nodes_is_taken_over(journal: Journal) -> None:
    journal.run(-1.0)
    journal.submit(0.0)
    known = {"a": NodeInfo(node_class="fat", until=99.0), "b": NodeInfo(group="rack")}
    journal.event(NodesChanged(time=0.0, joined=frozenset("ab"), reason="poll", facts=known))
    assert history.load(journal.folder).changes == (
        NodesChanged(time=0.0, joined=frozenset("ab"), reason="poll", facts=known),
    )


def test_the_engine_is_told_what_it_was_told_then(journal: Journal) -> None:
    journal.run(-1.0)
    journal.submit(0.0, replace(SPEC, curve=None))
    journal.nodes(0.0, start(1, "a"), start(1, "b"), joined="ab")
    journal.ready(1.0, 1, "a")
    journal.ready(1.0, 1, "b", regroup(2, "ab"))
    journal.joined(1.0, 2, "ab", "restart", 0)
    journal.report(3.0, 2, 2, 10, 200)
    journal.event(Measured(time=4.0, trainer=1, generation=2, point=(1, 500.0)))
    journal.event(Measured(time=5.0, trainer=1, generation=2, point=(2, 100.0), down=Cost(stall_s=0.1)))
    journal.event(Drain(time=9.0))
    record = history.load(journal.folder)
    assert record.changes[2] == Measured(
        time=5.0, trainer=1, generation=0, point=(2, 100.0), up=None, down=Cost(stall_s=0.1)
    )
    (run,) = compare(record).result.trainers.values()
    assert run.members == ("a",)  # two are slower than one: it believes that, and gives one back


def test_a_record_with_a_setting_that_is_not_known_is_refused(journal: Journal) -> None:
    written(journal)
    (run,) = json.loads(journal.store.get("runs") or "")
    changed = {**run, "settings": {**run["settings"], "max_of_another_version": 256}}
    journal.store.put("runs", json.dumps([changed]))
    with pytest.raises(HistoryError, match="max_of_another_version"):
        history.load(journal.folder)


def test_records_are_told_from_other_logs(journal: Journal, tmp_path: Path) -> None:
    assert history.is_history(journal.folder)
    assert history.is_history(journal.folder / history.DATABASE)
    (tmp_path / "empty").mkdir()
    (tmp_path / "log.csv").write_text("idle_start,idle_end,node\n")
    for name in ("empty", "log.csv", "none"):
        assert not history.is_history(tmp_path / name)


def test_what_cannot_be_replayed_is_refused_with_its_name(journal: Journal, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"bftrainer\.db: no run of a daemon with trainers"):
        history.load(journal.folder)
    with pytest.raises(HistoryError, match=r"none: there is no such file. Give a daemon's --state-dir"):
        history.load(tmp_path / "none")
    (tmp_path / "text").write_text("idle_start,idle_end,node\n")
    with pytest.raises(StoreError, match="text"):
        history.load(tmp_path / "text")
    written(journal)
    journal.store.put("runs", json.dumps([{"begin": 0.0, "settings": {"t_fwd_s": -1}}]))
    with pytest.raises(HistoryError, match="t_fwd_s"):
        history.load(journal.folder)


def test_the_command_shows_what_is_predicted_beside_what_was(journal: Journal) -> None:
    written(journal)
    shown = CliRunner().invoke(replay, [str(journal.folder)])
    assert shown.exit_code == 0, shown.output
    assert shown.output.splitlines()[1].split() == ["t", "3,000", "3,075", "+2.5%"]
    told = CliRunner().invoke(replay, [str(journal.folder / history.DATABASE), "--json"])
    (trainer,) = json.loads(told.output)["trainers"]
    assert trainer | {"name": "all trainers"} == json.loads(told.output)["total"]
    assert trainer == {
        "name": "t",
        "samples_recorded": pytest.approx(3000),
        "samples_predicted": pytest.approx(3075),
        "difference_percent": pytest.approx(2.5),
    }


def test_a_record_has_its_own_trainers_and_a_log_has_none(journal: Journal, tmp_path: Path) -> None:
    written(journal)
    refused = CliRunner().invoke(replay, [str(journal.folder), "--t-fwd", "3"])
    assert refused.exit_code == 2
    assert "--t-fwd: not with a LOG" in refused.output
    (tmp_path / "log.csv").write_text("idle_start,idle_end,node\n1,2,a\n")
    assert "a replay needs --workload" in CliRunner().invoke(replay, [str(tmp_path / "log.csv")]).output
    (tmp_path / "other").mkdir()
    assert "neither a daemon's" in CliRunner().invoke(replay, [str(tmp_path / "other")]).output


def test_what_is_left_after_old_events_were_deleted_is_replayed(journal: Journal) -> None:
    written(journal)
    late = journal.submit(18.0, replace(SPEC, name="late"))
    journal.event(TrainerSubmitted(time=18.0, trainer=late, spec=SPEC))
    journal.store.prune(11.0, 1000)
    assert journal.store.rows("events", None)[0]["time"] == 12.0
    record = history.load(journal.folder)
    assert (record.begin, record.end) == (12.0, 30.0)
    first, change, *_ = record.changes
    assert isinstance(first, NodesChanged) and isinstance(change, NodesChanged)
    assert (first.time, first.joined) == (12.0, frozenset("ab")), "what leaves before it joins was there"
    assert change.left == frozenset("b")
    # 1,800 of 1,000,000 samples had been reported when the first report that is left was written
    assert [s.spec.samples for s in record.submissions] == [10**6 - 1800, 10**6]
    assert record.fitted[0].processed == pytest.approx(2700 - 1800 + 30 * 10)
    assert compare(record).trainers[0].recorded == record.fitted[0].processed


def test_trainers_that_ended_before_the_first_event_that_is_left_are_left_out(journal: Journal) -> None:
    written(journal)
    journal.event(
        TrainerEnded(time=31.0, trainer=1, generation=5),
        ended=Ended(trainer=1, status=TrainerStatus.COMPLETED, reason=""),
    )
    second = journal.submit(40.0)
    journal.event(TrainerSubmitted(time=40.0, trainer=second, spec=SPEC))
    journal.nodes(41.0, joined="a")
    journal.store.prune(35.0, 1000)
    record = history.load(journal.folder)
    assert [s.time for s in record.submissions] == [40.0]
    assert record.begin == 40.0


def recorded(journal: Journal) -> Path:
    """A record of one trainer on two nodes, and its database."""
    journal.run(0.0)
    journal.submit(1.0)
    journal.nodes(2.0, start(1, "a"), joined="a")
    journal.ready(3.0, 1, "a")
    journal.joined(3.0, 2, "a", "start", 0)
    journal.report(10.0, 2, 1, 5, 50)
    journal.event(Measured(time=21.0, trainer=1, generation=4, point=(2, 1.9), up=Cost(stall_s=1.0)))
    journal.event(Drain(time=40.0))
    return journal.folder / history.DATABASE


DAMAGE: list[tuple[str, str, object]] = [
    *((table, "time", odd) for table in ("events", "reports", "pauses") for odd in ("x", 1e300, b"\xff")),
    *(("trainers", "submitted_at", odd) for odd in ("x", float("inf"), 100, b"\xff\0")),
    *(("events", "data", odd) for odd in ("{}", "", '{"left": 1}', b"\xff", "[[")),
    *(("memory", "value", odd) for odd in ("1", "[null]", "[{}]", "[[[[", '[{"begin": "x"}]')),
    ("events", "time", -1),
]


@pytest.mark.parametrize(("table", "column", "odd"), DAMAGE)
def test_a_damaged_record_is_replayed_or_refused_in_one_line(
    journal: Journal, table: str, column: str, odd: object
) -> None:
    database = recorded(journal)
    with closing(sqlite3.connect(database)) as altered, altered:
        altered.execute(f"UPDATE {table} SET {column} = ?", (odd,))  # noqa: S608
    done = CliRunner().invoke(replay, [str(database)])
    error = done.exception
    assert error is None or isinstance(error, BftrainerError), (error, done.exc_info)
    assert error is None or (len(str(error).splitlines()) == 1 and len(str(error)) < 500)


def test_a_trainer_that_came_after_the_end_has_no_samples(journal: Journal) -> None:
    recorded(journal)
    journal.submit(100.0, replace(SPEC, name="late"))
    assert [line.predicted for line in compare(history.load(journal.folder)).trainers][1:] == [0.0]
