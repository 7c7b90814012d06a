"""Reports: one page that needs nothing else, and pictures that show what the record says."""

from __future__ import annotations

import itertools
import re
from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.colors import to_rgb

from bftrainer.cli.report_command import command
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import Cost, RescaleCosts, TrainerSpec
from bftrainer.replay.figures import figures_of
from bftrainer.replay.loop import replay
from bftrainer.replay.record import storage
from bftrainer.replay.record.data import ReportData, Stays
from bftrainer.replay.record.recorder import Recorder
from bftrainer.replay.record.windows import window_s
from bftrainer.replay.report import course, drawing, report, summary, timeline
from bftrainer.replay.report.report import ReportError, ReportPage
from bftrainer.replay.workload import Submission
from bftrainer.traces import intervals
from bftrainer.traces.intervals import Interval

SETTINGS = EngineSettings(allocator="knapsack", max_parallel=2)
PNG = b"\x89PNG\r\n\x1a\n"


def recorded(
    name: str = "one", log: list[Interval] | None = None, jobs: int = 3, **parameters: object
) -> ReportData:
    found = log or [Interval(0, 8e4, "n1"), Interval(2e4, 6e4, "n2"), Interval(1e4, 3e4, "n10")]
    costs = RescaleCosts(up=Cost(stall_s=20.0), down=Cost(stall_s=10.0))
    spec = TrainerSpec(
        name="t", command=(), n_min=1, n_max=2, samples=300_000, curve=((2, 20.0),), costs=costs
    )
    workload = [Submission(0.0, spec, f"model {i}") for i in range(jobs)]
    changes = intervals.changes(found, frozenset(i.node for i in found), 0.0, 9e4)
    recorder = Recorder(0.0, 9e4)
    result = replay(changes, workload, SETTINGS, 0.0, 9e4, observer=recorder)
    figures = figures_of(result, workload, SETTINGS)
    return recorder.report_data(name, {"nodes": 3, **parameters}, figures, result, workload, SETTINGS)


ONE = recorded("one", allocator="milp")
TWO = recorded("<b>two</b> & more", jobs=1, allocator="equal")


@pytest.fixture(scope="module")
def made() -> ReportPage:
    return report.make([ONE, TWO], "Title <i>")


def test_the_page_needs_nothing_else(made: ReportPage) -> None:
    html = made.html
    assert "<script" not in html
    assert "<link" not in html
    assert "http" not in re.sub(r'src="data:[^"]*"', "", html)
    assert "url(" not in html
    sources = re.findall(r'<img src="([^"]*)"', html)
    assert sources
    for source in sources:
        kind, _, data = source.partition(",")
        assert kind == "data:image/png;base64"
        assert b64decode(data).startswith(PNG)


def test_what_users_named_is_shown_as_they_wrote_it(made: ReportPage) -> None:
    html = made.html
    assert "<b>two" not in html
    assert "&lt;b&gt;two&lt;/b&gt; &amp; more" in html
    assert "<title>Title &lt;i&gt;</title>" in html


def test_the_page_shows_what_is_asked_of_it(made: ReportPage) -> None:
    names = [picture.name for picture in made.pictures]
    assert names == [
        "efficiency",
        "costs",
        "completion-times",
        "comparison",
        "01-one-pool",
        "01-one-timeline",
        "02-b-two-b-more-pool",
        "02-b-two-b-more-timeline",
    ]
    figures = ONE.figures
    assert f"{figures['efficiency_u']:.1%}" in made.html
    assert f"{figures['samples']:,.0f}" in made.html
    rows = re.findall(
        r"<tr><td>(\w+)</td><td class=\"n\">(\w+)</td><td class=\"n\">(\w+)</td></tr>", made.html
    )
    assert rows == [("allocator", "milp", "equal")]
    assert "Mean runtime of completed trainers, by model" in made.html


def test_one_run_has_no_comparison() -> None:
    made = report.make([recorded()], "x")
    assert "comparison" not in {picture.name for picture in made.pictures}
    assert "What differs" not in made.html


def test_the_same_records_make_the_same_page(made: ReportPage) -> None:
    assert report.make([ONE, TWO], "Title <i>") == made


def test_odd_replays_make_a_page_too() -> None:
    odd = [
        recorded(jobs=0),
        recorded(log=[Interval(1e5, 2e5, "a")]),
        replace(ONE, name="x" * 300),
        replace(ONE, name="_$\\frac{$ %s {{ }}"),
    ]
    made = report.make(odd, "x")
    for picture in made.pictures:
        assert picture.png.startswith(PNG)
        assert re.fullmatch(r"[\w.=-]{1,80}", picture.name)
    assert len({picture.name for picture in made.pictures}) == 4 * 2 + 4
    for name in ("<h2>one (1)</h2>", "<h2>one (2)</h2>"):  # two of the same name are numbered
        assert name in made.html


def test_what_legends_say() -> None:
    nothing = replace(ONE, figures={**ONE.figures, "rescale_samples": 0.0, "preemption_samples": 0.0})
    assert course._losses(nothing) == "one: 0 samples by rescales, 0 by nodes taken away"
    assert re.fullmatch(r"one: U [\d.]+%, E [\d.]+%", course._efficiencies(ONE))


def test_windows_without_samples_are_0_and_without_nodes_a_gap() -> None:
    idle, empty = (replace(ONE.windows[0], efficiency_u=None, nodes=nodes) for nodes in (2.0, 0.0))
    shares = course._shares(replace(ONE, windows=(idle, empty)), "efficiency_u")
    assert shares == [0.0, pytest.approx(np.nan, nan_ok=True)]


def test_no_two_runs_look_alike_and_neighbours_have_other_dashes() -> None:
    styles = [style for style, _ in zip(drawing.styles(), range(drawing.MOST), strict=False)]
    assert len({str(style) for style in styles}) == drawing.MOST
    assert all(a["linestyle"] != b["linestyle"] for a, b in itertools.pairwise(styles))


@pytest.mark.parametrize(("hours", "window"), [(1, "7.5 minutes"), (16, "2 hours"), (72, "6 hours")])
def test_the_windows_of_short_replays_are_short(hours: float, window: str) -> None:
    first = replace(ONE.windows[0], begin=0.0, end=window_s(hours * 3600))
    assert course.window_words([replace(ONE, windows=(first,))]) == window


def test_parameters_as_people_read_them() -> None:
    run = recorded(max_parallel=None, ageing_s=None, hours=None, begin=86_400.0, node_classes={})
    assert summary.parameters(run) == {
        "nodes": "3",
        "max_parallel": "auto",
        "ageing_s": "never",
        "begin": "1970-01-02 00:00",
    }


def test_runs_of_one_name_can_be_told_apart_even_where_it_is_cut() -> None:
    names = ["x" * 60, "x" * 60, "one", "one", "one (1)"]
    found = [run.name for run in report._distinct([replace(ONE, name=name) for name in names])]
    assert found == [f"{names[0]} (1)", f"{names[0]} (2)", "one (2)", "one (3)", "one (1)"]
    assert len({drawing.cut(name) for name in found}) == 5


def test_a_page_goes_into_a_folder_that_is_there(tmp_path: Path) -> None:
    storage.write(ONE, tmp_path / "one.json.gz")
    done = CliRunner().invoke(command, [str(tmp_path), "--out", str(tmp_path / "no" / "r.html")])
    assert done.exit_code and "there is no folder" in done.output and not (tmp_path / "no").exists()
    done = CliRunner().invoke(command, [str(tmp_path), "--out", str(tmp_path / "r.html")])
    assert done.output.startswith("1 run in ")


# --- the timeline --------------------------------------------------------------------------------


def test_the_timeline_has_nodes_by_name_and_the_right_colours_at_the_right_time() -> None:
    """n1 has a trainer all the time, n2 is unused from 4e4 to 6e4, n10 is with the main scheduler."""
    stays = [(0, 0, 0, 9e4), (0, 1, 0, 9e4), (1, 0, 2e4, 6e4), (1, 2, 2e4, 4e4), (2, 0, 0, 100)]
    found = replace(
        recorded(),
        nodes=("n1", "n2", "n10"),
        stays=Stays(*np.array(stays, dtype=float).T),
    )
    image = timeline.raster(found)
    assert image.shape == (3, timeline.COLUMNS, 3)

    def at(line: int, time: float) -> tuple[float, ...]:
        return tuple(image[line, int(time / 9e4 * timeline.COLUMNS)])

    first, second, unused = (
        pytest.approx(to_rgb(c), abs=1e-6) for c in (drawing.COLOURS[0], drawing.COLOURS[1], drawing.UNUSED)
    )
    assert at(0, 100) == at(0, 8.9e4) == first
    assert at(1, 1.9e4) == (1, 1, 1)
    assert at(1, 2.1e4) == at(1, 3.9e4) == second
    assert at(1, 4.1e4) == at(1, 5.9e4) == unused
    assert at(1, 6.1e4) == (1, 1, 1)
    assert at(2, 10) == unused
    assert at(2, 1e4) == (1, 1, 1)


def test_a_timeline_of_many_nodes_has_no_more_lines_than_can_be_seen() -> None:
    log = [Interval(0, 1000, f"n{i}") for i in range(1500)]
    assert timeline.raster(recorded(log=log)).shape == (timeline.ROWS, timeline.COLUMNS, 3)


def test_names_are_ordered_by_their_numbers() -> None:
    names = ["n10", "n2", "a03n1", "a3n0"]
    assert sorted(names, key=drawing.natural) == ["a3n0", "a03n1", "n2", "n10"]


# --- files ---------------------------------------------------------------------------------------


def test_reports_of_files_folders_and_sweeps(tmp_path: Path) -> None:
    for new in ("d", "s/records"):
        (tmp_path / new).mkdir(parents=True)
    for path, name in (("x.json.gz", "x"), ("d/b.json.gz", "run 10"), ("s/records/a.json.gz", "run 1")):
        storage.write(recorded(name), tmp_path / path)
    storage.write(replace(ONE, name="run 2"), tmp_path / "d" / "c.json.gz")
    paths = [str(tmp_path / name) for name in ("x.json.gz", "d", "s")]
    out, png = tmp_path / "r.html", tmp_path / "png"
    done = CliRunner().invoke(command, [*paths, "--out", str(out), "--png", str(png)])
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"4 runs in {out}, 12 pictures in {png}")
    order = re.findall(r"<h2>(x|run \d+)</h2>", out.read_text())
    assert order == ["x", "run 2", "run 10", "run 1"]
    assert len(list(png.iterdir())) == 12
    for file in png.iterdir():
        assert file.read_bytes().startswith(PNG)


def test_what_cannot_be_reported_on_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ReportError, match=r"no records in it. Add some with bftrainer sweep --record"):
        report.read([tmp_path])
    storage.write(recorded(), tmp_path / "a.json.gz")
    storage.write(recorded(), tmp_path / "b.json.gz")
    monkeypatch.setattr(drawing, "MOST", 1)
    with pytest.raises(ReportError, match=r"2 runs, .* and at most 1 are taken"):
        report.read([tmp_path])
    (tmp_path / "file").write_text("")
    with pytest.raises(ReportError, match="file"):
        report.write(ReportPage("", ()), tmp_path / "file" / "r.html")


def test_a_replay_without_any_node_makes_pictures() -> None:
    empty = tuple(
        replace(window, nodes=0.0, efficiency_u=None, linear_efficiency=None) for window in ONE.windows
    )
    assert course.efficiency([replace(ONE, windows=empty)]).png.startswith(PNG)
