"""Idle-interval logs: what is read, what is refused, and what is written."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.errors import BftrainerError
from bftrainer.traces import intervals
from bftrainer.traces.intervals import Interval, LogError
from bftrainer.traces.logs import Log, LogOptions, cut, load

INF = float("inf")
STRICT = LogOptions(max_broken=0.0)
NAMED = LogOptions(format="intervals", max_broken=0.0)
LOG = "idle_start,idle_end,node,left_censored\n10,20.5,a,0\n15,,b,1\n"


def read(path: Path, text: str, options: LogOptions = STRICT) -> Log:
    path.write_text(text)
    return load(path, options)


@pytest.mark.parametrize("packed", [None, gzip.compress, lzma.compress])
def test_logs_are_read_plain_and_packed_whatever_their_name(tmp_path: Path, packed: object) -> None:
    path = tmp_path / "log"
    path.write_bytes(packed(LOG.encode()) if callable(packed) else LOG.encode())
    log = load(path)
    assert log.intervals == [Interval(10.0, 20.5, "a"), Interval(15.0, INF, "b")]
    assert (log.format, log.begin, log.end, log.nodes) == ("intervals", 10.0, 20.5, {"a", "b"})
    assert (log.lines, log.broken, log.machine_nodes) == (3, 0, 2)


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    log = read(tmp_path / "log.csv", 'node,x,idle_end,idle_start\n"a,b",?,2,1\n')
    assert log.intervals == [Interval(1.0, 2.0, "a,b")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ": the file is empty"),
        (
            "start,end,node\n1,2,a\n",
            ":1: its columns are ['start', 'end', 'node'], and",
        ),
        (
            "idle_start,idle_end,node\n1,2,a\n1,x,a\n",
            ":3: '1,x,a' is no interval; expected start and end in Unix",
        ),
        ("idle_start,idle_end,node\n1,2\n", ":2: '1,2'"),
        ("idle_start,idle_end,node\n3,2,a\n", ":2: '3,2,a': the end is before the start, or no node"),
        ("idle_start,idle_end,node\nnan,2,a\n", ":2: 'nan,2,a': the end is before the start, or no node"),
        ("idle_start,idle_end,node\ninf,inf,a\n", ":2: 'inf,inf,a': the end is before the start, or no node"),
        ("idle_start,idle_end,node\n1,2,\n", ":2: '1,2,': the end is before the start, or no node"),
        ("idle_start,idle_end,node\n,2,a\n", ":2: ',2,a' is no interval"),
    ],
)
def test_bad_logs_are_refused_with_file_and_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "log.csv"
    with pytest.raises(LogError) as error:
        read(path, text, NAMED)
    assert str(error.value).startswith(f"{path}{said}")
    assert isinstance(error.value, BftrainerError)


def test_a_few_broken_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    text = (
        "idle_start,idle_end,node\n"
        + "".join(f"{i},{i}.5,a\n" for i in range(50))
        + '\n7,\n8,9,"b\n3,4,b\n'
        + "x\n" * 3
    )
    log = read(tmp_path / "log", text, LogOptions(max_broken=0.1))
    assert (log.lines, log.broken, len(log.intervals)) == (57, 4, 52)
    assert [example[:8] for example in log.examples] == ["line 53:", "line 56:", "line 57:"]
    with pytest.raises(LogError) as error:
        load(tmp_path / "log", LogOptions(max_broken=0.05))
    said = str(error.value)
    assert said.startswith(f"{tmp_path / 'log'}:53: '7,'")
    assert "4 of 57 lines (7.0%)" in said and "--max-broken 0.05" in said


def test_overlapping_intervals_of_a_node_are_one(tmp_path: Path) -> None:
    log = read(tmp_path / "log", "idle_start,idle_end,node\n5,9,a\n1,6,a\n2,3,a\n9,12,a\n1,2,b\n")
    assert log.intervals == [Interval(1.0, 2.0, "b"), Interval(1.0, 9.0, "a"), Interval(9.0, 12.0, "a")]
    assert log.notes == ("2 intervals overlap another of the same node; united",)


def test_short_gaps_are_dropped(tmp_path: Path) -> None:
    text = "idle_start,idle_end,node\n1,11,a\n20,29,a\n40,40,a\n50,,b\n"
    assert len(read(tmp_path / "log", text).intervals) == 3
    log = load(tmp_path / "log", LogOptions(min_gap_s=10.0))
    assert log.intervals == [Interval(1.0, 11.0, "a"), Interval(50.0, INF, "b")]


def test_the_machine_is_not_smaller_than_the_log(tmp_path: Path) -> None:
    assert read(tmp_path / "log", LOG, LogOptions(machine_nodes=7)).machine_nodes == 7
    with pytest.raises(LogError, match="a machine of 1 nodes cannot be: the log names 2"):
        load(tmp_path / "log", LogOptions(machine_nodes=1))


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(LOG.encode())[:-9],
        lzma.compress(LOG.encode())[:-9],
        b"\x1f\x8b\x08junk",
        b"idle_start,\xff\xfe",
        b"idle_start,idle_end,node\n",
        b"\0" * 100,
    ],
    ids=["gzip cut off", "xz cut off", "no gzip", "no text", "no intervals", "zeros"],
)
def test_broken_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    for options in (STRICT, NAMED):
        with pytest.raises(LogError, match=str(path)):
            load(path, options)


def test_damaged_gzip_is_refused(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(LOG.encode() * 100))
    packed[12:20] = b"\xff" * 8
    (tmp_path / "log").write_bytes(bytes(packed))
    with pytest.raises(LogError):
        load(tmp_path / "log", NAMED)


def test_a_missing_log_and_an_unknown_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"none\.csv"):
        load(tmp_path / "none.csv")
    with pytest.raises(LogError, match=r"of no known format\. If it is one of intervals, swf, sacct"):
        read(tmp_path / "log", "what is this?\n")


SOME = st.lists(
    st.tuples(st.integers(0, 99), st.integers(1, 50), st.sampled_from("abc")), min_size=1, max_size=20
).map(lambda rows: intervals.united(Interval(float(s), float(s + n), node) for s, n, node in rows))


@given(SOME)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, some: list[Interval]
) -> None:
    folder = tmp_path_factory.mktemp("out")
    for suffix in ("csv", "csv.gz", "csv.xz"):
        intervals.write(folder / f"log.{suffix}", some, 1e9)
        assert load(folder / f"log.{suffix}", STRICT).intervals == some
    assert len(list(folder.iterdir())) == 3


def test_writing_leaves_nothing_half_done(tmp_path: Path) -> None:
    def broken(done: float) -> None:
        raise KeyboardInterrupt

    (tmp_path / "log").write_text("before")
    with pytest.raises(KeyboardInterrupt):
        intervals.write(tmp_path / "log", [Interval(0.0, 1.0, "a")], 1.0, broken)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["before"]
    with pytest.raises(LogError, match="Name another place to write to"):
        intervals.write(tmp_path / "no" / "log", [], 1.0)


def test_a_log_can_be_cut(tmp_path: Path) -> None:
    text = "idle_start,idle_end,node\n0,7200,a\n0,1000,b\n4000,,c\n3000,5000,b\n"
    log = read(tmp_path / "log", text)
    part = cut(log, 1000.0, 1.0, None)
    assert part.intervals == [
        Interval(1000.0, INF, "a"), Interval(4000.0, INF, "c"), Interval(3000.0, INF, "b")
    ]  # fmt: skip
    assert (part.begin, part.end, part.machine_nodes) == (1000.0, 4600.0, 3)
    two = cut(log, None, None, 2)
    assert (two.nodes, two.machine_nodes, len(two.intervals)) == ({"a", "b"}, 2, 3)
    for begin, hours in ((-1.0, None), (7200.0, None), (0.0, 2.1)):
        with pytest.raises(LogError, match="the log spans 1970-01-01T00:00:00 to 1970-01-01T02:00:00 UTC"):
            cut(log, begin, hours, None)
