"""Workloads: job tables and specs, and what a scenario changes in them."""

from __future__ import annotations

import gzip
import lzma
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bftrainer.model.trainer import Cost, RescaleCosts, Scalability, TrainerSpec
from bftrainer.replay import workload
from bftrainer.replay.workload import Changes, Submission, WorkloadError
from tests.support.replays import CURVES, JOBS, trainer, write


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
            "jobs.csv:1: no column Tcdw, Jmin, Jmax, Pmax, Tsub, model. Give a job table with",
        ),
        ("", "jobs.csv:1: no column job, Tcup"),
        (JOBS + "a,1,1,1,1\n", "jobs.csv:2: no column Pmax, Tsub, model. Give a job table"),
        (
            JOBS + "a,1,1,1,4,9,2021-02-10,m\na,1,1,1,4,9,2021-02-10,z\n",
            "jobs.csv:3: no curve for model 'z' (known: k, m)",
        ),
        (
            JOBS + "a,x,1,1,4,9,2021-02-10,m\n",
            "jobs.csv:2: this row: its values (could not convert",
        ),
        (
            JOBS + "a,1,1,1,4,9,yesterday,m\n",
            "jobs.csv:2: this row: its values (Invalid isoformat",
        ),
        (JOBS + "a,1,1,5,4,9,2021-02-10,m\n", "jobs.csv:2: Jmin, Jmax, Pmax "),
        (JOBS + "a,1,1,0,4,9,2021-02-10,m\n", "jobs.csv:2: Jmin, Jmax, Pmax "),
        (JOBS + "a,1,1,1,4,0,2021-02-10,m\n", "jobs.csv:2: Jmin, Jmax, Pmax "),
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
            "curves.csv:1: no column images_per_s. Give a table of curves with the columns",
        ),
        (CURVES + "m,many,3\n", "curves.csv:6: nodes, images_per_s 'many', '3' cannot be used. Give numbers"),
        (CURVES + "m,3\n", "curves.csv:6: no column images_per_s. Give a table of curves"),
        (CURVES + "m,2,3\n", "curves.csv: no curve has two points for 2 nodes"),
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
    with pytest.raises(WorkloadError, match="Leave model=k out"):
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
            "trainer 'a' needs its work in samples and its curve",
        ),
        (
            good.replace(", curve: [[1, 5]]", ""),
            "trainer 'a' needs its work in samples and its curve",
        ),
        (good.replace("max: 2", "max: 0"), "w.yaml:1: nodes.max: 0"),
    ):
        write(tmp_path, text, name="w.yaml")
        with pytest.raises(WorkloadError, match=str(path)) as error:
            workload.read(path, None)
        assert said in str(error.value)


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
