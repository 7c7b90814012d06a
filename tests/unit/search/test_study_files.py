"""What a study file may say, what its errors tell, and what becomes of a trial's command."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from bftrainer.search.brackets import Bracket, brackets
from bftrainer.search.files.parse import parse
from bftrainer.search.files.schema import RESERVED
from bftrainer.search.fill import command_of, trainer_of
from bftrainer.search.grid import Grid
from bftrainer.search.optuna.storage import shown
from bftrainer.search.python import Study
from bftrainer.search.study import Sampler, Stopping, StoppingKind
from bftrainer.spec.located_yaml import SpecError
from bftrainer.spec.parse import parse as parse_trainer
from tests.support.studies import TEXT, spec_of

SPACE: dict[str, Any] = {
    "lr": {"float": [0.001, 0.1], "log": True, "points": 3},
    "optimizer": {"choice": ["sgd", "adam"]},
    "momentum": {"float": [0.0, 0.9], "step": 0.45, "when": {"optimizer": "sgd"}},
}
WORDS = ("python", "t.py", "--lr={lr}", "{optimizer}", "--momentum", "{momentum}", "--verbose")


def with_space() -> dict[str, Any]:
    return {"space": SPACE, "trainer": {"command": list(WORDS), "nodes": {"max": 4}}}


def test_what_is_maximised_may_be_minimised_on_purpose() -> None:
    assert not spec_of(metric="accuracy", direction="minimize").maximize
    assert not spec_of(metric="accuracy_loss").maximize


def test_a_whole_file_becomes_a_spec() -> None:
    spec = spec_of(
        direction="maximize",
        stopping={"asha": {"least": 100}},
        deadline="2h",
        node_hours=3.5,
        parallelism=7,
        weight=2.0,
        seed=3,
    )
    assert spec.maximize
    assert spec.stopping == Stopping(kind=StoppingKind.ASHA, least=100, eta=4)
    assert (spec.deadline_s, spec.node_hours, spec.parallelism, spec.seed) == (7200.0, 3.5, 7, 3)
    assert spec.sampler is Sampler.TPE
    assert (spec.trainer.weight, spec.trainer.samples, spec.trainer.workdir) == (2.0, 800, "/work")
    assert spec_of(parallelism="auto").parallelism is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"space": {"lr": {"flot": [0, 1]}}}, "unknown key 'space.lr.flot'; did you mean 'float'?"),
        ({"space": {"choice": {"flot": [0, 1]}}}, "unknown key 'space.choice.flot'; did you mean 'float'?"),
        ({"space": {"choice": 1}}, "space.choice: 1: expected further keys: float, int, choice"),
        ({"space": {"lr": {"float": [1, 0]}}}, "the lowest value comes first"),
        ({"space": {"lr": {"float": [0, 1], "log": True}}}, "log: true needs numbers above 0"),
        ({"space": {"lr": {"int": [1, 2], "choice": [1]}}}, "int and choice is given"),
        ({"space": {"lr": {"choice": [1, 1]}}}, "1 occurs twice"),
        ({"space": {"lr": {"float": [0, 1]}, "x": {"int": [1, 2]}}}, "space.x: neither command nor env"),
        ({"space": {"lr": {"float": [0, 1], "when": {"y": 1}}}}, "no parameter above it"),
        ({"trainer": {"command": ["{lr}", "{wd}"], "nodes": {"max": 1}}}, "{wd} is no parameter"),
        ({"trainer": {"command": ["{lr}"], "nodes": {"mx": 1}}}, "'nodes.mx'"),
        ({"trainer": {**TEXT["trainer"], "work": "until_exit"}}, "trainer.work: the study says it"),
        ({"stopping": {"halving": {"least": 800}}}, "not below the budget of 800"),
        ({"stopping": {"asha": {"least": 1}, "median": {}}}, "Give one of them"),
        ({"deadline": "2 weeks"}, "such as 90s, 30m, 2h or 1d"),
        ({"trials": 0}, "trials: 0: input should be greater than or equal to 1"),
        ({"name": "A"}, "Give lower-case letters"),
        ({"sampler": "grid"}, "space.lr: not a grid, as nothing says which values are tried. Add points: N"),
        (
            {"parallelism": "all"},
            "parallelism: the value 'all' cannot be used. Give a number of trials, or auto",
        ),
        (
            {"give_up_after": "no"},
            "give_up_after: the value 'no' cannot be used. Give a number of trials, or never",
        ),
        *(
            (
                {"space": {name: {"float": [0, 1]}}},
                f"'{name}' is reserved, as {{{name}}} in a command stands for {what}. Choose another name",
            )
            for name, what in RESERVED.items()
        ),
        (
            {"space": {"lr": {"float": [0.1, 1], "points": 3}}},
            "space.lr.points: 3 points make a grid, and the sampler is tpe. Add sampler: grid, or leave",
        ),
        (
            {"space": {"lr": {"float": [0, 1], "step": 2}}},
            "space.lr.step: 2 is larger than the range from 0 to 1, so that lr would be 0 in each trial. "
            "Give at most 1, or widen the range",
        ),
        ({"space": {"lr": {"int": [8, 12], "step": 5}}}, "Give at most 4, or widen the range"),
        (
            {"stopping": {"median": {"warmup": 800}}},
            "stopping.median.warmup: 800 samples are not below the budget of 800. Lower warmup, or raise",
        ),
        (
            {"stopping": {"median": {"startup": 8}}},
            "stopping.median.startup: 8 others are never there with 8 trials. Give at most 7, or raise",
        ),
        ({"stopping": {"median": {}}, "trials": 1}, "Give stopping: none"),
        ({"metric": "eval_accuracy"}, "'eval_accuracy' without a direction would be minimised"),
        ({"metric": "val/F1"}, "Say direction: maximize, or direction: minimize if you mean it"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_remedy(change: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=r"^s\.yaml:\d+: ") as error:
        spec_of(**change)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("parent", "value", "told"),
    [
        ({"choice": ["sgd", "adam"]}, "sgdm", "a is never 'sgdm'; give one of its values: 'sgd', 'adam'"),
        ({"choice": [1, 2]}, True, "a is never True; give one of its values: 1, 2"),
        ({"int": [1, 4]}, 5, "a is never 5; give one of its values, whole numbers from 1 to 4"),
        ({"int": [1, 4]}, 2.5, "a is never 2.5"),
        ({"int": [1, 4]}, "2", "a is never '2'"),
        ({"int": [8, 60], "step": 8}, 20, "numbers in steps of 8 from 8 to 56"),
        ({"float": [0, 1], "step": 0.1}, 0.35, "numbers in steps of 0.1 from 0 to 1"),
        ({"float": [0.0, 1.0]}, 0.5, "a is any number from 0 to 1, and exactly 0.5 in no trial; give it a"),
    ],
)
def test_a_condition_that_never_holds_is_told_with_the_values_that_there_are(
    parent: dict[str, Any], value: Any, told: str
) -> None:
    space = {"a": parent, "lr": {"float": [0, 1], "when": {"a": value}}}
    with pytest.raises(SpecError, match=r"^s\.yaml:\d+: space\.lr\.when\.a: ") as error:
        spec_of(space=space)
    assert told in str(error.value)
    text = yaml.safe_dump({**TEXT, "space": space})
    assert parse(text, "s", Path("/"), accepted=True).trials == 8, "a study of before is read"


@pytest.mark.parametrize(
    ("parent", "value"),
    [
        ({"choice": ["sgd", True]}, True),
        ({"int": [1, 4]}, 4),
        ({"int": [8, 64], "step": 8}, 24),
        ({"float": [0.0, 1.0], "step": 0.1}, 0.3),
    ],
)
def test_a_condition_may_name_each_value_that_there_is(parent: dict[str, Any], value: Any) -> None:
    spec = spec_of(space={"a": parent, "lr": {"float": [0, 1], "when": {"a": value}}})
    first, second = spec.space
    assert any(second.applies({"a": other}) for other in (first.value(i) for i in range(first.count())))


def test_a_condition_on_a_grid_may_name_one_of_its_points() -> None:
    a = {"float": [0.0, 1.0], "points": 3}
    lr = {"choice": [1, 2], "when": {"a": 0.5}}
    assert spec_of(space={"a": a, "lr": lr}, sampler="grid").trials == 4
    with pytest.raises(SpecError, match=r"one of its values: 0\.0, 0\.5, 1\.0"):
        spec_of(space={"a": a, "lr": {**lr, "when": {"a": 0.4}}}, sampler="grid")


def test_a_grid_has_every_point_once_and_conditions_hold_in_it() -> None:
    spec = spec_of(**with_space(), sampler="grid", trials=100)
    grid = Grid(spec.space, 1000)
    points = [grid.point(number) for number in range(grid.size)]
    assert len(points) == len(set(points)) == spec.trials == 3 * (3 + 1)
    assert sorted({dict(p)["lr"] for p in points}) == pytest.approx([0.001, 0.01, 0.1])
    assert {dict(p).get("momentum") for p in points} == {0.0, 0.45, 0.9, None}
    assert all(("momentum" in dict(p)) is (dict(p)["optimizer"] == "sgd") for p in points)


def test_a_parameter_without_a_value_leaves_its_words_out() -> None:
    whole = command_of(WORDS, {"lr": 0.01, "optimizer": "sgd", "momentum": 0.9})
    assert whole == ("python", "t.py", "--lr=0.01", "sgd", "--momentum", "0.9", "--verbose")
    assert command_of(WORDS, {"lr": 1e-7, "optimizer": "adam"}) == (
        *("python", "t.py", "--lr=1e-07", "adam"),
        "--verbose",
    )


def test_a_trial_is_a_trainer_with_a_name_and_a_folder_of_its_own() -> None:
    spec = spec_of(trainer={**TEXT["trainer"], "env": {"SEED": "{seed}", "N": "{trial}"}})
    own = trainer_of(spec, 5, (("lr", 0.25),), run=2, samples=100, checkpoint_dir="/c/5")
    assert (own.name, own.samples, own.checkpoint_dir) == ("s.5.2", 100, "/c/5")
    assert own.folder == "/c/5-files", "the same in each of its runs"
    shared = trainer_of(
        spec_of(folders="shared"), 5, (("lr", 0.25),), run=2, samples=1, checkpoint_dir="/c/5"
    )
    assert shared.folder == ""
    assert own.command == ("python", "t.py", "--lr", "0.25")
    env = dict(own.env)
    assert env["N"] == "5"
    again = trainer_of(spec, 5, (("lr", 0.5),), run=3, samples=200, checkpoint_dir="/c/5")
    assert dict(again.env)["SEED"] == env["SEED"]
    assert own.program == again.program, "what one trial shows of the script holds for all"


def test_rungs_of_successive_halving_are_cumulative_and_end_with_the_budget() -> None:
    (own,) = brackets(spec_of(trials=32, budget=50, stopping={"halving": {"least": 1, "eta": 3}}))
    assert own.budgets == (1, 3, 9, 27, 50)
    assert [own.size(rung) for rung in range(5)] == [32, 10, 3, 1, 1]


def test_hyperband_deals_trials_out_as_published() -> None:
    found = brackets(spec_of(trials=143, budget=81, stopping={"hyperband": {"least": 1, "eta": 3}}))
    published = {81: (1, 3, 9, 27, 81), 34: (3, 9, 27, 81), 15: (9, 27, 81), 8: (27, 81), 5: (81,)}
    assert {b.trials: b.budgets for b in found} == published
    assert [b.first for b in found] == [0, 81, 115, 130, 138]
    few = brackets(spec_of(trials=2, budget=81, stopping={"hyperband": {"least": 1, "eta": 3}}))
    assert sum(b.trials for b in few) == 2


def test_without_rungs_there_is_one_with_the_whole_budget() -> None:
    assert brackets(spec_of()) == (Bracket(first=0, trials=8, budgets=(800,), eta=1),)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("o.db", "is no URL of a storage"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("sqlite:////a/o.db?mode=ro", "names no file"),
        ("redis://host", "'redis' is no database that Optuna stores in"),
    ],
)
def test_a_storage_is_the_url_of_a_database(url: str, error: str) -> None:
    with pytest.raises(SpecError, match=re.escape(error)):
        spec_of(storage=url)


def test_a_storage_starts_at_the_study_file_and_hides_its_password() -> None:
    assert spec_of(storage="sqlite:///o.db").storage == "sqlite:////work/o.db"
    assert spec_of(storage="sqlite:////tmp/o.db").storage == "sqlite:////tmp/o.db"
    assert shown("postgresql+psycopg2://ann:se:cret@host/db") == "postgresql+psycopg2://ann:***@host/db"


@pytest.mark.parametrize("text", ["", "# nothing\n"])
def test_an_empty_study_file_is_told_which_keys_it_needs(text: str) -> None:
    needs = "a study needs at least name, trainer, space, metric, trials and budget"
    with pytest.raises(SpecError, match=rf"^s\.yaml:1: empty; {needs} "):
        parse(text, "s.yaml", Path("/"))


def test_a_condition_may_name_several_values() -> None:
    space = {
        "optimizer": {"choice": ["sgd", "adam", "rmsprop"]},
        "momentum": {"float": [0.0, 0.9], "step": 0.9, "when": {"optimizer": ["sgd", "rmsprop"]}},
    }
    trainer = {"command": "python t.py {optimizer} {momentum}", "nodes": 4}
    spec = spec_of(space=space, trainer=trainer)
    grid = Grid(spec.space, 100)
    points = [grid.point(n) for n in range(grid.size)]
    assert [point for point in points if len(point) == 1] == [(("optimizer", "adam"),)]
    assert len(set(points)) == 5
    for wrong, told in (
        (["sgd", "adamw"], "optimizer is never 'adamw'; give one of its values"),
        ([], "space.momentum.when.optimizer: list should have at least 1 item"),
        ({"a": 1}, "space.momentum.when.optimizer: input should be a valid list"),
    ):
        with pytest.raises(SpecError, match=re.escape(told)):
            momentum = {**space["momentum"], "when": {"optimizer": wrong}}
            spec_of(space={**space, "momentum": momentum}, trainer=trainer)


def test_a_command_of_a_study_may_be_a_line() -> None:
    spec = spec_of(trainer={"command": "python t.py --lr {lr} --note 'a {trial}'", "nodes": 2}, budget=1e3)
    assert spec.trainer.command == ("python", "t.py", "--lr", "{lr}", "--note", "a {trial}")
    assert spec.budget == 1000 and isinstance(spec.budget, int)


def test_a_trainer_and_a_study_are_told_apart() -> None:
    with pytest.raises(
        SpecError, match=r"^s\.yaml:1: this is a study. Submit it with bftrainer study submit"
    ):
        parse_trainer(yaml.safe_dump(TEXT), "s.yaml", Path("/"))
    with pytest.raises(
        SpecError, match=r"^t\.yaml:1: this is a trainer, not a study. Submit it by bftrainer submit"
    ):
        parse("name: a\ncommand: run\nnodes: 2\n", "t.yaml", Path("/"))


def test_studies_without_a_seed_have_different_ones() -> None:
    one, other = spec_of(name="one"), spec_of(name="other")
    assert one.seed != other.seed and one.seed == spec_of(name="one", trials=3).seed
    assert spec_of(seed=0).seed == 0


def test_a_study_in_python_reads_a_file_as_the_command_line_does(tmp_path: Path) -> None:
    text = yaml.safe_dump(TEXT | {"space": {"lr": {"choice": ["NO_", "ON_"]}}}).replace("_", "")
    (tmp_path / "s.yaml").write_text(text, "utf-8")
    found = Study.from_file(tmp_path / "s.yaml", state_dir=str(tmp_path))
    assert found.spec == parse(text, "s.yaml", tmp_path) and found.name == TEXT["name"]
    assert found.spec.space[0].choices == ("NO", "ON"), "not False and True"
    with pytest.raises(SpecError, match=r"none\.yaml"):
        Study.from_file(tmp_path / "none.yaml")
