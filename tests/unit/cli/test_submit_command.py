"""What `bftrainer submit` says of a trainer that was there before, and when it resumes none."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bftrainer.cli import submit_command
from bftrainer.rehearsal import tried

SPEC = "name: a\ncommand: [python, a.py]\nnodes: {max: 4}\n"


class Client:
    def __init__(self, earlier: dict[str, Any] | None, folder: Path) -> None:
        self.earlier, self.folder = earlier, folder
        self.posted: dict[str, Any] = {}
        self.ended_at: float | None = 5.0

    def call(self, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
        if method == "GET":
            assert path == "trainers/a"
            return {"id": 3, "name": "a", "checkpoint_dir": str(self.folder), "ended_at": self.ended_at}
        self.posted = body
        return {"id": 4, "name": "a", "note": "", "earlier": self.earlier}


def earlier(folder: Path, *, goes_on: bool) -> dict[str, Any]:
    about = {"id": 3, "name": "a", "status": "cancelled", "step": 500}
    return {**about, "checkpoint_dir": str(folder), "goes_on": goes_on}


def run(client: Client, monkeypatch: pytest.MonkeyPatch, *words: str, spec: str = SPEC) -> Result:
    monkeypatch.setattr(submit_command, "connect", lambda *_: client)
    monkeypatch.setattr(tried, "hint", lambda *_: "")
    with TemporaryDirectory() as folder, monkeypatch.context() as here:
        here.chdir(folder)
        Path("a.yaml").write_text(spec)
        Path("a.py").touch()
        return CliRunner().invoke(submit_command.command, ["a.yaml", *words])


def test_one_that_begins_anew_says_where_the_checkpoints_are_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(earlier(tmp_path, goes_on=False), tmp_path)
    said = run(client, monkeypatch).output
    assert "resume" not in client.posted
    assert (
        f"it begins anew; the checkpoints of trainer 3 (a, cancelled at step 500) stay in {tmp_path}" in said
    )
    assert "bftrainer cancel 4, then bftrainer submit --resume 3 a.yaml" in said
    assert "anew" not in run(Client(None, tmp_path), monkeypatch).output


def test_one_that_goes_on_says_from_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "g00000001-s000000000500.pt").touch()
    client = Client(earlier(tmp_path, goes_on=True), tmp_path)
    said = run(client, monkeypatch, "--resume", "a").output
    assert client.posted["resume"] == "3"
    assert (
        f"it goes on from the last checkpoint of trainer 3 (a, cancelled at step 500) in {tmp_path}" in said
    )


@pytest.mark.parametrize("missing", [True, False])
def test_nothing_is_submitted_where_there_is_no_checkpoint(
    missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".trainer.json").touch()
    client = Client(None, tmp_path / "none" if missing else tmp_path)
    done = run(client, monkeypatch, "--resume", "a")
    assert done.exit_code == 1 and not client.posted
    assert "no checkpoint" in str(done.exception) and "without --resume" in str(done.exception)


def test_the_daemon_is_asked_about_a_trainer_that_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(None, tmp_path)
    client.ended_at = None
    run(client, monkeypatch, "--resume", "a")
    assert client.posted["resume"] == "3"


def test_a_command_that_is_seldom_meant_so_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = 'name: a\ncommand: [bash, -c, "python a.py; echo over"]\nnodes: {max: 4}\n'
    assert "note: its command is a shell" in run(Client(None, tmp_path), monkeypatch, spec=spec).output
    in_json = run(Client(None, tmp_path), monkeypatch, "--json", spec=spec).output
    assert json.loads(in_json)["hint"].startswith("its command is a shell")
    assert "note:" not in run(Client(None, tmp_path), monkeypatch).output
