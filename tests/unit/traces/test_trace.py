"""Figures of a log, worked out by hand, and the commands that print, convert and generate logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.cli import app
from bftrainer.traces.characteristics import Characteristics, Shorter, characterise, course
from bftrainer.traces.intervals import Interval, LogError, changes, united
from bftrainer.traces.logs import FORMATS, Log, cut, load

INF = float("inf")
TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces"
needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason="the real logs are not beside this checkout")


def log_of(some: list[Interval], begin: float, end: float, machine_nodes: int = 10) -> Log:
    names = frozenset(i.node for i in some)
    return Log(some, names, machine_nodes, "intervals", 0, 0, (), (), begin, end)


def test_figures_worked_out_by_hand() -> None:
    some = [
        Interval(0.0, 7200.0, "a"),  # there from the begin on: no growth
        Interval(1800.0, 3600.0, "b"),
        Interval(3600.0, 5400.0, "c"),  # in its place: no change of the number
        Interval(3600.0, INF, "d"),
        Interval(9000.0, 9030.0, "a"),
    ]
    found = characterise(log_of(some, 0.0, 10_800.0))
    row = found.table1
    # up at 1800, 3600 (2 join, 1 leaves), 9000; down at 5400, 7200, 9030
    assert (row.hours, row.inc_per_h, row.dec_per_h) == (3.0, 1.0, 1.0)
    node_time = 7200 + 1800 + 1800 + 7200 + 30
    assert row.equivalent_nodes == pytest.approx(node_time / 10_800)
    assert row.ratio == pytest.approx(node_time / 10_800 / 10)
    assert (found.join_events_per_h, found.leave_events_per_h) == (1.0, 4 / 3)
    assert (found.fragments, found.cut, found.mean_fragment_s) == (5, 2, node_time / 5)
    assert found.shorter[0] == Shorter(60, 0.2, pytest.approx(30 / node_time))
    assert found.shorter[6] == Shorter(7200, 0.6, pytest.approx(3630 / node_time))
    assert found.fragment_percentiles_s[50] == 1800.0
    assert found.node_time_percentiles_s[25] == 7200.0
    # 1 node for 1800 + 1800 + 1770 s, 2 for 1800 + 1800 + 30, 3 for 1800
    assert {p: found.pool_percentiles[p] for p in (0, 50, 75, 90, 100)} == {0: 1, 50: 2, 75: 2, 90: 3, 100: 3}
    assert found.empty_share == 0.0


def test_an_empty_pool_is_seen_and_a_log_of_no_time_refused() -> None:
    assert characterise(log_of([Interval(30.0, 40.0, "a")], 0.0, 100.0)).empty_share == pytest.approx(0.9)
    with pytest.raises(LogError, match="spans no time"):
        characterise(log_of([Interval(5.0, INF, "a")], 5.0, 5.0))


SOME = st.lists(
    st.tuples(st.integers(0, 90), st.integers(1, 40), st.sampled_from("abcd")), min_size=1, max_size=25
).map(lambda rows: united(Interval(float(s), float(s + n), node) for s, n, node in rows))


@given(SOME)
def test_the_course_of_the_pool_is_that_of_a_replay(some: list[Interval]) -> None:
    pool = course(cut(log_of(some, 0.0, 131.0), 10.0, 90 / 3600, None))
    idle: set[str] = set()
    sizes = {}
    for change in changes(some, frozenset("abcd"), 10.0, 100.0):
        idle = (idle - change.left) | change.joined
        sizes[change.time] = len(idle)
    ours = dict(zip(pool.times[:-1].tolist(), pool.sizes.tolist(), strict=True))
    assert all(ours[time] == size for time, size in sizes.items())
    assert pool.times[0] == 10.0 and pool.times[-1] == 100.0


@needs_traces
def test_the_published_week() -> None:
    found = characterise(load(TRACES / "summit-2021" / "idle_intervals_2021-02-10_16.csv.xz"))
    assert found.fragments == 209_182
    # counted in another way: 7,157 moments after the first with starts, 5,245 with ends before the last
    assert found.join_events_per_h == pytest.approx(7157 / found.table1.hours)
    assert found.leave_events_per_h == pytest.approx(5245 / found.table1.hours)
    assert found.table1.equivalent_nodes == pytest.approx(346.57, abs=0.01)
    assert found.shorter[3].fragments == pytest.approx(0.595, abs=0.001)


# --- commands ------------------------------------------------------------------------------------

CSV = "idle_start,idle_end,node\n0,3600,a\n600,1200,b\n7200,,b\n7000,7200,c\n"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["trace", *map(str, arguments)])


def test_info_prints_tables_and_json(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(CSV)
    table = run("info", path, "--machine-nodes", 6).output
    assert "INC/h" in table and "10 min" in table and "no idle node" in table
    found = json.loads(run("info", path, "--machine-nodes", 6, "--json").output)
    assert found["table1"]["ratio"] == pytest.approx(4400 / 7200 / 6)
    assert found["log"]["format"] == "intervals" and found["log"]["nodes"] == 3
    assert set(Characteristics.__slots__) < set(found)


def test_info_tells_what_it_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(CSV + "broken\n")
    refused = run("info", path)
    assert isinstance(refused.exception, LogError) and "1 of 6 lines" in str(refused.exception)
    done = CliRunner().invoke(app, ["trace", "info", str(path), "--max-broken", "0.2"])
    assert done.exit_code == 0 and "line 6: 'broken' is no interval" in done.output


def test_info_draws(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(CSV)
    assert run("info", path, "--png", tmp_path / "x.png").exit_code == 0
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    refused = run("info", path, "--png", tmp_path / "x.nonsense")
    assert refused.exit_code and "must end in .png" in " ".join(refused.output.split())
    refused = run("info", tmp_path / "log", "--png", tmp_path / "no" / "x.png")
    assert refused.exit_code and "there is no folder" in refused.output


def test_convert_writes_what_any_log_says(tmp_path: Path) -> None:
    text = "; MaxNodes: 3\n1 0 0 3600 2 " + "-1 " * 13 + "\n2 7200 0 3600 3 " + "-1 " * 13 + "\n"
    (tmp_path / "log").write_text(text)
    assert run("convert", tmp_path / "log", tmp_path / "out.csv.gz").exit_code == 0
    assert (
        run("convert", tmp_path / "out.csv.gz", tmp_path / "two.csv", "--nodes", 2, "--hours", 1.5).exit_code
        == 0
    )
    assert (tmp_path / "two.csv").read_text() == "idle_start,idle_end,node\n3600,5400,n01\n3600,5400,n02\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log", "out.csv.gz", "two.csv"]


@pytest.mark.parametrize(
    "options",
    [
        ("--from", "2021-02-11"), ("--nodes", "9"), ("--hours", "99"), ("--format", "swf"),
        ("--min-gap", "nan"), ("--max-broken", "2"),
    ],
)  # fmt: skip
def test_convert_refuses_what_the_log_has_not(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "log").write_text(CSV)
    assert run("convert", tmp_path / "log", tmp_path / "out", *options).exit_code != 0
    assert not (tmp_path / "out").exists()


def test_synth_writes_a_log_and_the_same_again(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        done = run(
            "synth", tmp_path / name, "--profile", "small", "--nodes", 30, "--hours", 24, "--seed", seed
        )
        assert done.exit_code == 0
    first, again, other = ((tmp_path / name).read_bytes() for name in "abc")
    assert first == again != other
    assert load(tmp_path / "a").broken == 0


def test_help_names_all_formats() -> None:
    shown = run("info", "--help").output
    assert all(name in shown for name in FORMATS)
