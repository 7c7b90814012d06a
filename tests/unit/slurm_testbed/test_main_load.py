"""The main queue's load for a testbed, and what is measured of it: the pure parts."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.testbeds import runs as probe
from benchmarks.testbeds import workload
from benchmarks.testbeds.errors import TestbedError
from benchmarks.testbeds.runs import MainRun
from benchmarks.testbeds.workload import MainJob
from bftrainer.traces.intervals import LogError
from bftrainer.traces.logs import LogOptions
from slurm.testbed.load import Load, ended

SWF = """\
; UnixStartTime: 1000
; MaxProcs: 64
2 30 10 100 16 -1 -1 16 600 -1 1 1 1 -1 -1 -1 -1 -1
1 10  0 50   4 -1 -1  4  60 -1 1 1 1 -1 -1 -1 -1 -1
3 50  0 -1   4 -1 -1  4  60 -1 1 1 1 -1 -1 -1 -1 -1
4 90 99 60 64 -1 -1 64  -1 -1 1 1 1 -1 -1 -1 -1 -1
"""


def test_a_log_is_read_in_order_of_submission(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(SWF)
    requests, nodes = workload.of_log(path, LogOptions(cores_per_node=4), 0, 3)
    assert nodes == 16
    assert [(r.label, r.submit, r.size, r.end - r.start, r.limit_s) for r in requests] == [
        ("1", 1010, 1, 50, 60),
        ("2", 1030, 4, 100, 600),
        ("4", 1090, 16, 60, 0),
    ]
    jobs = workload.compressed(requests, nodes, nodes=8, seconds=40, load=0.08)
    assert [(job.submit_s, job.size) for job in jobs] == [(0, 1), (10, 2), (40, 8)]
    # 1 x 50 + 2 x 100 + 8 x 60 shrink to 0.08 x 8 x 40 = 25.6 node-seconds
    factor = 25.6 / (50 + 200 + 480)
    assert [job.run_s for job in jobs] == pytest.approx([50 * factor, 100 * factor, 60 * factor], abs=0.002)
    assert [job.limit_s for job in jobs] == pytest.approx([60 * factor, 600 * factor, 60 * factor], abs=0.002)
    assert workload.of_log(path, LogOptions(), 1, 1)[0][0].label == "2"
    with pytest.raises(LogError, match="has 3 jobs, fewer than 1 \\+ 3"):
        workload.of_log(path, LogOptions(), 1, 3)


def test_a_load_that_cannot_be_is_refused() -> None:
    requests, nodes = workload.generated(100, 0)
    with pytest.raises(LogError, match="take fewer jobs or more seconds for a lower load"):
        workload.compressed(requests, nodes, nodes=4, seconds=10, load=0.5)


@given(st.integers(2, 60), st.integers(0, 99), st.integers(1, 64), st.floats(100, 500), st.floats(0.35, 0.8))
def test_generated_jobs_keep_their_promises(
    count: int, seed: int, nodes: int, seconds: float, load: float
) -> None:
    requests, machine = workload.generated(count, seed)
    assert (requests, machine) == workload.generated(count, seed)
    try:
        jobs = workload.compressed(requests, machine, nodes=nodes, seconds=seconds, load=load)
    except LogError:
        return  # so few jobs cannot be that load
    work = sum(job.size * job.run_s for job in jobs)
    assert work == pytest.approx(load * nodes * seconds, rel=0.01, abs=0.1)
    assert jobs[0].submit_s == 0
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)
    for job in jobs:
        assert 0 <= job.submit_s <= seconds * 1.0001
        assert 1 <= job.size <= nodes
        assert workload.SHORTEST_S <= job.run_s <= workload.LONGEST * seconds + 0.001
        assert job.run_s <= job.limit_s + 0.001


def run(
    number: int, size: int, started: float | None, ended: float | None, state: str = "COMPLETED"
) -> MainRun:
    return MainRun(
        number=number,
        id=number,
        size=size,
        run_s=4,
        limit_s=60,
        submitted=100,
        started=started,
        ended=ended,
        state=state,
    )


TIMES = {"submitted": 100.5, "accepted": 100.6, "begins": None}


def test_what_jobs_left_is_put_together(tmp_path: Path) -> None:
    assert probe.measure(tmp_path, {}) == ()
    jobs = {
        1: {},
        2: {},
        3: {"after": 1},
        4: {"tasks": 2, "kind": "array"},
        5: {"begins": 130.0},
        6: {"after": 2},
    }
    rows = [
        {**asdict(MainJob(n, 0, 2, 4, 60)), **TIMES, "job": 10 * n, **jobs[n]} for n in (2, 1, 3, 4, 5, 6)
    ]
    (tmp_path / "submitted.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "1.0.started").write_text("101.25 10\n150 10\n")  # requeued
    (tmp_path / "1.0.ended").write_text("160\n")
    (tmp_path / "2.0.started").write_text("102.25 2")  # written to just now
    (tmp_path / "4.1.started").write_text("103 41\n")
    (tmp_path / "5.0.started").write_text("131.5 50\n")
    line = "JobId={} UserId=root(0) GroupId=root(0) Name=main JobState=1 x JobState={} Partition=batch \n"
    ends = ((10, "NODE_FAIL"), (10, "COMPLETED"), (7, "FAILED"), (41, "COMPLETED"))
    runs = probe.measure(tmp_path, ended("".join(line.format(*end) for end in ends)))
    assert [(run.number, run.task, run.job) for run in runs] == [
        *((1, 0, 10), (2, 0, 20), (3, 0, 30), (4, 0, 40), (4, 1, 40), (5, 0, 50), (6, 0, 60))
    ]
    one, two, three, task, other, reserved, never = runs
    assert (one.wait_s, one.ended, one.state, one.starts) == (0.75, 160, "COMPLETED", 2)
    assert (two.wait_s, two.state, two.starts) == (None, "", 0)
    assert (three.eligible, three.wait_s) == (160, None)  # from the end of the one before it
    assert (task.id, task.state, other.id, other.state) == (40, "", 41, "COMPLETED")
    assert (reserved.eligible, reserved.wait_s) == (130, 1.5)
    assert never.eligible is None  # what it waits for has not come
    assert probe.waits(runs) == [0.75, 2.5, 1.5]


def test_utilisation_counts_nodes_over_time() -> None:
    runs = [
        run(1, 2, 100, 110),
        run(2, 1, 105, None, "CANCELLED"),  # killed: until 109, as it needed
        run(3, 4, None, None, ""),
        run(4, 1, 90, 101),
    ]
    assert probe.busy(runs, 100, 120) == [(100, 3), (101, 2), (105, 3), (109, 2), (110, 0), (120, 0)]
    assert probe.utilisation(runs, 4, 100, 120) == pytest.approx((3 + 8 + 12 + 2) / 80)
    assert probe.utilisation([], 4, 100, 120) == 0


def test_the_spread_of_waits() -> None:
    found = probe.spread([float(n) for n in range(101)])
    assert found == probe.Spread(101, 50, 50, 90, 99, 100)
    assert probe.spread([]) is None


@pytest.mark.parametrize("seconds", [20.0, 30.0, 60.0, 90.0, 300.0, 3600.0])
@pytest.mark.parametrize("nodes", [4, 8, 16])
def test_as_many_jobs_as_the_demonstration_takes_make_its_load(seconds: float, nodes: int) -> None:
    count = workload.enough(nodes, seconds)
    assert len(workload.jobs_for(nodes, seconds, 0.4, count=count, seed=0)) == count


@pytest.mark.parametrize(
    "said",
    [
        "Unable to contact slurm controller (connect failure)",
        "Batch job submission failed: Connection reset by peer",
        "Batch job submission failed: Socket timed out on send/recv operation",
    ],
)
def test_a_job_is_looked_for_when_the_controller_stopped_while_it_was_submitted(
    tmp_path: Path, said: str
) -> None:
    class Bed:
        plan = SimpleNamespace(directory=tmp_path)

        def run(self, command: list[str], **how: object) -> SimpleNamespace:
            if command[0] == "sbatch":
                raise TestbedError(f"sbatch: error: {said}")
            return SimpleNamespace(stdout="7+0")

    job = MainJob(1, 0, 1, 1, 60, "whole node", (("--nodes=1",),))
    assert Load(Bed(), [job]).hand_in(job, None) == 7  # type: ignore[arg-type]
