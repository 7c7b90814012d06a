"""What is odd about a trainer is told with the list, with its details and with its logs."""

from __future__ import annotations

from getpass import getuser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bftrainer.api.client import TrainerList
from bftrainer.cli import list_command, logs_command, show_command
from tests.unit.cli.test_terminal import TRAINER

NOTE = "on n1 its script has not reached elastic.Run yet"


class Client:
    def __init__(self, log_dir: Path) -> None:
        self.trainer = {**TRAINER, "name": "t", "user": getuser(), "note": NOTE, "log_dir": str(log_dir)}

    def call(self, method: str, path: str, **query: object) -> object:
        return self.trainer

    def trainers(self, ended: int, *, every: bool = False) -> TrainerList:
        return TrainerList([self.trainer], 0, 0)


@pytest.mark.parametrize(
    ("module", "words"), [(list_command, []), (show_command, ["t"]), (logs_command, ["t"])], ids=str
)
def test_a_note_is_shown(
    module: object, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "connect", lambda *_: Client(tmp_path))
    monkeypatch.setenv("COLUMNS", "300")
    done = CliRunner().invoke(module.command, words)  # type: ignore[attr-defined]
    assert done.exit_code == 0 and NOTE in done.output


@pytest.mark.parametrize(
    ("allowed", "said"),
    [
        ({"sizes": [], "multiple_of": 1}, "allowed: 1..8"),
        ({"sizes": [1, 2, 8], "multiple_of": 1}, "allowed: 1, 2, 8)"),
        ({"n_min": 2, "sizes": [], "multiple_of": 2}, "allowed: 2..8 in multiples of 2)"),
    ],
)
def test_details_say_which_sizes_are_allowed(
    allowed: dict[str, object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(tmp_path)
    client.trainer |= {"n_max": 8, **allowed}
    monkeypatch.setattr(show_command, "connect", lambda *_: client)
    done = CliRunner().invoke(show_command.command, ["t"], env={"COLUMNS": "300"})
    assert done.exit_code == 0 and said in done.output


def test_no_section_of_the_details_is_longer_than_a_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(tmp_path)
    size = {"node_class": None, "rate": 1.0, "error": None, "windows": 0, "source": "given"}
    client.trainer |= {
        "nodes": [f"n{n}" for n in range(4608)],
        "members": [],
        "metrics": {f"m{n}": 1.0 for n in range(50)},
        "warned": [f"of {n}" for n in range(90)],
        "scalability": {
            "mode": "auto",
            "may_ask_for": 9,
            "sizes": [{**size, "nodes": n} for n in range(1, 99)],
        },
    }
    monkeypatch.setattr(show_command, "connect", lambda *_: client)
    said = CliRunner().invoke(show_command.command, ["t"], env={"COLUMNS": "80"}).output
    sections = said.split("\n\n")
    assert len(sections) >= 4 and all(len(one.splitlines()) <= 24 for one in sections), said
    assert "and 4,592 more" in said and "of 89" in said and "\n98" in said, "the last sizes and warnings stay"


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ({"likely": 4000.0, "waits": 720.0, "unknown": ""}, "67 min if it gets nodes in 12 min"),
        ({"likely": 4000.0, "waits": 0.0, "unknown": ""}, "67 min if its workers are ready soon"),
        ({"waits": None, "unknown": "nobody can say"}, "not known: nobody can say"),
        ({"likely": 4000.0, "waits": None, "unknown": ""}, "67 min at its present speed"),
        ({"likely": 4000.0}, "67 min at its present speed"),
        (None, "not known: the spec names no amount of work (work: until_exit), nor"),
    ],
    ids=["waits", "starts", "unknown", "runs", "of an earlier daemon", "until exit"],
)
def test_details_say_when_it_will_end_or_why_that_is_not_known(
    ends: dict[str, object] | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(tmp_path)
    told = None if ends is None else {"early": None, "likely": None, "late": None, **ends}
    client.trainer |= {"ends_in_s": told, "work": None if ends is None else 5, "ended_at": None}
    monkeypatch.setattr(show_command, "connect", lambda *_: client)
    done = CliRunner().invoke(show_command.command, ["t"], env={"COLUMNS": "300"})
    assert done.exit_code == 0 and said in done.output


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"saved": 822, "status": "failed"}, "of step 822: step 823 to 900 is lost"),
        ({"saved": 899, "status": "cancelled"}, "of step 899: step 900 is lost"),
        ({"saved": 900, "status": "cancelled"}, "of step 900: no step is lost"),
        ({"saved": 822, "status": "waiting", "ended_at": None}, "822: step 823 to 900 will be done again"),
        ({"saved": 822, "status": "running", "ended_at": None, "members": ["n"]}, "goes on from there"),
    ],
    ids=["failed", "one step", "nothing", "waits", "runs"],
)
def test_details_say_which_steps_the_last_checkpoint_has(
    now: dict[str, object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(tmp_path)
    client.trainer |= {"step": 900, "members": [], "ended_at": 5.0, **now}
    monkeypatch.setattr(show_command, "connect", lambda *_: client)
    done = CliRunner().invoke(show_command.command, ["t"], env={"COLUMNS": "300"})
    assert done.exit_code == 0 and said in done.output


def listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str, **more: object) -> str:
    client = Client(tmp_path)
    client.trainer |= {"note": "", "status": "running", "name": "digits-1", "samples": 123_456_789, **more}
    monkeypatch.setattr(list_command, "connect", lambda *_: client)
    done = CliRunner().invoke(list_command.command, list(words), env={"COLUMNS": "40"})
    assert done.exit_code == 0, done.output
    return done.output


def test_no_number_is_folded_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ends = {"early": None, "likely": 4000.0, "late": 90_000.0}
    metrics = {"accuracy_of_the_last_epoch": 0.25}
    text = listed(monkeypatch, tmp_path, "--format", "long", metrics=metrics, ends_in_s=ends)
    assert all(whole in text for whole in ("digits-1", "123,456,789", "67 min to 25 h", "running"))


def test_of_many_metrics_a_few_are_listed_each_in_one_piece(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    metrics = {"eval_loss": 0.51234, "loss": 0.1234, "lr-AdamW": 0.0001, "eval_runtime": 1.5, "a": 1, "b": 2}
    text = listed(monkeypatch, tmp_path, "--format", "name,metrics", metrics=metrics)
    for whole in ("loss=0.1234", "lr-AdamW=0.0001", "a=1", "more"):
        assert whole in text, text
    assert "eval_loss" not in text


def test_columns_of_which_no_trainer_has_anything_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    head = listed(monkeypatch, tmp_path, reason="", nodes=[], members=[], workers={}).splitlines()[0]
    assert head.split() == ["ID", "NAME", "USER", "STATE", "NODES", "TIME"]


@pytest.mark.parametrize(
    ("words", "is_there"),
    [
        (["--status", "running"], True),
        (["--status", "waiting", "--status", "running"], True),
        (["--status", "failed"], False),
        (["--name", "digits*"], True),
        (["--name", "digits"], False),
        (["--name", "digits*", "--status", "waiting"], False),
    ],
    ids=str,
)
def test_a_list_of_some_trainers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], is_there: bool
) -> None:
    text = listed(monkeypatch, tmp_path, *words)
    assert ("digits-1" in text) is is_there and ("no such trainers" in text) is not is_there


def test_what_a_script_was_warned_of_is_marked_in_the_list_and_told_with_its_details(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    warned = ["the loss is a sum", "red \x1b[31m"]
    text = listed(monkeypatch, tmp_path, warned=warned[:1])
    assert "running (!)" in text and "see bftrainer show 1" in text
    assert "(!)" not in listed(monkeypatch, tmp_path, warned=[])
    client = Client(tmp_path)
    client.trainer |= {"warned": warned}
    monkeypatch.setattr(show_command, "connect", lambda *_: client)
    done = CliRunner().invoke(show_command.command, ["t"], env={"COLUMNS": "300"})
    assert "the loss is a sum" in done.output and "red" in done.output and "\x1b" not in done.output


@pytest.mark.parametrize(("unit", "said", "not_said"), [("GPU", "GPUs", "nodes"), ("node", "nodes", "GPUs")])
@pytest.mark.parametrize(("module", "words"), [(list_command, []), (show_command, ["t"])], ids=str)
def test_what_is_counted_is_called_by_its_name(
    module: Any,
    words: list[str],
    unit: str,
    said: str,
    not_said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(tmp_path)
    client.trainer |= {"unit": unit, "note": ""}
    monkeypatch.setattr(module, "connect", lambda *_: client)
    done = CliRunner().invoke(module.command, words, env={"COLUMNS": "300"})
    text = done.output.lower()
    assert done.exit_code == 0 and said.lower() in text and not_said.lower() not in text


ADAPTS = {"goodput.batch": 512.0, "goodput.initial": 128.0, "goodput.speed": 3.1, "goodput.efficiency": 0.62}


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        (ADAPTS, "512 of 128: 3.1 times the samples/s, 62 % of their worth, 1.9 times the progress"),
        ({**ADAPTS, "goodput.batch": float("nan")}, "nan of 128: 3.1 times"),
    ],
)
def test_details_say_what_a_larger_batch_is_worth(
    metrics: dict[str, float], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(tmp_path)
    client.trainer |= {"metrics": metrics}
    monkeypatch.setattr(show_command, "connect", lambda *_: client)
    done = CliRunner().invoke(show_command.command, ["t"], env={"COLUMNS": "300"})
    assert done.exit_code == 0 and said in done.output


def test_details_say_nothing_of_a_batch_that_does_not_adapt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(tmp_path)
    client.trainer |= {"metrics": {"batch": 512.0, "goodput.batch": 512.0}}
    monkeypatch.setattr(show_command, "connect", lambda *_: client)
    done = CliRunner().invoke(show_command.command, ["t"], env={"COLUMNS": "300"})
    assert done.exit_code == 0 and "of their worth" not in done.output
