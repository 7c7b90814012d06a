"""Sweeps: what a description means, what is run again and what is not, and the rows that come of it."""

from __future__ import annotations

import csv
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from bftrainer.cli.sweep_command import command
from bftrainer.replay import scenario
from bftrainer.replay.evaluate import evaluate
from bftrainer.replay.scenario import ScenarioError
from bftrainer.replay.sweep import execute, grid, sweep
from bftrainer.replay.sweep.grid import SweepError, SweepRun
from bftrainer.replay.sweep.pool import Rows
from bftrainer.settings.values import Settings

LOG = "idle_start,idle_end,node\n0,1000,a\n200,600,b\n300,1000,c\n"
JOBS = "job,Tcup,Tcdw,Jmin,Jmax,Pmax,Tsub,model\n" + "".join(
    f"j{i},2,1,1,4,2000,1970-01-01 00:00:0{i},m\n" for i in range(4)
)
CURVES = "model,nodes,images_per_s\nm,1,10\nm,4,36\n"
BASE = "base: {log: log.csv, workload: jobs.csv, curves: curves.csv}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("log.csv", LOG), ("jobs.csv", JOBS), ("curves.csv", CURVES)):
        (tmp_path / name).write_text(text)
    return tmp_path


def read(folder: Path, text: str) -> list[SweepRun]:
    (folder / "grid.yaml").write_text(text)
    return grid.read(folder / "grid.yaml")


def at_once(jobs: Sequence[SweepRun], records: Path | None) -> Rows:
    """A pool without processes."""
    for job in jobs:
        yield execute.execute(job, records)


# --- descriptions --------------------------------------------------------------------------------


def test_a_grid_is_every_combination_and_runs_come_on_top(folder: Path) -> None:
    jobs = read(
        folder,
        BASE + "grid: {allocator: [knapsack, equal], t_fwd_s: [10, auto]}\nruns: [{nodes: 2, pick: 7}, {}]\n",
    )
    assert [job.name for job in jobs] == [
        "allocator=knapsack, t_fwd_s=10",
        "allocator=knapsack, t_fwd_s=auto",
        "allocator=equal, t_fwd_s=10",
        "allocator=equal, t_fwd_s=auto",
        "nodes=2, pick=7",
        "grid",
    ]
    engines = [job.scenario.settings.engine for job in jobs]
    assert [(e.allocator, e.t_fwd_s) for e in engines[:4]] == [
        ("knapsack", 10.0),
        ("knapsack", None),
        ("equal", 10.0),
        ("equal", None),
    ]
    assert (jobs[4].scenario.nodes, jobs[4].scenario.pick) == (2, 7)
    assert all(job.scenario.log == folder / "log.csv" for job in jobs)
    assert len({job.key for job in jobs}) == len(jobs)


def test_the_same_run_is_run_once(folder: Path) -> None:
    assert len(read(folder, BASE + "grid: {t_fwd_s: [10, 10.0]}\nruns: [{t_fwd_s: 10}]\n")) == 1
    assert len(read(folder, BASE)) == 1
    assert len(read(folder, BASE + "runs: [{jobs: 1}]\n")) == 1


def test_a_key_tells_parameters_and_files(folder: Path) -> None:
    before = read(folder, BASE)[0].key
    assert read(folder, BASE + "runs: [{cost_scale: 1}]\n")[0].key == before
    assert read(folder, BASE + "runs: [{cost_scale: 2}]\n")[0].key != before
    (folder / "log.csv").write_text(LOG + "0,9,z\n")
    assert read(folder, BASE)[0].key != before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- 1\n", "list: this is no mapping with the parts base, grid, runs"),
        ("", "NoneType: this is no mapping with the parts base, grid, runs"),
        ("grids: {}\n", "unknown part 'grids'"),
        (BASE + "grid: {t_fwd: [1]}\n", "grid: unknown parameter 't_fwd'. Give 't_fwd_s'"),
        (
            BASE + "runs: [{allocatr: milp}]\n",
            "runs: unknown parameter 'allocatr'. Give 'allocator'",
        ),
        (BASE + "runs: [{poll_s: 1}]\n", "runs: unknown parameter 'poll_s'"),
        (BASE + "grid: {t_fwd_s: 10}\n", "grid: t_fwd_s: 10: this is no list of values"),
        (BASE + "grid: {t_fwd_s: []}\n", "grid: t_fwd_s: []: this is no list of values"),
        (BASE + "grid: [1]\n", "base or grid: this is no mapping, lines of 'parameter: value'"),
        (BASE + "runs: {nodes: 1}\n", "runs: this is no list"),
        (BASE + "grid: {t_fwd_s: [10, -1]}\n", "t_fwd_s=-1: t_fwd_s: -1: input should be greater than 0"),
        (BASE + "grid: {allocator: [best]}\n", "allocator=best: allocator: 'best': input should be 'auto'"),
        (BASE + "grid: {objective: [speed]}\n", "objective=speed: objective: 'speed': "),
        (BASE + "grid: {nodes: [0]}\n", "nodes=0: nodes: 0: input should be greater than or equal to 1"),
        (BASE + "grid: {max_broken: [lots]}\n", "max_broken=lots: max_broken: 'lots': "),
        (
            BASE + "grid: {max_broken: [2]}\n",
            "max_broken=2: max_broken: 2.0 cannot be used. ",
        ),
        (
            BASE + "grid: {min_gap_s: [.nan]}\n",
            "min_gap_s=nan: min_gap_s: nan cannot be used. ",
        ),
        (
            BASE + "grid: {format: [slurm]}\n",
            "format=slurm: format: 'slurm' cannot be used. Give",
        ),
        (BASE + "grid: {begin: [yesterday]}\n", "begin=yesterday: begin: 'yesterday': invalid isoformat"),
        ("grid: {t_fwd_s: [10]}\n", "t_fwd_s=10: log is missing; workload is missing"),
        ("{a: [\n", "grid.yaml:2: not YAML: "),
    ],
)
def test_bad_descriptions_are_refused(folder: Path, text: str, said: str) -> None:
    with pytest.raises((SweepError, ScenarioError)) as error:
        read(folder, text)
    assert str(error.value).startswith(f"{folder}/grid.yaml:")
    assert said in str(error.value)


def test_parameters_make_the_same_scenario_again(folder: Path) -> None:
    for job in read(
        folder,
        BASE
        + "runs: [{begin: 1970-01-01T00:01:00, hours: 0.1, t_fwd_s: auto, max_parallel: null, init_s: 3,"
        + " node_classes: {fat: 'n[01-08]'}, format: intervals, max_broken: 0.5}]\n",
    ):
        assert job.scenario.begin == 60.0
        assert job.scenario.settings.max_parallel is None
        again = scenario.of(job.scenario.parameters)
        assert again.parameters == job.scenario.parameters
        assert (again.reading, again.changes) == (job.scenario.reading, job.scenario.changes)
        assert again.settings.engine == job.scenario.settings.engine


def test_settings_hold_where_nothing_is_said(folder: Path) -> None:
    (folder / "grid.yaml").write_text(BASE + "grid: {t_fwd_s: [10]}\n")
    (job,) = grid.read(folder / "grid.yaml", Settings(max_parallel=3, t_fwd_s=99))
    assert (job.scenario.settings.max_parallel, job.scenario.settings.t_fwd_s) == (3, 10.0)


# --- runs ----------------------------------------------------------------------------------------

GRID = BASE + "grid: {allocator: [knapsack, equal], cost_scale: [0, 1]}\n"


def stored(folder: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(folder / "results.sqlite") as db:
        return db.execute("SELECT name, error, efficiency_u, runtime_h_mean FROM runs").fetchall()


def test_rows_have_parameters_and_figures_in_csv_and_sqlite(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    jobs = read(folder, GRID)
    rows = sweep.sweep(jobs, folder / "out", at_once, progress=lambda *now: seen.append(now))
    assert seen == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]
    assert [row["name"] for row in rows] == [job.name for job in jobs]
    assert [(row["allocator"], row["cost_scale"]) for row in rows] == [
        ("knapsack", 0),
        ("knapsack", 1),
        ("equal", 0),
        ("equal", 1),
    ]
    assert rows[0]["stall_node_hours"] == 0 < rows[1]["stall_node_hours"]
    assert rows[0]["pid"] == os.getpid()
    assert {"runtime_h_mean", "runtime_by_model_h_m", "decision_ms_p99", "broken_log_lines"} <= rows[0].keys()
    with (folder / "out" / "results.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [float(line["efficiency_u"]) for line in lines] == [row["efficiency_u"] for row in rows]
    assert len(stored(folder / "out")) == 4


def test_what_is_done_is_not_run_again(folder: Path) -> None:
    jobs = read(folder, GRID)
    first = sweep.sweep(jobs[:3], folder / "out", at_once)
    ran: list[str] = []

    def watched(todo: Sequence[SweepRun], records: Path | None) -> Rows:
        ran.extend(job.name for job in todo)
        yield from at_once(todo, records)

    rows = sweep.sweep(jobs, folder / "out", watched)
    assert ran == [jobs[3].name]
    assert rows[:3] == first
    assert sweep.sweep(jobs[1:2], folder / "out", watched) == [rows[1]]
    with (folder / "out" / "results.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 1  # of the latest description
    assert len(stored(folder / "out")) == 4


def test_records_are_kept_on_demand_even_of_runs_that_are_done(folder: Path) -> None:
    jobs = read(folder, GRID)[:2]
    sweep.sweep(jobs, folder / "out", at_once)
    sweep.sweep(jobs, folder / "out", at_once, keep_records=True)
    found = {path.name for path in (folder / "out" / "records").iterdir()}
    assert found == {f"{job.key}.json.gz" for job in jobs}


def test_an_interrupted_sweep_keeps_what_it_has(folder: Path) -> None:
    def interrupted(todo: Sequence[SweepRun], records: Path | None) -> Rows:
        yield execute.execute(todo[0], records)
        raise KeyboardInterrupt

    jobs = read(folder, GRID)
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep(jobs, folder / "out", interrupted)
    with (folder / "out" / "results.csv").open() as file:
        assert [line["name"] for line in csv.DictReader(file)] == [jobs[0].name]
    assert len(stored(folder / "out")) == 1
    assert len(sweep.sweep(jobs, folder / "out", at_once)) == 4


def test_a_run_that_fails_is_a_row_and_is_tried_again(folder: Path) -> None:
    jobs = read(folder, BASE + "grid: {nodes: [9, 2]}\n")
    bad, good = sweep.sweep(jobs, folder / "out", at_once)
    assert bad["error"].startswith("9 nodes are asked for, and the log has 3. Ask for at most that many")
    assert (bad["efficiency_u"], bad["nodes"], good["error"]) == (None, 9, None)
    mended = execute.execute(jobs[1], None) | {"key": jobs[0].key}
    assert sweep.sweep(jobs, folder / "out", lambda todo, records: (mended for _ in todo))[0]["error"] is None
    assert len(stored(folder / "out")) == 2


def test_a_run_that_crashes_is_a_row_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*args: object, **options: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(execute, "evaluate", crash)
    row = execute.execute(read(folder, BASE)[0], None)
    assert "ZeroDivisionError: oh" in row["error"]
    assert row["log"] == str(folder / "log.csv")


def test_a_folder_that_cannot_be_written_is_refused(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(SweepError, match="Name another place"):
        sweep.sweep([], folder / "file", at_once)
    (folder / "results.sqlite").write_text("no database " * 100)
    with pytest.raises(SweepError, match="Name another place"):
        sweep.sweep([], folder, at_once)


def test_every_parameter_and_figure_is_documented(folder: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "replay.md").read_text()
    for name in (*scenario.OWN, *scenario.READING):
        assert f"`{name}`" in page, name
    figures = evaluate(read(folder, BASE)[0].scenario).figures
    for name in figures:
        assert f"`{name}`" in page, name


def test_open_settings_are_written_as_their_word_and_all_columns_are_there(folder: Path) -> None:
    jobs = read(folder, BASE + "grid: {max_parallel: [auto, 2]}\n")
    rows = sweep.sweep(jobs, folder / "out", at_once)
    with (folder / "out" / "results.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["max_parallel"] for line in lines] == ["auto", "2"]
    assert lines[0].keys() == rows[0].keys() >= {"error", "rank"}


def test_files_that_do_not_exist_are_found_before_anything_runs(folder: Path) -> None:
    with pytest.raises(SweepError, match=r"workload: .*/none\.csv: there is no such file"):
        read(folder, BASE + "grid: {workload: [jobs.csv, none.csv]}\n")
    deep = "/".join(["deep"] * 40) + "/none.csv"
    with pytest.raises(SweepError, match=rf"workload: .*{deep}: there is no such file"):
        read(folder, BASE + f"grid: {{workload: [jobs.csv, {deep}]}}\n")


def test_the_table_has_the_parameters_that_differ_and_errors_below(folder: Path) -> None:
    (folder / "grid.yaml").write_text(BASE + "grid: {nodes: [9, 2], max_parallel: [auto]}\n")
    done = CliRunner().invoke(command, [str(folder / "grid.yaml"), "--jobs", "1"], env={"COLUMNS": "200"})
    assert done.stderr.splitlines()[0] == f"2 runs in {folder / 'grid.yaml'}"
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["nodes", "max_parallel", "U"]
    assert [line.split()[:2] for line in lines[1:3]] == [["9", "auto"], ["2", "auto"]]
    assert lines[3].startswith("nodes=9, max_parallel=auto: 9 nodes are asked for, and the log has 3")
    assert done.exit_code == 1


def test_a_description_of_too_many_runs_is_refused_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = ", ".join(map(str, range(1, 5001)))
    with pytest.raises(
        SweepError, match=r"25,000,000 runs \(5,000 nodes x 5,000 jobs; 0 in runs\), and at most 100"
    ):
        read(folder, BASE + f"grid: {{nodes: [{values}], jobs: [{values}]}}\n")
    monkeypatch.setattr(grid, "MOST_RUNS", 3)
    assert len(read(folder, BASE + "grid: {nodes: [1, 2]}\nruns: [{jobs: 1}]\n")) == 3
    with pytest.raises(SweepError, match="5 runs"):
        read(folder, BASE + "grid: {nodes: [1, 2], jobs: [1, 2]}\nruns: [{jobs: 3}]\n")


@pytest.mark.parametrize("name", ["a/" * 3000, "\\0"])
def test_a_name_that_no_file_has_is_no_file(folder: Path, name: str) -> None:
    with pytest.raises(SweepError, match="there is no such file"):
        read(folder, BASE + f'grid: {{log: ["{name}"]}}\n')


def test_odd_names_are_stored_escaped(folder: Path) -> None:
    jobs = read(folder, BASE + 'grid: {model: ["\\0\\e[31m"]}\n')
    (row,) = sweep.sweep(jobs, folder / "out", at_once)
    assert row["model"] == row["name"].removeprefix("model=") == r"\x00\x1b[31m"


def test_results_that_are_none_are_refused(folder: Path) -> None:
    (folder / "out").mkdir()
    with closing(sqlite3.connect(folder / "out" / "results.sqlite")) as db:
        db.execute("CREATE TABLE runs (other)")
    with pytest.raises(SweepError, match=r"results\.sqlite: no such column"):
        sweep.sweep(read(folder, BASE), folder / "out", at_once)


def test_reading_says_how_many_runs_there_are_before_it_reads_them(folder: Path) -> None:
    (folder / "grid.yaml").write_text(BASE + "grid: {nodes: [1, 2], jobs: [1, 2]}\n")
    told: list[tuple[int, int]] = []
    grid.read(folder / "grid.yaml", progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 4)]
