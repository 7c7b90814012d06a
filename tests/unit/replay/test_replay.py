"""Replays: reading logs and workloads, figures worked out by hand, and where all node-time goes."""

from __future__ import annotations

import gzip
import json
import lzma
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.cli.replay_command import command
from bftrainer.model.events import NodesChanged
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import Cost, RescaleCosts, Scalability, TrainerSpec
from bftrainer.replay import scenario, workload
from bftrainer.replay.evaluate import evaluate
from bftrainer.replay.figures import figures_of
from bftrainer.replay.inputs import chosen
from bftrainer.replay.loop import replay
from bftrainer.replay.record import storage
from bftrainer.replay.tally import Result
from bftrainer.replay.trainers.simulated import SimulatedTrainer
from bftrainer.replay.workload import Changes, Submission, WorkloadError
from bftrainer.traces import intervals
from bftrainer.traces.intervals import Interval, LogError
from bftrainer.traces.synthetic import onoff

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces" / "summit-2021"
INF = float("inf")
ENDLESS = 10**12

# --- idle intervals ------------------------------------------------------------------------------


def test_the_first_nodes_are_first_by_name() -> None:
    log = [Interval(0.0, 1.0, name) for name in ("b", "c", "a", "b")]
    assert intervals.first_nodes(log, 2) == {"a", "b"}
    assert intervals.first_nodes(log, None) == {"a", "b", "c"}
    with pytest.raises(LogError, match="--nodes 4: the log has 3 nodes"):
        intervals.first_nodes(log, 4)


def changed(time: float, joined: str = "", left: str = "") -> NodesChanged:
    return NodesChanged(time=time, joined=frozenset(joined), left=frozenset(left), reason="log")


def test_changes_begin_with_what_is_idle_then_and_end_before_the_end() -> None:
    log = [
        Interval(0.0, 5.0, "a"),  # over before
        Interval(0.0, 10.0, "b"),  # over at the very beginning: not idle then
        Interval(5.0, 20.0, "c"),
        Interval(12.0, 20.0, "d"),
        Interval(20.0, INF, "e"),
        Interval(25.0, 30.0, "f"),
        Interval(30.0, 40.0, "g"),
        Interval(0.0, 40.0, "x"),
    ]
    assert intervals.changes(log, frozenset("abcdefg"), 10.0, 30.0) == [
        changed(10.0, "c"),
        changed(12.0, "d"),
        changed(20.0, "e", "cd"),
        changed(25.0, "f"),
    ]


def test_changes_begin_even_where_nothing_is_idle() -> None:
    assert intervals.changes([], frozenset("a"), 3.0, 9.0) == [changed(3.0)]


def test_an_interval_without_length_makes_no_node_idle() -> None:
    log = [Interval(2.0, 2.0, "a")]
    assert all(not change.joined for change in intervals.changes(log, frozenset("a"), 0.0, 9.0))


def generated(nodes: int, end: float, seed: int = 0) -> list[NodesChanged]:
    return list(takewhile(lambda change: change.time < end, onoff.changes(nodes, seed=seed)))


def test_generated_changes_are_the_same_for_the_same_seed_and_make_sense() -> None:
    found = generated(5, 300.0, seed=3)
    assert found == generated(5, 300.0, seed=3) != generated(5, 300.0, seed=4)
    assert [change.time for change in found] == sorted(change.time for change in found)
    assert any(change.time == 0.0 and "n01" in change.joined for change in found)
    pool = frozenset[str]()
    for change in found:
        assert change.left <= pool
        assert not change.joined & pool
        pool = (pool - change.left) | change.joined
    assert (
        frozenset().union(*(change.joined for change in found))
        == onoff.names(5)
        == {f"n{i:02}" for i in range(1, 6)}
    )


# --- workloads -----------------------------------------------------------------------------------

JOBS = "job,Tcup,Tcdw,Jmin,Jmax,Pmax,Tsub,model\n"
CURVES = "model,nodes,images_per_s\nm,0,0\nm,2,30.5\nm,1,20\nk,4,1\n"


def write(tmp_path: Path, jobs: str, curves: str = CURVES, name: str = "jobs.csv") -> tuple[Path, Path]:
    (tmp_path / name).write_text(jobs)
    (tmp_path / "curves.csv").write_text(curves)
    return tmp_path / name, tmp_path / "curves.csv"


def test_job_tables_are_read_by_arrival(tmp_path: Path) -> None:
    rows = "late,18.0,12.0,1.0,64.0,1000.0,2021-02-10 20:21:15,m\nearly,1,2,3,4,5,2021-02-10 20:21:14,k\n"
    early, late = workload.read(*write(tmp_path, JOBS + rows))
    assert early.time == datetime(2021, 2, 10, 20, 21, 14, tzinfo=UTC).timestamp()
    assert late.time == early.time + 1
    assert late.spec == TrainerSpec(
        name="late",
        command=(),
        n_min=1,
        n_max=64,
        samples=1000,
        curve=((1, 20.0), (2, 30.5)),
        costs=RescaleCosts(up=Cost(stall_s=18.0), down=Cost(stall_s=12.0)),
        scalability=Scalability.GIVEN,
    )
    assert early.spec.curve == ((4, 1.0),)


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        (
            "job,Tcup\n",
            "jobs.csv:1: no column Tcdw, Jmin, Jmax, Pmax, Tsub, model; a job table has job, Tcup",
        ),
        ("", "jobs.csv:1: no column job, Tcup"),
        (JOBS + "a,1,1,1,1\n", "jobs.csv:2: too few columns; a job table has"),
        (
            JOBS + "a,1,1,1,4,9,2021-02-10,m\na,1,1,1,4,9,2021-02-10,z\n",
            "jobs.csv:3: no curve for model 'z' (known: k, m)",
        ),
        (JOBS + "a,x,1,1,4,9,2021-02-10,m\n", "jobs.csv:2: could not convert string to float: 'x'"),
        (JOBS + "a,1,1,1,4,9,yesterday,m\n", "jobs.csv:2: Invalid isoformat string: 'yesterday'"),
        (JOBS + "a,1,1,5,4,9,2021-02-10,m\n", "jobs.csv:2: need 1 <= Jmin <= Jmax and Pmax >= 1"),
        (JOBS + "a,1,1,0,4,9,2021-02-10,m\n", "jobs.csv:2: need 1 <= Jmin <= Jmax and Pmax >= 1"),
        (JOBS + "a,1,1,1,4,0,2021-02-10,m\n", "jobs.csv:2: need 1 <= Jmin <= Jmax and Pmax >= 1"),
        (JOBS + "a,1,1,1,inf,9,2021-02-10,m\n", "jobs.csv:2: "),
        (JOBS + "a,-1,1,1,4,9,2021-02-10,m\n", "jobs.csv:2: "),
        (JOBS + "a,nan,1,1,4,9,2021-02-10,m\n", "jobs.csv:2: "),
    ],
)
def test_bad_job_tables_are_refused_with_file_and_line(tmp_path: Path, jobs: str, said: str) -> None:
    with pytest.raises(WorkloadError) as error:
        workload.read(*write(tmp_path, jobs))
    assert str(error.value).startswith(f"{tmp_path}/{said}")


@pytest.mark.parametrize(
    ("curves", "said"),
    [
        (
            "model,nodes\n",
            "curves.csv:1: no column images_per_s; a table of curves has model, nodes, images_per_s",
        ),
        (CURVES + "m,many,3\n", "curves.csv:6: nodes and images_per_s must be numbers"),
        (CURVES + "m,3\n", "curves.csv:6: too few columns"),
        (CURVES + "m,2,3\n", "curves.csv: two points for 2 nodes"),
    ],
)
def test_bad_tables_of_curves_are_refused(tmp_path: Path, curves: str, said: str) -> None:
    with pytest.raises(WorkloadError) as error:
        workload.read(*write(tmp_path, JOBS, curves))
    assert str(error.value).startswith(f"{tmp_path}/{said}")


def test_job_tables_need_curves(tmp_path: Path) -> None:
    jobs, _ = write(tmp_path, JOBS + "a,1,1,1,4,9,2021-02-10,m\n")
    with pytest.raises(WorkloadError, match=r"jobs.csv:2: no curve for model 'm' \(known: none\)"):
        workload.read(jobs, None)


def test_all_trainers_of_a_job_table_can_train_another_model(tmp_path: Path) -> None:
    jobs, curves = write(tmp_path, JOBS + "a,1,1,1,4,9,2021-02-10,m\nb,1,1,1,4,9,2021-02-11,k\n")
    for submission in workload.read(jobs, curves, "k"):
        assert (submission.model, submission.spec.curve) == ("k", ((4, 1.0),))
    with pytest.raises(WorkloadError, match=r"jobs.csv:2: no curve for model 'z' \(known: k, m\)"):
        workload.read(jobs, curves, "z")
    with pytest.raises(WorkloadError, match="leave model=k out"):
        workload.read(tmp_path / "specs.yaml", None, "k")


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_broken_job_tables_are_refused(tmp_path: Path, pack: object) -> None:
    assert callable(pack)
    for name, content in (("cut", pack(JOBS.encode())[:-9]), ("bytes", b"job,\xff\xfe\n")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(WorkloadError, match=name):
            workload.read(tmp_path / name, None)
    with pytest.raises(WorkloadError, match="none"):
        workload.read(tmp_path / "none", None)


def test_specs_are_a_workload_too(tmp_path: Path) -> None:
    good = "- {name: a, command: [x], nodes: {max: 2}, work: {samples: 9}, curve: [[1, 5]]}\n"
    path, _ = write(tmp_path, good, name="w.yaml")
    ((at, spec),) = [(s.time, s.spec) for s in workload.read(path, None)]
    assert (at, spec.name, spec.samples, spec.curve) == (0.0, "a", 9, ((1, 5.0),))
    for text, said in (
        (
            good.replace("work: {samples: 9}, ", ""),
            "trainer 'a': a replay needs its work in samples and its curve",
        ),
        (
            good.replace(", curve: [[1, 5]]", ""),
            "trainer 'a': a replay needs its work in samples and its curve",
        ),
        (good.replace("max: 2", "max: 0"), "w.yaml:1: nodes.max: 0"),
    ):
        write(tmp_path, text, name="w.yaml")
        with pytest.raises(WorkloadError, match=str(path)) as error:
            workload.read(path, None)
        assert said in str(error.value)


# --- replays by hand -----------------------------------------------------------------------------

SETTINGS = EngineSettings(allocator="knapsack")
COSTS = RescaleCosts(up=Cost(stall_s=2.0, init_s=3.0), down=Cost(stall_s=1.0))


def trainer(samples: int = ENDLESS, n_min: int = 1, n_max: int = 4, rate: float = 10.0) -> TrainerSpec:
    """Linear: `rate` samples/s a node."""
    return TrainerSpec(
        name="t",
        command=(),
        n_min=n_min,
        n_max=n_max,
        samples=samples,
        curve=((n_max, n_max * rate),),
        costs=COSTS,
    )


def play(
    log: list[Interval], *specs: TrainerSpec, end: float = 100.0, at: float = 0.0, max_parallel: int = 10
) -> Result:
    changes = intervals.changes(log, frozenset(i.node for i in log), 0.0, end)
    chosen = replace(SETTINGS, max_parallel=max_parallel)
    return replay(changes, [Submission(at, spec) for spec in specs], chosen, 0.0, end)


def test_one_trainer_grows_and_is_preempted() -> None:
    """a: initialises 0-3, stands 3-5, trains on; b: initialises 20-23, both stand 23-25, b leaves at 60, a
    stands 60-61. Trained: 5-23 on 1, 25-60 on 2, 61-100 on 1."""
    log = [Interval(0.0, 100.0, "a"), Interval(20.0, 60.0, "b")]
    result = play(log, trainer())
    assert result.samples == pytest.approx(10 * (18 + 2 * 35 + 39), rel=1e-12)
    own = result.trainers[1]
    assert (own.stall_node_s, own.init_node_s) == (pytest.approx(2 + 4 + 1), pytest.approx(3 + 3))
    tally = result.tally
    assert (tally.node_s, tally.idle_node_s) == (pytest.approx(140.0), pytest.approx(0.0))
    assert (tally.preemptions, tally.completed, tally.events) == (1, 0, 4)
    figures = figures_of(result, [Submission(0.0, trainer())], SETTINGS)
    assert figures["equivalent_nodes"] == pytest.approx(1.4)
    assert figures["efficiency_u"] == pytest.approx(1270 / 1400)  # between 1000 on 1 node and 2000 on 2
    assert figures["linear_efficiency"] == pytest.approx(127 / 140)
    assert figures["node_hours"] == pytest.approx(140 / 3600)
    assert figures["stall_node_hours"] == pytest.approx(7 / 3600)
    assert figures["init_node_hours"] == pytest.approx(6 / 3600)
    assert figures["unproven_decisions"] == 0


def test_a_stall_is_added_to_what_is_left_of_the_one_before() -> None:
    """b joins at 23 for a stall until 25, leaves at 24: 1 s is left, 1 s of shrinking comes on top."""
    log = [Interval(0.0, 100.0, "a"), Interval(20.0, 24.0, "b")]
    result = play(log, trainer())
    assert result.samples == pytest.approx(10 * (18 + (100 - 26)), rel=1e-12)
    assert result.trainers[1].stall_node_s == pytest.approx(2 + 1 * 2 + 2 * 1)


def test_members_train_on_while_a_newcomer_that_never_joins_initialises() -> None:
    log = [Interval(0.0, 100.0, "a"), Interval(20.0, 22.0, "b")]
    result = play(log, trainer())
    assert result.samples == pytest.approx(10 * 95)
    assert result.trainers[1].init_node_s == pytest.approx(3 + 2)
    assert result.tally.preemptions == 1


def test_a_trainer_ends_at_exactly_its_work_and_the_next_one_takes_its_node() -> None:
    """5-14.5 the first trains, 14.5-17.5 the second initialises, 17.5-19.5 it stands, to 50 it trains."""
    result = play([Interval(0.0, 100.0, "a")], trainer(samples=95), trainer(), end=50.0, max_parallel=1)
    assert (result.trainers[1].samples, result.trainers[1].ended_at) == (95.0, pytest.approx(14.5))
    assert (result.trainers[2].samples, result.trainers[2].ended_at) == (pytest.approx(305.0), None)
    assert result.tally.completed == 1


def test_the_end_of_work_is_put_off_by_a_stall_and_idle_nodes_are_counted() -> None:
    """95 samples: 9.5 s of training from 5 on; a second node that it may not use stays idle."""
    result = play([Interval(0.0, 100.0, "a"), Interval(0.0, 100.0, "b")], trainer(samples=95, n_max=1))
    assert result.trainers[1].ended_at == pytest.approx(14.5)
    assert result.samples == 95.0
    assert result.tally.completed == 1
    assert result.tally.idle_node_s == pytest.approx(200 - 14.5)


def test_a_prediction_of_the_end_is_dropped_when_the_trainer_rescales() -> None:
    """300 samples: 18 s on one node, then 60 / 20 s on two from 25 on."""
    log = [Interval(0.0, 100.0, "a"), Interval(20.0, 100.0, "b")]
    result = play(log, trainer(samples=240))
    assert result.trainers[1].ended_at == pytest.approx(25 + 60 / 20)
    assert result.samples == 240.0


def test_below_the_minimum_nobody_trains() -> None:
    """Two nodes for n_min = 2 until 50, then one."""
    log = [Interval(0.0, 100.0, "a"), Interval(0.0, 50.0, "b")]
    result = play(log, trainer(n_min=2))
    assert result.samples == pytest.approx(20 * 45)
    assert result.tally.idle_node_s == pytest.approx(50.0)


def test_survivors_below_the_minimum_wait_for_the_newcomer() -> None:
    """b goes and c comes at 50: c initialises 50-53, both stand 53-55; a alone does not train."""
    log = [Interval(0.0, 100.0, "a"), Interval(0.0, 50.0, "b"), Interval(50.0, 100.0, "c")]
    result = play(log, trainer(n_min=2))
    assert result.samples == pytest.approx(20 * (45 + 45))
    assert (result.trainers[1].init_node_s, result.trainers[1].stall_node_s) == (
        pytest.approx(9),
        pytest.approx(8),
    )


def test_trainers_start_no_sooner_than_they_arrive() -> None:
    result = play([Interval(0.0, 100.0, "a")], trainer(), at=40.0)
    assert result.samples == pytest.approx(10 * 55)
    assert result.tally.idle_node_s == pytest.approx(40.0)
    assert play([Interval(0.0, 100.0, "a")], trainer(), at=100.0).samples == 0.0
    early = play([Interval(0.0, 100.0, "a")], trainer(), at=-500.0)
    assert early.samples == pytest.approx(10 * 95)


def test_without_nodes_or_trainers_all_figures_are_zero() -> None:
    empty = play([], trainer())
    assert (empty.samples, empty.tally.node_s) == (0.0, 0.0)
    assert figures_of(empty, [Submission(0.0, trainer())], SETTINGS)["efficiency_u"] == 0.0
    nobody = play([Interval(0.0, 100.0, "a")])
    assert figures_of(nobody, [], SETTINGS)["efficiency_u"] == 0.0
    assert nobody.tally.idle_node_s == 100.0


# --- replays of anything -------------------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> list[Interval]:
    """Up to 5 nodes, each idle now and then in 0..100."""
    found = []
    for node in range(draw(st.integers(1, 5))):
        moments = sorted(draw(st.sets(st.integers(0, 100), max_size=8)))
        found += [
            Interval(float(a), float(b), f"n{node}")
            for a, b in zip(moments[::2], moments[1::2], strict=False)
        ]
    return found


specs = st.builds(
    lambda samples, n_min, more, rate, init_s, stall_s: replace(
        trainer(samples=samples, n_min=n_min, n_max=n_min + more, rate=rate),
        costs=RescaleCosts(up=Cost(stall_s=stall_s, init_s=init_s), down=Cost(stall_s=stall_s / 2)),
    ),
    samples=st.sampled_from([50, 1000, ENDLESS]),
    n_min=st.integers(1, 3),
    more=st.integers(0, 3),
    rate=st.sampled_from([1.0, 7.0, 10.0]),
    init_s=st.sampled_from([0.0, 1.5, 8.0]),
    stall_s=st.sampled_from([0.0, 1.0, 6.0]),
)


@settings(max_examples=150, deadline=None)
@given(logs(), st.lists(st.tuples(st.integers(-5, 60), specs), max_size=5), st.integers(1, 3))
def test_all_node_time_is_accounted_for(
    log: list[Interval], submitted: list[tuple[int, TrainerSpec]], max_parallel: int
) -> None:
    """Node-time is trained, idle, stood still, spent initialising, or waited in too small a membership."""
    waited = 0.0
    advance = SimulatedTrainer.advance

    def watched(self: SimulatedTrainer, now: float) -> None:
        nonlocal waited
        stall = max(0.0, min(self.stalled_until, now) - self.clock)
        if self.rate == 0.0:
            waited += max(0.0, now - self.clock - stall) * len(self.members)
        advance(self, now)

    changes = intervals.changes(log, frozenset(i.node for i in log), 0.0, 100.0)
    jobs = [Submission(float(at), spec) for at, spec in submitted]
    chosen = replace(SETTINGS, max_parallel=max_parallel)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedTrainer, "advance", watched)
        result = replay(changes, jobs, chosen, 0.0, 100.0)
    total = sum(i.end - i.start for i in log)
    runs = result.trainers.values()
    trained = sum(own.samples / (own.spec.curve[-1][1] / own.spec.n_max) for own in runs if own.spec.curve)
    stalled, initialised = sum(own.stall_node_s for own in runs), sum(own.init_node_s for own in runs)
    assert result.tally.node_s == pytest.approx(total)
    parts = (trained, result.tally.idle_node_s, stalled, initialised, waited)
    assert all(part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(total), parts
    for own in runs:
        assert own.spec.samples is not None
        assert own.samples <= own.spec.samples
        assert (own.ended_at is not None) == (own.samples == own.spec.samples)
    assert result.tally.completed == sum(own.ended_at is not None for own in runs)


def untimed(changes: list[NodesChanged], jobs: list[Submission], chosen: EngineSettings) -> dict[str, object]:
    figures = figures_of(replay(changes, jobs, chosen, 0.0, 300.0), jobs, chosen)
    timing = figures.pop("decision_ms")
    assert isinstance(timing, dict)
    assert set(timing) == {"p50", "p99", "max"}
    return figures


@pytest.mark.parametrize("allocator", ["knapsack", "milp", "equal"])
def test_same_arguments_same_figures(allocator: str) -> None:
    log = generated(8, 300.0, seed=1)
    jobs = [Submission(10.0 * i, trainer(samples=3000, n_min=1 + i % 2, rate=5.0 + i)) for i in range(6)]
    chosen = EngineSettings(allocator=allocator, max_parallel=4)
    figures = untimed(log, jobs, chosen)
    assert figures == untimed(log, jobs, chosen)
    assert 0 < float(str(figures["efficiency_u"])) <= 1
    assert (figures["unproven_decisions"] == 0) == (allocator != "equal")


def test_progress_reaches_from_the_beginning_towards_the_end() -> None:
    seen: list[float] = []
    replay(generated(4, 100.0), [], SETTINGS, 0.0, 100.0, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[0] == 0.0
    assert seen[-1] < 100.0


# --- from files to figures -----------------------------------------------------------------------


def test_a_replay_of_files(tmp_path: Path) -> None:
    """The trainer of `test_one_trainer_grows_and_is_preempted`, from disk, with the published costs."""
    log = tmp_path / "log.csv"
    log.write_text("idle_start,idle_end,node\n1000,1100,a\n1020,1060,b\n1000,,z\n")
    rows = "t,2,1,1,4,1000000,1970-01-01 00:00:00,m\n"
    jobs, curves = write(tmp_path, JOBS + rows, "model,nodes,images_per_s\nm,1,10\nm,4,40\n")
    done: list[float] = []
    what = {"log": log, "workload": jobs, "curves": curves, "nodes": 2, "allocator": "knapsack"}
    figures = evaluate(scenario.of(what), done.append).figures
    assert figures["samples"] == pytest.approx(10 * (18 + 2 * 38 + 39))
    assert figures["node_hours"] == pytest.approx(140 / 3600)
    assert done[0] == 0.0
    assert max(done) <= 1.0
    later = evaluate(scenario.of({**what, "begin": 1010.0, "hours": 30 / 3600})).figures
    assert later["samples"] == pytest.approx(10 * (8 + 2 * 18))  # 1012-1020 on a, 1022-1040 on both


def test_spans_outside_of_the_log_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("idle_start,idle_end,node\n1000,1100,a\n")
    jobs, curves = write(tmp_path, JOBS)
    for begin in (999.0, 1100.0):
        with pytest.raises(LogError, match="spans 1970-01-01T00:16:40 to 1970-01-01T00:18:20 UTC; --from"):
            evaluate(scenario.of({"log": log, "workload": jobs, "curves": curves, "begin": begin}))
    what = {"log": log, "workload": jobs, "curves": curves}
    with pytest.raises(LogError, match=r"ends at .* --hours 9 from .* go beyond; ask for at most 0.02778"):
        evaluate(scenario.of({**what, "hours": 9}))
    log.write_text("idle_start,idle_end,node\n1050,1060,a\n1000,1100,b\n")
    with pytest.raises(LogError, match="none of the chosen nodes is idle from 1970-01-01T00:17:50"):
        evaluate(scenario.of({**what, "nodes": 1, "begin": 1070.0}))
    log.write_text("idle_start,idle_end,node\n")
    with pytest.raises(LogError, match="no intervals"):
        evaluate(scenario.of({"log": log, "workload": jobs, "curves": curves}))


@pytest.mark.skipif(not TRACES.is_dir(), reason="the published Summit log is not beside this checkout")
def test_the_published_log_yields_what_is_published() -> None:
    """1,000 ShuffleNet trials on the first 1,024 nodes: the paper has U = 80 %."""
    published = scenario.of(
        {
            "log": TRACES / "idle_intervals_2021-02-10_16.csv.xz",
            "workload": TRACES / "jobs_hpo_shufflenet_1000.csv",
            "curves": TRACES / "imagenet_scalability_7models.csv",
            "nodes": 1024,
            "begin": "2021-02-11T00:48:48",
            "hours": 143,
            "t_fwd_s": 120,
            "max_parallel": 10,
        }
    )
    figures = evaluate(published).figures
    assert 0.79 <= float(str(figures["efficiency_u"])) <= 0.85
    assert 5.5e10 <= float(str(figures["samples"])) <= 6.7e10
    assert figures["unproven_decisions"] == 0
    assert float(str(figures["node_hours"])) == pytest.approx(143 * float(str(figures["equivalent_nodes"])))


# --- scenarios -----------------------------------------------------------------------------------


def test_nodes_are_picked_by_name_or_by_seed() -> None:
    names = [f"n{i:02}" for i in range(50)]
    assert chosen(names, 3, None) == {"n00", "n01", "n02"}
    assert chosen(names, None, 4) == frozenset(names)
    picks = [chosen(names, 10, seed) for seed in (0, 0, 1)]
    assert picks[0] == chosen(names[::-1], 10, 0) == picks[1] != picks[2]
    assert {len(pick) for pick in picks} == {10}
    with pytest.raises(LogError, match="--nodes 51: the log has 50 nodes"):
        chosen(names, 51, 1)


@pytest.mark.parametrize(
    ("changes", "up", "down"),
    [
        (Changes(), Cost(stall_s=2.0, init_s=3.0), Cost(stall_s=1.0)),
        (Changes(cost_scale=0.5), Cost(stall_s=1.0, init_s=1.5), Cost(stall_s=0.5)),
        (Changes(stall_up_s=7.0, init_s=0.0), Cost(stall_s=7.0), Cost(stall_s=1.0)),
        (Changes(stall_down_s=7.0, cost_scale=2.0), Cost(stall_s=4.0, init_s=6.0), Cost(stall_s=14.0)),
        (Changes(cost_scale=0.0), Cost(), Cost()),
    ],
)
def test_costs_can_be_set_and_scaled(changes: Changes, up: Cost, down: Cost) -> None:
    (found,) = changes.apply([Submission(5.0, trainer(), "m")])
    assert found.spec.costs == RescaleCosts(up=up, down=down)
    assert (found.time, found.model) == (5.0, "m")


def test_costs_that_are_assumed_are_scaled_too_and_queues_are_cut() -> None:
    bare = replace(trainer(), costs=None)
    queue = [Submission(float(i), bare) for i in range(3)]
    assert Changes(jobs=2).apply(queue) == queue[:2]
    (found, _) = Changes(jobs=2, cost_scale=2.0).apply(queue)
    assert found.spec.costs == RescaleCosts(up=Cost(stall_s=1.0, init_s=10.0), down=Cost(stall_s=1.0))


def test_the_command_shows_figures_and_keeps_a_record(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("idle_start,idle_end,node\n1000,1100,a\n1020,1060,b\n1000,,z\n")
    rows = "t,2,1,1,4,200,1970-01-01 00:00:00,m\nu,2,1,1,4,1000000,1970-01-01 00:00:00,m\n"
    jobs, curves = write(tmp_path, JOBS + rows, "model,nodes,images_per_s\nm,1,10\nm,4,40\n")
    asked = [
        str(log),
        "--workload",
        str(jobs),
        "--curves",
        str(curves),
        "--nodes",
        "2",
        "--max-parallel",
        "1",
    ]
    out = tmp_path / "one.json.gz"
    done = CliRunner().invoke(command, [*asked, "--jct-first", "1", "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert figures["completed"] == 1
    assert figures["mean_turnaround_first_h"] == figures["turnaround_h"]["mean"] > 0
    kept = storage.read(out)
    assert (kept.name, kept.begin, kept.end) == ("one", 1000.0, 1100.0)
    assert {k: v for k, v in figures.items() if k != "wall_s"} == kept.figures
    assert kept.parameters["max_parallel"] == 1
    shown = CliRunner().invoke(command, asked)
    assert "efficiency U" in shown.stdout
    for bad in (["--out", "x.csv"], ["--init", "nan"], ["--pick", "-1"]):
        assert CliRunner().invoke(command, [*asked, *bad]).exit_code == 2
