"""What is odd about a trainer is told with the list, with its details and with its logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bftrainer.api.client import Listed
from bftrainer.cli import list_command, logs_command, show_command
from tests.unit.cli.test_terminal import TRAINER

NOTE = "on n1 its script has not reached elastic.Run yet"


class Client:
    def __init__(self, log_dir: Path) -> None:
        self.trainer = {**TRAINER, "name": "t", "user": "ann", "note": NOTE, "log_dir": str(log_dir)}

    def call(self, method: str, path: str, **query: object) -> object:
        return self.trainer

    def trainers(self, ended: int, *, every: bool = False) -> Listed:
        return Listed([self.trainer], 0, 0)


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
