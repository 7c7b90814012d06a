"""What answers on a socket may be no daemon: commands say so, and show no traceback."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from bftrainer.api.client import Client
from bftrainer.cli import app
from bftrainer.errors import BftrainerError

ODD = [None, 1, True, {}, [], [1], [None], "text", {"id": [], "nodes": 1}, [{"user": 1}]]


@pytest.mark.parametrize(
    "words", [["list"], ["show", "1"], ["pool"], ["events"], ["status"], ["logs", "1"], ["cancel", "1"]]
)
def test_an_answer_of_another_form_ends_in_one_message(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    refused = 0
    for odd in ODD:

        def answer(*_: Any, odd: object = odd) -> tuple[object, dict[str, str]]:
            return odd, {}

        monkeypatch.setattr(Client, "_call", answer)
        result = CliRunner().invoke(app, [*words, "--state-dir", "/nowhere"])
        error = result.exception
        assert error is None or isinstance(error, (BftrainerError, SystemExit)), (odd, error)
        refused += "does not answer like a daemon" in str(error)
    assert refused >= 3
