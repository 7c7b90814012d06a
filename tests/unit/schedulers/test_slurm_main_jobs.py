"""What a poll of Slurm tells of main jobs whose waits are watched."""

from __future__ import annotations

from dataclasses import replace

from bftrainer.model.machine import Claim, Snapshot
from bftrainer.model.main_jobs import Accounted
from bftrainer.schedulers.shared.batch import BatchView
from bftrainer.schedulers.shared.claims import Claims
from bftrainer.schedulers.slurm.check import accounting
from bftrainer.schedulers.slurm.queue.main_jobs import LATELY_S, shown, waiting
from tests.support.slurm_samples import MAIN_JOB

NOW = 1000.0
PENDING = replace(MAIN_JOB, id="1", submitted=990.0)
RUNNING = replace(MAIN_JOB, id="2", state="RUNNING", start=995.0, nodes=("n1", "n2"), submitted=990.0)


def test_jobs_that_could_start_and_those_that_just_have_are_shown() -> None:
    old = replace(RUNNING, id="3", start=NOW - LATELY_S)
    blocked = replace(PENDING, id="4")
    claimed = replace(PENDING, id="5", count=3, shares=True, all_cpus=6)
    found = shown(
        [PENDING, RUNNING, old, blocked, claimed],
        Claims(claims=(Claim(job="5", nodes=frozenset({"n9"}), count=1),), ready=frozenset({"1"})),
        NOW,
    )
    assert [(job.job, job.nodes, job.cores, job.started, sorted(job.on)) for job in found] == [
        ("1", 1, 0, None, []),
        ("2", 2, 0, 995.0, ["n1", "n2"]),
        ("5", 3, 6, None, []),
    ]
    assert waiting([PENDING, RUNNING, blocked]) == {"1", "4"}


def test_times_move_with_the_clock() -> None:
    ready = Claims(ready=frozenset({"1"}))
    view = BatchView(Snapshot(time=NOW, nodes=(), main=shown([RUNNING, PENDING], ready, NOW)), ready)
    running, pending = view.shifted(-5.0).snapshot.main
    assert (running.started, running.submitted) == (990.0, 985.0)
    assert (pending.started, pending.submitted) == (None, 985.0)
    assert view.shifted(0.0) is view


def test_sacct_counts_the_main_jobs_that_started() -> None:
    printed = (
        "1000|7|main\n999|6|early\nUnknown|8|waits\n1001|9|two\nlines of one name\n"
        "1002|10|bftrainer-0a1b2c3d-" + "7" * 32 + "\n"
    )
    assert accounting.read(printed, 0, "", NOW) == Accounted(started=2)
    assert accounting.read("", 0, "", NOW) == Accounted(why=accounting.NONE_KEPT)
    said = "Slurm accounting storage is disabled"
    assert accounting.read("", 1, said, NOW) == Accounted(why=f"sacct: {said}")
    assert "--starttime=now-3600" in accounting.command(3600.0)
