"""Main jobs of every kind of a mix run on a real Slurm: it takes what they ask for, and all of them end."""

from __future__ import annotations

import pytest

from slurm.impact.condition import Condition
from slurm.testbed import why_not
from slurm.testbed.load import Load
from slurm.testbed.mix import MIXES

LONG_S = 240.0


@pytest.mark.parametrize(
    ("mix", "shared", "load"),
    [
        ("everything", True, 0.25),
        pytest.param("everything", False, 0.5, marks=pytest.mark.nightly),  # the same kinds, on whole nodes
        ("accounts", True, 0.2),
        ("gpus", True, 0.2),
    ],
)
def test_every_kind_runs(mix: str, shared: bool, load: float) -> None:
    if why := why_not(slurmdbd=MIXES[mix].slurmdbd):
        pytest.skip(why)
    condition = Condition(mix=mix, nodes=4, jobs=14, seconds=16, load=load, shared=shared)
    jobs = condition.main_jobs(1)
    with condition.testbed() as bed, Load(bed, jobs) as submitted:
        submitted.wait(LONG_S)
        runs = submitted.runs()
        shown = bed.run(["squeue", "-h", "-t", "all", "-o", "%q %P"]).stdout.split()
    assert {run.kind for run in runs} == set(MIXES[mix].shares)
    assert {(run.state, run.starts) for run in runs} == {("COMPLETED", 1)}
    assert all(run.wait_s is not None and run.wait_s > 0 for run in runs)
    assert len(runs) == sum(job.tasks for job in jobs)
    assert ("urgent" in shown) == ("urgent" in MIXES[mix].shares)
    assert ("high" in shown) == ("qos" in MIXES[mix].shares)
