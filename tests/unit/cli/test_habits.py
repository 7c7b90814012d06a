"""What a newcomer types: words of other programs, several trainers at once, lists that go on."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from bftrainer import __version__
from bftrainer.api.client import DaemonError, TrainerList
from bftrainer.cli import app, cancel_command, events_command, list_command, queue_command
from bftrainer.cli.shared.groups import MEANT
from bftrainer.cli.shared.trainers.table import ORDERS, brief
from tests.unit.cli.test_terminal import EVENT, TRAINER


class Over(Exception):  # noqa: N818
    """The test has seen enough of a command that goes on for ever."""


def always(client: object, *parts: str, every_s: float) -> Iterator[None]:
    """A feed that tells of a change again and again."""
    return itertools.repeat(None)


def run(
    monkeypatch: pytest.MonkeyPatch, module: Any, client: object, *words: str, columns: int = 500
) -> Result:
    monkeypatch.setattr(module, "connect", lambda config, state_dir: client)
    return CliRunner().invoke(module.command, list(words), env={"COLUMNS": str(columns)})


def trainer(id_: int, status: str, **more: Any) -> dict[str, Any]:
    ended_at = None if status in ("running", "waiting") else 100.0 - id_
    own = {"id": id_, "name": f"t{id_}", "status": status, "user": "ann", "reason": "", "note": ""}
    return {**TRAINER, **own, "warned": [], "ended_at": ended_at, "submitted_at": 10.0, **more}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ls"], "no such command 'ls'; did you mean bftrainer list?"),
        (["RUN"], "did you mean bftrainer submit?"),
        (["why", "4"], "did you mean bftrainer show or bftrainer queue?"),
        (["stauts"], "did you mean bftrainer status?"),
        (["study", "ls"], "did you mean bftrainer study list?"),
        (["trace", "inof", "x"], "did you mean bftrainer trace info?"),
        (["admin", "resmue"], "did you mean bftrainer admin resume?"),
        (["qqqqqqqq"], "error: no such command 'qqqqqqqq'\n"),
    ],
)
def test_an_unknown_command_names_those_that_may_be_meant(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, words, prog_name="bftrainer")
    assert done.exit_code == 2
    assert said.removeprefix("error: ").strip() in done.output
    assert ("did you mean" in done.output) is ("did you mean" in said)


def test_no_word_of_another_program_hides_a_command() -> None:
    known = {*app.list_commands(click.Context(app)), "best", "pause", "resume"}
    assert MEANT.keys() <= known


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_is_told(option: str) -> None:
    assert __version__ in CliRunner().invoke(app, [option]).output


class Cancelling:
    def __init__(self) -> None:
        self.ended: list[str] = []

    def call(self, method: str, path: str) -> dict[str, Any]:
        name = path.removeprefix("trainers/")
        if name == "nope":
            raise DaemonError("no trainer 'nope'")
        if method == "DELETE":
            self.ended.append(name)
        return trainer(int(name), "cancelled", workers={}, samples=12_345)


def test_several_trainers_are_cancelled_and_a_wrong_name_keeps_none_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Cancelling()
    done = run(monkeypatch, cancel_command, client, "1", "nope", "2", "1")
    assert client.ended == ["1", "2"]
    assert done.output.splitlines() == [f"t{i} ({i}): cancelled after 12,345 samples" for i in (1, 2)]
    assert str(done.exception) == "no trainer 'nope'"
    several = run(monkeypatch, cancel_command, client, "1", "2", "--json")
    assert [t["id"] for t in json.loads(several.output)] == [1, 2]
    assert json.loads(run(monkeypatch, cancel_command, client, "1", "--json").output)["id"] == 1
    assert run(monkeypatch, cancel_command, client).exit_code == 2


class Listing:
    """A daemon whose trainers are these, one list after the other."""

    def __init__(self, *lists: list[dict[str, Any]]) -> None:
        self.lists = list(lists)

    def trainers(self, ended: int, *, every: bool = False) -> TrainerList:
        if not self.lists:
            raise Over
        return TrainerList(self.lists.pop(0), 0, 0)


def test_trainers_that_have_not_ended_come_first_and_failed_ones_have_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [
        trainer(1, "running"),
        trainer(2, "failed", reason="exit code 1: KeyError: 'x'", samples=96_336, submitted_at=38.0),
        trainer(3, "completed", reason="its work is done"),
        trainer(4, "waiting", reason="needs 8 nodes"),
    ]
    done = run(monkeypatch, list_command, Listing(rows))
    head, *lines = done.output.splitlines()
    assert head.split() == ["ID", "NAME", "USER", "STATE", "NODES", "TIME", "REASON"]
    assert [line.split()[0] for line in lines[:4]] == ["1", "4", "2", "3"], "live ones first"
    assert lines[1].rstrip().endswith("needs 8 nodes")
    assert lines[3].rstrip().endswith("s"), "its work is done: that is no reason"
    assert "60 s" in lines[2] and lines[2].rstrip().endswith("exit code 1")
    assert lines[4:] == ["t2 (2) failed: exit code 1: KeyError: 'x'", "t4 (4) waits: needs 8 nodes"]
    as_json = run(monkeypatch, list_command, Listing(rows), "--json")
    assert [t["id"] for t in json.loads(as_json.output)] == [1, 2, 3, 4]


@pytest.mark.parametrize("module", [list_command, queue_command])
def test_a_trainer_that_waits_has_one_line_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    reason = "needs 6 nodes, and only 5 of the machine can ever be idle"
    rows = [trainer(i, "waiting", name="resnet-baseline", user="a-student", reason=reason) for i in (1, 2)]
    done = run(monkeypatch, module, Listing(rows), columns=80)
    lines = done.output.splitlines()[:3]
    assert [line.split()[0] for line in lines[1:]] == ["1", "2"], done.output
    assert max(map(len, lines)) <= 80 and "needs 6 nodes" in lines[1]


def test_a_list_has_the_columns_and_the_order_that_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [trainer(1, "running"), trainer(2, "waiting"), trainer(3, "running")]
    for row, members in zip(rows, (["a"], [], ["b", "c"]), strict=True):
        row["members"] = row["nodes"] = members
    done = run(monkeypatch, list_command, Listing(rows), "--format", "nodes,Name", "--sort", "-nodes")
    head, *lines = done.output.splitlines()
    assert head.split() == ["NODES", "NAME"]
    assert [line.split() for line in lines[:3]] == [["2", "t3"], ["1", "t1"], ["0", "t2"]]
    long = run(monkeypatch, list_command, Listing(rows), "--format", "long").output.splitlines()[0]
    assert {"WORKERS", "METRICS", "SAMPLES/S", "PRIORITY"} <= set(long.split())
    for order in ORDERS:
        assert not run(monkeypatch, list_command, Listing(rows), "--sort", order).exit_code, order
    for words in (("--format", "x,y"), ("--sort", "x")):
        refused = run(monkeypatch, list_command, Listing(rows), *words)
        assert refused.exit_code == 2 and "'x" in refused.output and "nodes" in refused.output


def test_a_reason_in_a_table_is_short() -> None:
    assert brief("needs 1 node, 0 free: held by spirals (2 nodes)") == "needs 1 node, 0 free"
    assert len(brief("word " * 100)) == 40 and brief("word " * 100).endswith("…")


def test_a_watched_list_comes_again_when_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, runs = [trainer(1, "waiting")], [trainer(1, "running")]
    monkeypatch.setattr(list_command, "changes", always)
    done = run(monkeypatch, list_command, Listing(waits, waits, runs, runs), "--watch")
    assert isinstance(done.exception, Over)
    assert done.output.count("ID") == 2 and done.output.index("waiting") < done.output.index("running")
    assert run(monkeypatch, list_command, Listing(waits), "--watch", "--json").exit_code == 2


class Happening:
    """A daemon in which this many events have happened when it is asked once more."""

    def __init__(self, *counts: int) -> None:
        self.counts = list(counts)
        self.now = 0

    def rows(self, what: str, limit: int, trainer: str | None) -> list[dict[str, Any]]:
        if limit <= events_command.SOME:
            if not self.counts:
                raise Over
            self.now = self.counts.pop(0)
        return [{**EVENT, "id": i} for i in range(1, self.now + 1)][-limit:]


def test_followed_events_come_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_command, "changes", always)
    done = run(monkeypatch, events_command, Happening(30, 30, 31, 1500, 1501), "-f", "-n", "5")
    assert isinstance(done.exception, Over)
    assert [int(line.split()[0]) for line in done.output.splitlines()] == list(range(26, 1502))
    assert run(monkeypatch, events_command, Happening(1), "-f", "--json").exit_code == 2
