"""Jobs on a dedicated cluster end when arithmetic says that they do, under each policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bftrainer.allocate.goodput.sizes import UtilityBounds
from bftrainer.errors import BftrainerError
from bftrainer.performance.goodput import GoodputModel, gain
from bftrainer.replay.dedicated.baselines import Optimus, Tiresias, emptiest_first
from bftrainer.replay.dedicated.cluster import (
    ClusterPolicy,
    ClusterShape,
    ReplayedJobs,
    StuckError,
    figures_of,
    meet,
    run,
)
from bftrainer.replay.dedicated.job import Profile, RunningJob
from bftrainer.replay.dedicated.policies import policy_of, speedups
from bftrainer.replay.dedicated.workload import read_jobs
from tests.support.measured_programs import EPOCH_STEPS, SYSTEM, write_jobs, write_program

Row = tuple[str, int, str, int, int]
SMALL = ClusterShape(2, 4)


def replayed(
    tmp_path: Path, rows: list[Row], policy: ClusterPolicy, cluster: ClusterShape = SMALL, epochs: int = 3
) -> ReplayedJobs:
    """Replay these jobs of one program."""
    write_program(tmp_path / "profiles" / "p", epochs=epochs)
    jobs = read_jobs(write_jobs(tmp_path / "jobs.csv", rows), tmp_path / "profiles")
    return run(jobs, cluster, policy)


def ends(found: ReplayedJobs) -> dict[str, float]:
    """When each job ended, in s."""
    return {job.job.name: job.ended or 0.0 for job in found.jobs}


def test_a_job_alone_ends_after_its_restart_and_its_steps(tmp_path: Path) -> None:
    found = replayed(tmp_path, [("a", 0, "p", 4, 64)], Tiresias(), epochs=2)
    rate = float(gain(64.0, 16, 64)) / float(SYSTEM.iteration_time(1, 4, 16))
    assert ends(found)["a"] == pytest.approx(30 + 2 * EPOCH_STEPS / rate, abs=1), (
        "whole seconds for each epoch"
    )
    assert found.jobs[0].gpu_s == 4 * ends(found)["a"]
    assert found.jobs[0].starts == 1


def test_a_job_starts_at_the_tick_after_its_submission(tmp_path: Path) -> None:
    first = ends(replayed(tmp_path, [("a", 0, "p", 4, 64)], Tiresias()))["a"]
    for submitted in (1, 59, 60, 86_400):
        begins = 60 * -(-submitted // 60)
        found = replayed(tmp_path, [("a", submitted, "p", 4, 64)], Tiresias())
        assert ends(found)["a"] == begins + first


def test_tiresias_lets_who_does_not_fit_wait(tmp_path: Path) -> None:
    rows: list[Row] = [("a", 0, "p", 6, 64), ("b", 0, "p", 4, 64), ("c", 0, "p", 2, 64)]
    found = ends(replayed(tmp_path, rows, Tiresias()))
    alone = ends(replayed(tmp_path, [("b", 0, "p", 4, 64)], Tiresias()))["b"]
    assert found["b"] == 60 * -(-found["a"] // 60) + alone, "it starts at the tick after the first has ended"
    assert found["c"] == ends(replayed(tmp_path, [("c", 0, "p", 2, 64)], Tiresias()))["c"]


def test_tiresias_preempts_who_has_had_much(tmp_path: Path) -> None:
    rows: list[Row] = [("long", 0, "p", 8, 64), ("new", 7200, "p", 8, 64)]
    found = replayed(tmp_path, rows, Tiresias(), epochs=700)
    assert [job.starts for job in found.jobs] == [2, 2], (
        "each had its 16 GPU-hours, then waited for the other"
    )
    assert ends(found)["long"] > 2 * 7200


def test_optimus_gives_all_gpus_where_they_save_time(tmp_path: Path) -> None:
    found = replayed(tmp_path, [("a", 0, "p", 1, 256)], Optimus())
    assert found.jobs[0].gpu_s / ends(found)["a"] > 1
    two = replayed(tmp_path, [("a", 0, "p", 1, 256), ("b", 0, "p", 1, 256)], Optimus())
    assert max(ends(two).values()) > ends(found)["a"]


def test_goodput_grows_by_doubling_and_is_faster_than_one_gpu(tmp_path: Path) -> None:
    one = ends(replayed(tmp_path, [("a", 0, "p", 1, 16)], Tiresias(), epochs=40))["a"]
    found = replayed(tmp_path, [("a", 0, "p", 1, 16)], policy_of("goodput"), epochs=40)
    assert ends(found)["a"] < one / 1.5
    assert found.jobs[0].starts > 2
    assert {k for _, k, _ in found.jobs[0].profile.seen} >= {1, 2}


@pytest.mark.parametrize("name", ["tiresias", "optimus", "goodput"])
@pytest.mark.parametrize("declared", [False, True])
def test_every_job_ends_once_under_every_policy(tmp_path: Path, name: str, declared: bool) -> None:
    rows: list[Row] = [(f"j{i}", 40 * i, "p", 1 + i % 5, 64) for i in range(20)]
    found = replayed(tmp_path, rows, policy_of(name, declared=declared), epochs=10)
    figures = figures_of(found, SMALL)
    assert figures["jobs"] == 20
    assert all(time > 30 for time in figures["completion_by_job_s"].values())
    assert figures["end_s"] == max(ends(found).values())
    assert 0 < figures["gpus_busy"] <= 1


def test_jobs_of_a_program_share_what_they_measure(tmp_path: Path) -> None:
    write_program(tmp_path / "profiles" / "p", epochs=40)
    rows: list[Row] = [("a", 0, "p", 1, 16), ("b", 1200, "p", 1, 16)]
    jobs = read_jobs(write_jobs(tmp_path / "jobs.csv", rows), tmp_path / "profiles")
    apart, together = (run(jobs, SMALL, policy_of("goodput"), shared=shared).jobs for shared in (False, True))
    assert together[0].profile is together[1].profile
    assert together[1].starts < apart[1].starts, "the second grows at once"
    assert (1, 1) in {(n, k) for n, k, _ in apart[1].profile.seen}
    assert together[1].model is not None and together[1].profile.first_phi == 64.0


def test_a_new_job_is_expected_to_be_as_earlier_ones_that_share_its_profile(tmp_path: Path) -> None:
    write_program(tmp_path / "profiles" / "p", epochs=40)
    rows: list[Row] = [("a", 0, "p", 1, 16), ("b", 1200, "p", 1, 16)]
    jobs = read_jobs(write_jobs(tmp_path / "jobs.csv", rows), tmp_path / "profiles")
    for shared, starts_with in ((False, 1), (True, 4)):
        found = run(jobs[:1], SMALL, policy_of("goodput"), shared=shared).jobs[0]
        new = RunningJob(jobs[1], found.profile if shared else Profile())
        assert int(np.argmax(speedups(new, SMALL))) >= starts_with
        assert (new.model is not None) == shared


def test_a_fixed_program_keeps_its_workers_and_its_batch(tmp_path: Path) -> None:
    write_program(tmp_path / "profiles" / "p")
    jobs = read_jobs(write_jobs(tmp_path / "jobs.csv", [("a", 0, "p", 1, 64)]), tmp_path / "profiles")
    found = run(jobs, SMALL, policy_of("goodput"), fixed=frozenset({"p"}))
    assert found.jobs[0].starts == 1
    assert found.jobs[0].gpu_s < 180
    assert {(k, m) for _, k, m in found.jobs[0].profile.seen} == {(1, 32)}, "two steps, as of a single worker"


def test_a_job_larger_than_the_cluster_is_refused_before_it_waits_forever(tmp_path: Path) -> None:
    with pytest.raises(StuckError, match="'a' asks for 9 of 8"):
        replayed(tmp_path, [("a", 0, "p", 9, 64)], Tiresias())


def test_the_emptiest_node_comes_first() -> None:
    found = emptiest_first({"a": 2, "b": 5}, {"a": (0, 0)}, ClusterShape(3, 4))
    assert found == {"a": (0, 0), "b": (1, 1, 1, 1, 2)}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (("a", 0, "q", 1, 64), "no measurements of 'q' .*there are: p"),
        (("a", 0, "../p", 1, 64), "no measurements of"),
        (("a", -1, "p", 1, 64), "time -1"),
        (("a", 10**12, "p", 1, 64), "time"),
        (("a", 0, "p", 0, 64), "num_replicas 0"),
        (("a", 0, "p", 17, 64), "num_replicas 17 cannot be used. Give 1 to 16"),
        (("a", 0, "p", 10**9, 64), "num_replicas"),
        (("a", 0, "p", 1, 8), "batch_size 8"),
        (("a", 0, "p", 1, "x"), "Give numbers"),
        (("first", 0, "p", 1, 64), "a second job 'first'"),
    ],
)
def test_jobs_that_cannot_be_are_named_by_their_line(tmp_path: Path, row: Row, says: str) -> None:
    with pytest.raises(BftrainerError, match=says) as error:
        replayed(tmp_path, [("first", 0, "p", 1, 64), row], Tiresias())
    assert "jobs.csv:3" in str(error.value)


def test_a_workload_without_jobs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BftrainerError, match="no job in it"):
        replayed(tmp_path, [], Tiresias())


def test_too_many_jobs_are_counted_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bftrainer.replay.dedicated.workload.MOST_JOBS", 1)
    with pytest.raises(BftrainerError, match="2 jobs, and at most 1"):
        replayed(tmp_path, [("a", 0, "nonsense", 1, 64)] * 2, Tiresias())


def test_a_short_job_passes_a_long_one_where_their_epochs_are_declared(tmp_path: Path) -> None:
    write_program(tmp_path / "profiles" / "long", epochs=400)
    write_program(tmp_path / "profiles" / "short", epochs=20)
    rows = [("long", 0, "long", 1, 16), ("short", 1800, "short", 1, 16)]
    jobs = read_jobs(write_jobs(tmp_path / "jobs.csv", rows), tmp_path / "profiles")
    unknown, declared = (ends(run(jobs, SMALL, policy_of("goodput", declared=d))) for d in (False, True))
    assert declared["short"] <= unknown["short"]
    assert declared["short"] < declared["long"]


def test_as_many_nodes_are_had_as_their_utility_is_worth(tmp_path: Path) -> None:
    rows: list[Row] = [("a", 0, "p", 1, 16)]
    cluster = ClusterShape(4, 4)
    nodes = {}
    for low, high in ((0.0, 0.0), (0.3, 0.4), (0.9, 1.0)):
        policy = policy_of("goodput", utility=UtilityBounds(low, high, 1, 4))
        found = replayed(tmp_path, rows, policy, cluster, epochs=200)
        nodes[low] = found.nodes[-1]
        assert figures_of(found, cluster)["node_hours"] == sum(found.nodes) / 60
    assert nodes[0.0] > nodes[0.9] == 1
    model = GoodputModel(SYSTEM, found.jobs[0].program.limits, 64.0)
    utilities = [float(model.speedup(n, 4 * n)) / (4 * n) for n in range(1, 5)]
    assert nodes[0.3] == UtilityBounds(0.3, 0.4, 1, 4).size(utilities)


def test_nodes_that_are_given_back_lose_their_workers(tmp_path: Path) -> None:
    rows: list[Row] = [(f"j{i}", 0, "p", 1, 16) for i in range(8)]
    policy = policy_of("goodput", utility=UtilityBounds(0.95, 1.0, 1, 2))
    found = replayed(tmp_path, rows, policy, epochs=20)
    assert max(found.nodes) == 2 and found.nodes[-1] == 1
    assert all(job.ended for job in found.jobs)


def test_who_decides_by_throughput_alone_fills_the_memory(tmp_path: Path) -> None:
    found = replayed(tmp_path, [("a", 0, "p", 1, 16)], policy_of("goodput", by_throughput=True), epochs=60)
    assert {m for _, k, m in found.jobs[0].profile.seen if k <= 4} == {64}
    assert {m for _, k, m in found.jobs[0].profile.seen if k == 8} <= {32}, "256 in all"
    wise = replayed(tmp_path, [("a", 0, "p", 1, 16)], policy_of("goodput"), epochs=60)
    assert ends(wise)["a"] < ends(found)["a"]


def test_jobs_of_several_nodes_that_meet_slow_each_other_down(tmp_path: Path) -> None:
    held = {"a": (0, 0, 1), "b": (1, 2), "c": (2,), "d": (3, 4), "e": (3, 3)}
    assert meet(held) == {"a", "b"}
    rows: list[Row] = [("a", 0, "p", 6, 64), ("b", 0, "p", 6, 64)]
    write_program(tmp_path / "profiles" / "p", epochs=2)
    jobs = read_jobs(write_jobs(tmp_path / "jobs.csv", rows), tmp_path / "profiles")
    plain, slow = (run(jobs, ClusterShape(3, 4), Tiresias(), slowdown=slowdown) for slowdown in (0.0, 0.5))
    assert ends(slow)["a"] - 30 == pytest.approx(2 * (ends(plain)["a"] - 30), abs=3), "whole seconds"
