"""`bftrainer replay --cluster`: figures, and options that do not go together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bftrainer.cli import app
from bftrainer.performance.goodput import GoodputError
from tests.support.measured_programs import write_jobs, write_program


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A command that replays two jobs."""
    write_program(tmp_path / "profiles" / "p")
    path = write_jobs(tmp_path / "jobs.csv", [("a", 0, "p", 2, 64), ("b", 100, "p", 4, 64)])
    return [
        "replay",
        "--cluster",
        "2x4",
        "--workload",
        f"pollux:{path}",
        "--profiles",
        f"{tmp_path}/profiles",
    ]


def invoked(words: list[str]) -> Result:
    """Run the command line."""
    return CliRunner().invoke(app, words, env={"COLUMNS": "200"})


@pytest.mark.parametrize("allocator", ["tiresias", "optimus", "goodput"])
def test_a_cluster_is_replayed_under_each_allocator(words: list[str], allocator: str) -> None:
    found = invoked([*words, "--allocator", allocator, "--json"])
    assert found.exit_code == 0, found.output
    figures = json.loads(found.output)
    assert figures["jobs"] == 2
    assert set(figures["completion_by_job_s"]) == {"a", "b"}
    assert figures["completion_s"]["mean"] == sum(figures["completion_by_job_s"].values()) / 2
    table = invoked([*words, "--allocator", allocator])
    assert "completion time (s)" in table.output
    assert "of p" in table.output


@pytest.mark.parametrize(
    ("objective", "cost"), [("ranked", "time"), ("weighted", "penalty"), ("harmonic", "factor")]
)
def test_the_objective_can_be_chosen(words: list[str], objective: str, cost: str) -> None:
    found = invoked([*words, "--goodput-objective", objective, "--change-cost", cost, "--json"])
    assert found.exit_code == 0, found.output


def test_the_same_files_give_the_same_figures(words: list[str]) -> None:
    options = ["--declared-epochs", "--shared-profiles", "--power", "0.6", "--json"]
    first, second = (json.loads(invoked(words + options).output) for _ in range(2))
    for figures in (first, second):
        del figures["wall_s"], figures["decision_ms"]
    assert first == second


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--allocator", "knapsack"], "--allocator knapsack: --cluster has no such one. Choose"),
        (["--nodes", "4"], "--nodes: not with --cluster"),
        (["--allocator", "optimus", "--declared-epochs"], "--declared-epochs: only with --allocator goodput"),
        (["--cluster", "2"], "is no cluster"),
        (["--cluster", "0x4"], "is no cluster"),
        (["--cluster", "99999999x4"], "is no cluster"),
        (["--cluster", "\uff12x4"], "is no cluster"),
        (["--interval", "nan"], "no number"),
        (["--interval", "0"], "1<=x<=3600"),
        (["--init", "-1"], "0<=x"),
        (["--low-utility", "0.4"], "only with --high-utility"),
        (["--min-nodes", "1"], "only with --low-utility and --high-utility"),
        (["--low-utility", "nan", "--high-utility", "0.6"], "no number"),
        (["--power", "nan"], "no number"),
        (["--power", "0.5", "--goodput-objective", "weighted"], "--power: only with"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], more: list[str], says: str) -> None:
    found = invoked(words + more)
    assert found.exit_code == 2, found.output
    assert says in found.output


def test_what_only_a_cluster_has_is_refused_without_one(words: list[str], tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("idle_start,idle_end,node\n0,10,a\n")
    of_log = ["replay", str(log), *words[3:]]
    for more, says in (
        (
            ["--allocator", "goodput", "--interval", "9"],
            "--interval, --allocator goodput: only with --cluster",
        ),
        (["--workload", str(log)], "--profiles: only with --workload pollux:FILE"),
        (["--knowledge", "none"], "--knowledge: not with --profiles"),
    ):
        found = invoked([*of_log, *more])
        assert found.exit_code == 2
        assert says in found.output
    assert "--workload pollux:FILE needs --profiles DIR" in invoked(of_log[:4]).output
    assert "a replay needs LOG" in invoked(["replay"]).output


def test_the_same_jobs_have_the_idle_nodes_of_a_log(words: list[str], tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("idle_start,idle_end,node\n0,40000,a\n0,40000,b\n0,40000,c\n")
    of_log = ["replay", str(log), *words[3:], "--gpus-per-node", "4", "--objective", "goodput"]
    record = tmp_path / "record.json.gz"
    found = invoked([*of_log, "--out", str(record), "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.output)["completed"] == 2
    assert record.exists()
    assert "mean runtime of p" in invoked(of_log).output
    bounded = json.loads(invoked([*of_log, "--low-utility", "0.9", "--high-utility", "1", "--json"]).output)
    assert bounded["runtime_h"]["mean"] > json.loads(found.output)["runtime_h"]["mean"]
    assert "Give both" in str(invoked([*of_log, "--low-utility", "0.4"]).exception)
    sweep = {"log": "log.csv", "workload": "jobs.csv", "profiles": "profiles", "gpus_per_node": 4}
    (tmp_path / "grid.yaml").write_text(json.dumps({"base": sweep, "grid": {"objective": ["goodput"]}}))
    swept = invoked(["sweep", str(tmp_path / "grid.yaml"), "--jobs", "1"])
    assert swept.exit_code == 0, swept.output
    (tmp_path / "grid.yaml").write_text(json.dumps({"base": {**sweep, "profiles": "jobs.csv"}}))
    refused = CliRunner().invoke(app, ["sweep", str(tmp_path / "grid.yaml")])
    assert "there is no such folder" in str(refused.exception)


def test_a_cluster_without_its_files_says_what_it_needs(words: list[str]) -> None:
    assert "needs --profiles" in invoked(words[:5]).output
    assert "needs --workload pollux:FILE" in invoked(words[:3] + words[5:]).output
    assert "does not exist" in invoked([*words, "--workload", "pollux:nowhere.csv"]).output


def test_nodes_may_follow_their_utility(words: list[str]) -> None:
    found = invoked([*words, "--low-utility", "0.9", "--high-utility", "1", "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.output)["node_hours"] > 0
    contradicting = [*words, "--low-utility", "0.6", "--high-utility", "0.4"]
    with pytest.raises(GoodputError, match="no larger than the high one"):
        CliRunner().invoke(app, contradicting, catch_exceptions=False)
    with pytest.raises(GoodputError, match=r"nodes are to lie in \[3, 2\]"):
        CliRunner().invoke(
            app,
            [*words, "--low-utility", "0", "--high-utility", "1", "--min-nodes", "3"],
            catch_exceptions=False,
        )


def test_pauses_may_be_those_of_a_runtime(words: list[str]) -> None:
    restarts, rescales, often = (
        json.loads(invoked([*words, *more, "--json"]).output)
        for more in ([], ["--init", "2", "--stall-up", "0.1"], ["--interval", "10"])
    )
    assert rescales["completion_s"]["mean"] < restarts["completion_s"]["mean"]
    assert often["decisions"] > 4 * restarts["decisions"]
