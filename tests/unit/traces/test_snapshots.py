"""Recorded snapshots as logs of idle nodes: whole files, cut-off lines, gaps, rotated files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bftrainer.traces.intervals import Interval, LogError
from bftrainer.traces.logs import Log, LogOptions, load

INF = float("inf")
HEADER = '{"bftrainer_record": 1, "scheduler": "slurm", "version": "0.1.0", "poll_s": 10.0}'
BEGIN = 1763868000.0  # 2025-11-23T04:20:00+01:00


def at(seconds: float, **told: object) -> str:
    minutes, rest = divmod(20 * 60 + seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return json.dumps({"time": f"2025-11-23T{4 + hours:02d}:{minutes:02d}:{rest:06.3f}+01:00", **told})


def state(seconds: float, idle: str, **busy: str) -> str:
    return at(seconds, idle=idle, busy=busy, waiting=1)


def read(folder: Path, *lines: str, end: str = "\n", **options: float) -> Log:
    (folder / "log").write_text("\n".join(lines) + end)
    return load(folder / "log", LogOptions(**options))  # type: ignore[arg-type]


def test_a_series_is_read_with_its_zone_and_what_stays_the_same(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        HEADER,
        state(0, "n[1-2],m7", job="n3", down="n[8-9]"),
        at(10, same=True, waiting=3),
        state(20.5, "n[2-3]", job="n1,m7", down="n[8-9]"),
        at(30, failed=True),
        at(40, same=True),
    )
    assert log.format == "snapshots"
    assert (log.begin, log.end, log.machine_nodes) == (BEGIN, BEGIN + 40, 6)
    assert log.intervals == [
        Interval(BEGIN, BEGIN + 20.5, "m7"),
        Interval(BEGIN, BEGIN + 20.5, "n1"),
        Interval(BEGIN, INF, "n2"),
        Interval(BEGIN + 20.5, INF, "n3"),
    ]
    assert log.notes == ("4 snapshots", "1 poll without an answer: the state before continues")


def test_what_the_batch_system_sums_up_is_told_as_means_over_time(tmp_path: Path) -> None:
    full = {"running": 2, "eligible": 4, "blocked": 1, "wanted": 100, "used": 90, "nodes": 100}
    log = read(
        tmp_path,
        HEADER,
        at(0, idle="n[1-4]", busy={"job": "n[5-9]"}, totals=full),
        at(10, same=True),
        at(20, same=True, totals={**full, "eligible": 0, "wanted": 0, "used": 50}),
        at(40, same=True, totals=None),
        at(100, same=True),
    )
    assert log.notes[1:] == (
        "by the batch system's own count 70.0% of 100 nodes are in use, over time; "
        "4.0 are idle here in the mean",
        "jobs in the mean: 2.0 run, 2.0 are eligible and ask for 50.0 nodes, 1.0 are blocked",
    )


def test_totals_that_are_no_numbers_are_a_broken_line(tmp_path: Path) -> None:
    lines = (state(0, "n1"), at(10, same=True, totals={"used": "many"}), state(20, "n1"), state(30, "n1"))
    log = read(tmp_path, HEADER, *lines, max_broken=0.5)
    assert log.broken == 1
    assert "no numbers of jobs and nodes" in log.examples[0]


def test_where_nothing_was_recorded_nothing_counts_as_idle(tmp_path: Path) -> None:
    log = read(tmp_path, HEADER, state(0, "n1"), at(10, same=True), state(1000, "n1"), at(1010, same=True))
    assert log.intervals == [Interval(BEGIN, BEGIN + 10, "n1"), Interval(BEGIN + 1000, INF, "n1")]
    assert "0.3 h of 0.3 h were not recorded" in log.notes[1]


def test_a_line_that_ends_in_the_middle_costs_no_other(tmp_path: Path) -> None:
    log = read(tmp_path, HEADER, state(0, "n1"), at(10, same=True), state(20, "n2")[:40], end="")
    assert log.intervals == [Interval(BEGIN, INF, "n1")]
    assert (log.broken, log.end) == (0, BEGIN + 10)
    assert log.notes[1] == "1 line is cut off: the recorder was killed there"


def test_what_says_same_after_a_broken_line_is_not_known(tmp_path: Path) -> None:
    lines = (state(0, "n1"), state(10, "n2")[:40], at(20, same=True), state(400, "n1"), at(410, same=True))
    log = read(tmp_path, HEADER, *lines, max_broken=0.5)
    assert log.examples[0].startswith("line 3: ")
    assert log.intervals == [Interval(BEGIN + 400, INF, "n1")], "nobody knows what was idle until then"


@pytest.mark.parametrize(
    "line",
    [
        "[1]",
        at(-5, idle="n1", busy={}),
        json.dumps({"idle": "n1", "busy": {}}),
        json.dumps({"time": 17.0, "idle": "n1", "busy": {}}),
        at(5, idle=["n1"], busy={}),
        at(5, idle="n1", busy="n2"),
        at(5, idle="n1", busy={"job": "@all"}),
        at(5, idle="n1[1-999999999]", busy={}),
    ],
)
def test_lines_that_are_no_snapshots_are_counted(tmp_path: Path, line: str) -> None:
    log = read(tmp_path, HEADER, state(0, "n1"), line, state(10, "n1"), max_broken=0.5)
    assert (log.broken, log.intervals) == (1, [Interval(BEGIN, INF, "n1")])


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="version 2, and 1 is read"):
        read(tmp_path, HEADER.replace("1", "2", 1), state(0, "n1"))


def test_a_folder_of_rotated_files_is_one_log(tmp_path: Path) -> None:
    first, second = "\n".join([HEADER, state(0, "n1"), ""]), "\n".join([HEADER, state(10, "n[1-2]"), ""])
    (tmp_path / "record-20251123T032000Z.jsonl.gz").write_bytes(gzip.compress(first.encode()))
    (tmp_path / "record-20251123T032000Z.jsonl").write_text(first)  # killed while it packed
    (tmp_path / "record-20251123T032010Z.jsonl").write_text(second)
    (tmp_path / ".record-20251123T032010Z.jsonl.gz.17").write_text("half")
    log = load(tmp_path)
    assert log.intervals == [Interval(BEGIN, INF, "n1"), Interval(BEGIN + 10, INF, "n2")]
    assert log.lines == 4


def test_other_folders_are_no_logs(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no folder with files of `bftrainer record`"):
        load(tmp_path)
