"""`bftrainer plan`: tables, JSON, pictures, and what it says if a deadline or a file is impossible."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bftrainer.cli import app
from bftrainer.cli.shared.failures import tell
from bftrainer.search.plan.model.experiment import ExperimentError

SEARCH = "name: digits\nhalving: {trials: 8, least: 2, most: 14, eta: 2}\n"
PROFILE = """\
curve: [[1, 10], [2, 18], [4, 30]]
iteration_samples: 100
nodes: 16
scale: 5
init: {mean: 10, std: 2, family: lognormal}
spread: {std: 0.1, of: iteration}
billing: {price: 3.6, minimum_s: 30, unit: $}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "search.yaml").write_text(SEARCH)
    (tmp_path / "profile.yaml").write_text(PROFILE)
    return tmp_path


def run(folder: Path, *words: str, search: str = "search.yaml") -> Result:
    """Run the command on the files of a folder."""
    given = [str(folder / search), "--profile", str(folder / "profile.yaml"), *words]
    return CliRunner().invoke(app, ["plan", *given])


def test_a_plan_is_a_table_by_stage_with_time_and_cost(folder: Path) -> None:
    found = run(folder, "--deadline", "3m", "--method", "exact")
    assert found.exit_code == 0
    rows = [line.split() for line in found.output.splitlines() if line.strip()[:1].isdigit()]
    assert [row[1:3] for row in rows] == [["8", "2"], ["4", "4"], ["2", "8"]]
    assert "digits: exact plan for a deadline of 03:00" in found.output
    assert "nodes per trial" in found.output and "$" in found.output
    assert all(method in found.output for method in ("static", "naive elastic", "greedy"))


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("curve: [[1, 10]]\nparallelism: 0", "parallelism: 0: input should be greater than or equal to 1"),
        ("curve: [[1, 10]]\nparallelism: a", "parallelism: the value 'a' cannot be used. Give a number of"),
        ("curve: [[1, 1.0e-300]]", "a trial of 8 iterations would take 8e+300 s on 1 workers"),
    ],
)
def test_a_wrong_profile_is_told_in_one_line(folder: Path, profile: str, said: str) -> None:
    (folder / "profile.yaml").write_text(profile + "\n")
    found = run(folder, "--deadline", "3m")
    assert found.exit_code == 1 and len(str(found.exception).splitlines()) == 1
    assert said in str(found.exception)


def test_the_same_as_json(folder: Path) -> None:
    found = json.loads(run(folder, "--deadline", "3m", "--method", "exact", "--json").output)
    own = found["experiments"][0]
    assert found["feasible"] and found["unit"] == "$"
    assert own["plan"]["jct_s"] <= 180
    assert own["plan"]["cost"] == pytest.approx(sum(s["cost"] for s in own["plan"]["stages"]))
    assert own["lower_bound"] <= own["plan"]["cost"] <= own["planners"]["static"]["cost"]


def test_draws_by_which_a_plan_was_chosen_do_not_flatter_it(folder: Path) -> None:
    """Trials take very different times: two draws, by which a plan is chosen, may all be short."""
    (folder / "profile.yaml").write_text(
        "curve: [[1, 10], [2, 20], [4, 40]]\niteration_samples: 100\nnodes: 16\n"
        "spread: {std: 2.0, family: lognormal}\n"
    )
    by_two, by_three = (
        json.loads(run(folder, "--deadline", "1h", "--samples", samples, "--json").output)["experiments"][0]
        for samples in ("2", "3")
    )
    assert by_two["plan"] == by_three["plan"]
    assert by_two["planners"]["exact"]["cost"] == by_two["plan"]["cost"]


def test_a_later_deadline_costs_what_was_told_and_never_more(folder: Path) -> None:
    """Nine trials on four nodes fit unevenly: trial by trial is cheaper than in stages, for any deadline."""
    (folder / "search.yaml").write_text("stages: [{trials: 9, iterations: 17}]\n")
    (folder / "profile.yaml").write_text(
        "curve: [[1, 100], [2, 136.6], [4, 246], [8, 307.2]]\niteration_samples: 3000\nnode_workers: 4\n"
        "nodes: 5\nstart: 5\nsync: 3\n"
    )
    later = json.loads(run(folder, "--deadline", "1s", "--json").output)["later"]
    assert len(later) == 6
    for one in later:
        told = json.loads(run(folder, "--deadline", f"{one['deadline_s'] + 0.001:.3f}s", "--json").output)
        assert told["experiments"][0]["plan"]["cost"] == pytest.approx(one["cost"])
    assert [one["cost"] for one in later] == sorted((one["cost"] for one in later), reverse=True)
    shown = run(folder, "--deadline", f"{later[2]['deadline_s'] + 0.001:.3f}s").output
    assert "trial by trial plan" in shown and "exact: proven" in shown


def test_a_method_may_be_named(folder: Path) -> None:
    found = json.loads(run(folder, "--deadline", "3m", "--json", "--method", "static").output)
    assert len({stage["nodes"] for stage in found["experiments"][0]["plan"]["stages"]}) == 1


def test_an_impossible_deadline_shows_the_fastest_plan_and_what_would_be_possible(folder: Path) -> None:
    found = run(folder, "--deadline", "30")
    assert found.exit_code == 1
    assert "nothing meets the deadline of 00:30" in found.output
    assert "With at most 16 nodes the fastest plan takes" in found.output
    later = found.output.split("most nodes\n")[1].split()
    assert len(later) >= 9
    told = json.loads(run(folder, "--deadline", "30", "--json").output)
    assert told["feasible"] is False and told["experiments"][0]["plan"] is None
    assert told["experiments"][0]["later"][0]["deadline_s"] == told["experiments"][0]["fastest"]["jct_s"]


def test_a_picture_is_drawn(folder: Path) -> None:
    assert run(folder, "--deadline", "3m", "--picture", str(folder / "plan.svg")).exit_code == 0
    assert "deadline" in (folder / "plan.svg").read_text()


def test_the_brackets_of_hyperband_run_beside_each_other(folder: Path) -> None:
    (folder / "search.yaml").write_text("hyperband: {most: 9, eta: 3}\n")
    found = run(folder, "--deadline", "10m")
    assert [f"bracket {s}: exact plan" in found.output for s in (2, 1, 0)] == [True, True, True]
    assert "all 3 beside each other" in found.output
    assert "of fresh draws 0.0% are late" in found.output


@pytest.mark.parametrize(
    ("more", "profile", "why"),
    [
        ([], "curve: [[1, 10]]\nbilling: {per: function}\n", "as functions are billed (billing.per)"),
        (["--method", "exact"], "", "as --method exact plans in stages"),
        ([], "", ""),
    ],
)
def test_what_was_not_tried_is_told_where_nothing_is_on_time(
    more: list[str], profile: str, why: str, folder: Path
) -> None:
    (folder / "profile.yaml").write_text(profile or PROFILE)
    found = run(folder, "--deadline", "1", *more).output
    assert ("not tried: trial by trial" in found) == bool(why) and why in found


def test_a_planner_without_a_plan_is_not_said_to_be_the_only_one(folder: Path) -> None:
    """All eight trials at a time need eight nodes."""
    (folder / "profile.yaml").write_text("curve: [[1, 10]]\niteration_samples: 100\nnodes: 4\n")
    assert run(folder, "--deadline", "10m").exit_code == 0
    found = run(folder, "--deadline", "10m", "--method", "naive elastic")
    assert found.exit_code == 1 and "nothing meets" not in found.output
    assert "no naive elastic plan meets the deadline of 10:00" in found.output
    assert "the fastest plan of any planner takes" in found.output


def test_a_deadline_that_is_missed_too_often_may_be_met_on_average(folder: Path) -> None:
    (folder / "profile.yaml").write_text(PROFILE.replace("std: 0.1, of: iteration", "std: 0.5"))
    soonest = json.loads(run(folder, "--deadline", "1", "--json").output)["later"][0]["deadline_s"]
    found = run(folder, "--deadline", f"{soonest * 1.05:.0f}s", "--chance", "0.9999")
    assert found.exit_code == 1 and "in 0.9999 of the draws" in found.output
    assert "deadline, on average" in found.output


@pytest.mark.parametrize(
    ("more", "search", "tried"),
    [
        ([], "{most: 9, eta: 3}", "beside each other, one after the other, trial by trial; mixtures"),
        (
            ["--method", "exact"],
            "{most: 9, eta: 3}",
            "beside each other, one after the other; trial by trial, mixtures",
        ),
        ([], "{most: 1024, eta: 2}", "beside each other; one after the other, trial by trial, mixtures"),
    ],
)
def test_only_orders_that_were_tried_are_said_to_have_been(
    more: list[str], search: str, tried: str, folder: Path
) -> None:
    (folder / "search.yaml").write_text(f"hyperband: {search}\n")
    (folder / "profile.yaml").write_text("curve: [[1, 10]]\nnodes: 12\nscale: 5\n")
    found = run(folder, "--deadline", "100h", "--samples", "1", *more)
    assert found.exit_code == 0
    assert f"the cheapest of what was tried: {tried} are not tried" in found.output


def test_brackets_that_fit_in_no_order_are_refused_with_what_to_change(folder: Path) -> None:
    """11 brackets have 66 stages, too many for another order than beside each other."""
    (folder / "search.yaml").write_text("hyperband: {most: 1024, eta: 2}\n")
    (folder / "profile.yaml").write_text("curve: [[1, 10]]\nnodes: 12\nparallelism: 4\n")
    found = run(folder, "--deadline", "100h", "--samples", "1")
    assert isinstance(found.exception, ExperimentError)
    assert "11 brackets beside each other do not fit into 12 nodes and 4 trials at a time" in str(
        found.exception
    )


def test_brackets_are_too_late_only_if_they_are_so_in_every_order(folder: Path) -> None:
    (folder / "search.yaml").write_text("hyperband: {most: 9, least: 1, eta: 3}\n")
    (folder / "profile.yaml").write_text(
        "curve: [[1, 100], [2, 198]]\nworkers: [1, 2]\niteration_samples: 1000\nnodes: 4\n"
    )
    late = json.loads(run(folder, "--deadline", "150s", "--json").output)
    soonest = late["later"][0]["deadline_s"]
    assert not late["feasible"] and soonest == late["experiments"][0]["fastest"]["jct_s"] < 209
    told = run(folder, "--deadline", "150s").output
    assert told.count("nothing meets the deadline") == 1 and "With at most 4 nodes the fastest" in told
    for deadline in (round(soonest + 0.1, 1), 209, 211, 600):
        found = json.loads(run(folder, "--deadline", f"{deadline}s", "--json").output)
        assert found["feasible"] and sum(own["plan"]["nodes"] for own in found["experiments"]) <= 4


def log(folder: Path) -> str:
    """A log of two nodes that are idle for every other hour, and of one that comes for the last 50 hours."""
    rows = [f"{2 * h * 3600},{(2 * h + 1) * 3600},n{n}" for h in range(50) for n in (1, 2)]
    (folder / "log.csv").write_text("\n".join(["idle_start,idle_end,node", *rows, "180000,360000,n3"]) + "\n")
    return str(folder / "log.csv")


def test_a_pool_gives_a_forecast_with_its_interval(folder: Path) -> None:
    found = run(folder, "--deadline", "30m", "--pool", log(folder))
    assert found.exit_code == 0
    row = next(line.split() for line in found.output.splitlines() if line.startswith("idle nodes"))
    told = json.loads(run(folder, "--deadline", "30m", "--pool", log(folder), "--json").output)
    own = told["harvested"]
    assert row[7] == f"{own['chance']:.0%}" and own["interval"][0] < own["chance"] < own["interval"][1]
    assert told["moments"] == 200 and 190 < told["independent"] <= 200
    assert own["percentiles_s"]["5"] < own["percentiles_s"]["95"]
    assert "bought" not in told


def test_ordinary_nodes_raise_the_chance(folder: Path) -> None:
    found = run(
        folder, "--deadline", "30m", "--pool", log(folder), "--buy", "--picture", str(folder / "p.png")
    )
    assert found.exit_code == 0 and "node-hours on ordinary nodes beside the idle ones" in found.output
    assert (folder / "p.png").stat().st_size > 1000
    told = json.loads(
        run(folder, "--deadline", "30m", "--pool", log(folder), "--buy", "0.9", "--json").output
    )
    bought = told["bought"]
    assert bought["reached"] and bought["chance"] >= 0.9 > told["harvested"]["chance"]
    assert (
        bought["total_node_hours"] == pytest.approx(sum(bought["node_hours"]))
        and bought["total_node_hours"] > 0
    )
    assert len(bought["nodes"]) == 3


def test_a_chance_that_cannot_be_bought_ends_with_1(folder: Path) -> None:
    found = run(folder, "--deadline", "20s", "--pool", log(folder), "--buy")
    assert found.exit_code == 1 and "no purchase raises the chance to 95%" in found.output


def test_what_has_no_part_in_a_forecast_is_refused(folder: Path) -> None:
    for words in (["--chance", "0.9"], ["--method", "static"]):
        found = run(folder, "--deadline", "30m", "--pool", log(folder), *words)
        assert found.exit_code == 2 and "not with --pool" in found.output


def test_idle_gpus_are_not_taken_for_nodes_of_several(folder: Path) -> None:
    """Else one idle GPU would train as fast as a node of four."""
    (folder / "profile.yaml").write_text("curve: [[1, 100], [4, 340]]\nnode_workers: 4\n")
    words = ("--deadline", "30m", "--pool", log(folder), "--gpus-per-node", "4", "--share")
    found = run(folder, *words, "gpu")
    assert found.exit_code == 2 and "node_workers: 1" in found.output
    assert run(folder, *words, "node").exit_code == 0


def test_a_purchase_needs_a_pool(folder: Path) -> None:
    found = run(folder, "--deadline", "20s", "--buy")
    assert found.exit_code == 2 and "--buy: only with --pool LOG" in found.output


@pytest.mark.parametrize(
    ("search", "profile", "said"),
    [
        ("halving: {trials: 8}\n", PROFILE, "search.yaml:1: 'halving.least' is missing"),
        ("trials: 8\n", PROFILE, "search.yaml:1: unknown key 'trials'; valid keys: name, stages"),
        ("name: x\n", PROFILE, "no stages cannot be used. Give one of stages, halving and hyperband"),
        ("halving: {trials: 8, least: 9, most: 2}\n", PROFILE, "least, most: 9, 2"),
        (SEARCH, "nodes: 4\n", "nothing says how fast a trial is. Give curve"),
        (SEARCH, PROFILE + "colour: red\n", "profile.yaml:8: unknown key 'colour'"),
        (SEARCH, "curve: [[1, 10]]\ninit: {mean: -1}\n", "profile.yaml:2: init.mean: -1: "),
        (SEARCH, "curve: [[1, 10]]\ninit: 1m\n", "profile.yaml:2: init.mean: '1m': "),
        (SEARCH, "curve: [[1, 10]]\nspread: 0.3\n", "spread: 0.3: expected further keys: std, family, of"),
        ("stages: [3]\n", PROFILE, "stages.0: 3: expected further keys: trials, iterations"),
        (SEARCH, "curve: [[1, 10]]\nworkers: [4, 2]\n", "the least number first"),
        (
            SEARCH,
            "curve: [[1, 10]]\nstart: {mean: 0, std: 3, family: lognormal}\n",
            "profile.yaml:2: start: mean 0 cannot be used. Give a mean above 0",
        ),
        (
            SEARCH,
            "curve: [[1, 10]]\nworkers: [513, 600]\n",
            "at least 513 workers, and 512 nodes with 1 each",
        ),
    ],
)
def test_errors_name_the_line_and_the_remedy(folder: Path, search: str, profile: str, said: str) -> None:
    (folder / "search.yaml").write_text(search)
    (folder / "profile.yaml").write_text(profile)
    found = run(folder, "--deadline", "3m")
    assert found.exception is not None and not isinstance(found.exception, SystemExit)
    assert said in str(found.exception)
    assert tell(found.exception) == 1


STUDY = """\
name: digits
trainer:
  command: [python, digits.py, --lr, "{lr}"]
  nodes: {min: 1, max: 4}
  curve: [[1, 3000], [2, 5500], [4, 8500]]
  rescale: {up: {stall_s: 1, init_s: 4}, down: {stall_s: 1}}
space: {lr: {float: [0.001, 0.5], log: true}}
metric: accuracy
direction: maximize
trials: 16
budget: 64000
stopping: {halving: {least: 4000, eta: 4}}
deadline: 2m
"""


def test_a_study_is_planned_by_its_early_stopping_and_its_trainer(folder: Path) -> None:
    (folder / "study.yaml").write_text(STUDY)
    found = json.loads(CliRunner().invoke(app, ["plan", str(folder / "study.yaml"), "--json"]).output)
    own = found["experiments"][0]
    assert own["deadline_s"] == 120 and found["unit"] == "node-hours"
    assert [(s["trials"], s["iterations"]) for s in own["plan"]["stages"]] == [
        (16, 4000),
        (4, 12_000),
        (1, 48_000),
    ]
    last = own["fastest"]["stages"][-1]
    assert last["workers_per_trial"] == 4 and last["seconds"] == pytest.approx(5 + 48_000 / 8500)
    assert own["plan"]["cost"] <= own["planners"]["static"]["cost"]


def test_a_trial_has_only_the_sizes_that_its_trainer_allows(folder: Path) -> None:
    (folder / "study.yaml").write_text(STUDY.replace("nodes: {min: 1, max: 4}", "nodes: {sizes: [1, 4]}"))
    study = str(folder / "study.yaml")
    for deadline in ("20s", "30s", "40s", "2m"):
        words = ["plan", study, "--json", "--deadline", deadline]
        found = json.loads(CliRunner().invoke(app, words).output)
        own = found["experiments"][0]
        for plan in (own["plan"], own["fastest"]):
            assert {s["workers_per_trial"] for s in (plan or own["fastest"])["stages"]} <= {1, 4}


def test_a_profile_goes_before_what_the_study_says(folder: Path) -> None:
    (folder / "study.yaml").write_text(STUDY)
    found = json.loads(run(folder, "--deadline", "3h", "--json", search="study.yaml").output)
    own = found["experiments"][0]
    assert found["unit"] == "$" and own["plan"]["stages"][0]["iterations"] == 40


def test_a_search_without_a_deadline_asks_for_one(folder: Path) -> None:
    found = run(folder)
    assert found.exit_code == 2 and "a plan needs --deadline" in found.output


def test_a_study_whose_trainer_has_no_curve_needs_a_profile(folder: Path) -> None:
    (folder / "study.yaml").write_text(STUDY.replace("  curve: [[1, 3000], [2, 5500], [4, 8500]]\n", ""))
    found = CliRunner().invoke(app, ["plan", str(folder / "study.yaml")])
    assert "how fast a trial is" in str(found.exception)


@pytest.mark.parametrize("span", ["0", "-3", "2 weeks", "1e9d", "", "nan"])
def test_a_deadline_is_a_time_span(folder: Path, span: str) -> None:
    found = run(folder, "--deadline", span)
    assert found.exit_code == 2 and "is no time span; give 90s, 30m, 2h or 1d" in found.output


@pytest.mark.parametrize("span", ["599.9999999999999s", "600.00000000000000000001", "0.1666666666666667h"])
def test_a_deadline_may_have_as_many_decimals_as_a_program_prints(folder: Path, span: str) -> None:
    assert run(folder, "--deadline", span).exit_code == 0


def test_an_empty_file_is_told_which_keys_it_needs(folder: Path) -> None:
    (folder / "empty.yaml").write_text("# nothing\n")
    search = str(run(folder, search="empty.yaml").exception)
    assert search.startswith(
        "empty.yaml:1: empty; a search needs stages, halving or hyperband; "
        "a study needs at least name, trainer, space, metric, trials and budget"
    )
    (folder / "profile.yaml").write_text("")
    assert "profile.yaml:1: empty; a profile needs at least curve, such as" in str(run(folder).exception)
