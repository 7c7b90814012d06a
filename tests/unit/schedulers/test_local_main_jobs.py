"""Main jobs that lines of a file ask for: they wait for our pilots, take nodes, and end."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bftrainer.errors import SchedulerError
from bftrainer.model.machine import Claim
from bftrainer.schedulers.local.main_jobs import MOST_READ, JobsMoved, MainJobsFile

NODES = frozenset({"n1", "n2", "n3"})
NONE = frozenset[str]()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "main-jobs"
    path.touch()
    return path


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_job_that_asks_waits_for_the_nodes_that_we_hold(path: Path) -> None:
    jobs = MainJobsFile(path, NODES)
    add(path, "ask a n1 n2\n")
    held = frozenset({"n1", "n3"})
    assert jobs.advance(5.0, held) == JobsMoved()
    assert jobs.claims(held) == (Claim(job="a", nodes=frozenset({"n1"}), count=1),)
    assert jobs.wanted == {"n1", "n2"} and [job.submitted for job in jobs.waiting] == [5.0]
    (started,) = jobs.advance(6.0, frozenset({"n3"})).starting
    assert (started.job, started.submitted, started.started, started.on) == ("a", 5.0, 6.0, {"n1", "n2"})
    assert not jobs.claims(held) and not jobs.waiting
    add(path, "end a\n")
    assert jobs.advance(7.0, NONE) == JobsMoved(freed=frozenset({"n1", "n2"}))


def test_a_job_that_takes_waits_for_nobody(path: Path) -> None:
    jobs = MainJobsFile(path, NODES)
    add(path, "take a n1\n")
    (taking,) = jobs.advance(5.0, NODES).taking
    assert (taking.job, taking.on, taking.started) == ("a", {"n1"}, None)


def test_a_job_waits_for_other_main_jobs_without_a_claim(path: Path) -> None:
    jobs = MainJobsFile(path, NODES)
    add(path, "take a n1\nask b n1 n2\n")
    jobs.advance(5.0, frozenset({"n2"}))
    assert jobs.claims(frozenset({"n2"})) == (), "it could not start if we gave up n2"
    add(path, "end a\n")
    moved = jobs.advance(6.0, NONE)
    assert [job.job for job in moved.starting] == ["b"] and moved.freed == NONE, "n1 goes from a to b"
    add(path, "end b\nask c n1\nend c\n")
    assert jobs.advance(7.0, NODES).freed == {"n1", "n2"} and not jobs.waiting


def test_a_nodes_name_means_all_its_gpus(path: Path) -> None:
    jobs = MainJobsFile(path, frozenset({"n1:0", "n1:1", "n2:0"}))
    add(path, "ask a n1\nask b n2:0\n")
    first, second = jobs.advance(5.0, NONE).starting
    assert first.on == {"n1:0", "n1:1"} and second.on == {"n2:0"}


@pytest.mark.parametrize(
    "line", ["ask", "ask a", "ask a n9", "take a n1 n9", "end a", "hold a n1", "ask x n1", "\x1b[2J \xff"]
)
def test_a_line_that_is_not_understood_is_told_and_left_out(
    path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = MainJobsFile(path, NODES)
    add(path, "ask x n3\n")
    jobs.advance(1.0, NODES)
    add(path, f"{line}\ntake y n2\n")
    with caplog.at_level(logging.WARNING):
        moved = jobs.advance(5.0, NODES)
    assert [job.job for job in moved.taking] == ["y"] and len(jobs.waiting) == 1
    (record,) = caplog.records
    assert ":2: " in record.getMessage() and "\x1b" not in record.getMessage()


def test_half_a_line_is_read_when_it_is_whole(path: Path) -> None:
    jobs = MainJobsFile(path, NODES)
    add(path, "take a n")
    assert jobs.advance(1.0, NONE) == JobsMoved()
    add(path, "1\n")
    assert jobs.advance(2.0, NONE).taking


def test_a_file_that_is_gone_or_one_endless_line_is_an_error_of_the_scheduler(path: Path) -> None:
    add(path, "x" * MOST_READ)
    with pytest.raises(SchedulerError, match=f":1: a line of more than {MOST_READ:,} bytes"):
        MainJobsFile(path, NODES).advance(1.0, NONE)
    path.unlink()
    with pytest.raises(SchedulerError, match="main-jobs: No such file"):
        MainJobsFile(path, NODES).advance(1.0, NONE)
