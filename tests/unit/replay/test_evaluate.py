"""From files to figures, and the command that shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bftrainer.cli.replay_command import command
from bftrainer.replay import scenario
from bftrainer.replay.evaluate import evaluate
from bftrainer.replay.inputs import chosen
from bftrainer.replay.record import storage
from bftrainer.traces.intervals import LogError
from tests.support.replays import JOBS, write

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces" / "summit-2021"


def test_a_replay_of_files(tmp_path: Path) -> None:
    """The trainer of `test_one_trainer_grows_and_is_preempted`, from disk, with the published costs."""
    log = tmp_path / "log.csv"
    log.write_text("idle_start,idle_end,node\n1000,1100,a\n1020,1060,b\n1000,,z\n")
    rows = "t,2,1,1,4,1000000,1970-01-01 00:00:00,m\n"
    jobs, curves = write(tmp_path, JOBS + rows, "model,nodes,images_per_s\nm,1,10\nm,4,40\n")
    done: list[float] = []
    what = {"log": log, "workload": jobs, "curves": curves, "nodes": 2, "allocator": "knapsack"}
    figures = evaluate(scenario.of(what), done.append).figures
    assert figures["samples"] == pytest.approx(10 * (18 + 2 * 38 + 39))
    assert figures["node_hours"] == pytest.approx(140 / 3600)
    assert done[0] == 0.0
    assert max(done) <= 1.0
    later = evaluate(scenario.of({**what, "begin": 1010.0, "hours": 30 / 3600})).figures
    assert later["samples"] == pytest.approx(10 * (8 + 2 * 18))  # 1012-1020 on a, 1022-1040 on both


def test_spans_outside_of_the_log_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("idle_start,idle_end,node\n1000,1100,a\n")
    jobs, curves = write(tmp_path, JOBS)
    for begin in (999.0, 1100.0):
        with pytest.raises(LogError, match="the log spans 1970-01-01T00:16:40 to 1970-01-01T00:18:20 UTC"):
            evaluate(scenario.of({"log": log, "workload": jobs, "curves": curves, "begin": begin}))
    what = {"log": log, "workload": jobs, "curves": curves}
    with pytest.raises(LogError, match=r"--hours 9: the log spans .* .0.02778 h"):
        evaluate(scenario.of({**what, "hours": 9}))
    log.write_text("idle_start,idle_end,node\n1050,1060,a\n1000,1100,b\n")
    with pytest.raises(LogError, match="none of the chosen nodes is idle from 1970-01-01T00:17:50"):
        evaluate(scenario.of({**what, "nodes": 1, "begin": 1070.0}))
    log.write_text("idle_start,idle_end,node\n")
    with pytest.raises(LogError, match="no intervals"):
        evaluate(scenario.of({"log": log, "workload": jobs, "curves": curves}))


@pytest.mark.skipif(not TRACES.is_dir(), reason="the published Summit log is not beside this checkout")
def test_the_published_log_yields_what_is_published() -> None:
    """1,000 ShuffleNet trials on the first 1,024 nodes: the paper has U = 80 %."""
    published = scenario.of(
        {
            "log": TRACES / "idle_intervals_2021-02-10_16.csv.xz",
            "workload": TRACES / "jobs_hpo_shufflenet_1000.csv",
            "curves": TRACES / "imagenet_scalability_7models.csv",
            "nodes": 1024,
            "begin": "2021-02-11T00:48:48",
            "hours": 143,
            "t_fwd_s": 120,
            "max_parallel": 10,
        }
    )
    figures = evaluate(published).figures
    assert 0.79 <= float(str(figures["efficiency_u"])) <= 0.85
    assert 5.5e10 <= float(str(figures["samples"])) <= 6.7e10
    assert figures["unproven_decisions"] == 0
    assert float(str(figures["node_hours"])) == pytest.approx(143 * float(str(figures["equivalent_nodes"])))


def test_nodes_are_picked_by_name_or_by_seed() -> None:
    names = [f"n{i:02}" for i in range(50)]
    assert chosen(names, 3, None) == {"n00", "n01", "n02"}
    assert chosen(names, None, 4) == frozenset(names)
    picks = [chosen(names, 10, seed) for seed in (0, 0, 1)]
    assert picks[0] == chosen(names[::-1], 10, 0) == picks[1] != picks[2]
    assert {len(pick) for pick in picks} == {10}
    with pytest.raises(LogError, match="51 nodes are asked for, and the log has 50"):
        chosen(names, 51, 1)


def test_the_command_shows_figures_and_keeps_a_record(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("idle_start,idle_end,node\n1000,1100,a\n1020,1060,b\n1000,,z\n")
    rows = "t,2,1,1,4,200,1970-01-01 00:00:00,m\nu,2,1,1,4,1000000,1970-01-01 00:00:00,m\n"
    jobs, curves = write(tmp_path, JOBS + rows, "model,nodes,images_per_s\nm,1,10\nm,4,40\n")
    asked = [
        str(log),
        "--workload",
        str(jobs),
        "--curves",
        str(curves),
        "--nodes",
        "2",
        "--max-parallel",
        "1",
    ]
    out = tmp_path / "one.json.gz"
    done = CliRunner().invoke(command, [*asked, "--jct-first", "1", "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert figures["completed"] == 1
    assert figures["mean_turnaround_first_h"] == figures["turnaround_h"]["mean"] > 0
    kept = storage.read(out)
    assert (kept.name, kept.begin, kept.end) == ("one", 1000.0, 1100.0)
    assert {k: v for k, v in figures.items() if k != "wall_s"} == kept.figures
    assert kept.parameters["max_parallel"] == 1
    shown = CliRunner().invoke(command, asked)
    assert "efficiency U" in shown.stdout
    for bad in (["--out", "x.csv"], ["--init", "nan"], ["--pick", "-1"]):
        assert CliRunner().invoke(command, [*asked, *bad]).exit_code == 2
