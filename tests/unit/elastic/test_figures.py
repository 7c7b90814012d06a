"""The figures that a script reports: how many names of them there may be."""

from __future__ import annotations

import warnings

import pytest
import torch

from bftrainer.elastic.loop.run import figures
from bftrainer.elastic.process.metrics import Figures


def test_the_first_names_stay_with_their_latest_values_and_the_log_says_what_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = Figures(3)
    for step in range(50):
        kept.keep({"loss": step, f"acc_{step}": 0.5})
    assert kept == {"loss": 49.0, "acc_0": 0.5, "acc_1": 0.5}
    (line,) = capsys.readouterr().err.splitlines()
    kept = Figures(3)
    kept.keep({"n" * 1000: 1.0})
    assert list(kept) == ["n" * 100]
    assert "'acc_2'" in line and "3 at most" in line and "one name" in line


def test_a_loss_may_be_reported_as_it_is() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert figures({"loss": (torch.ones(1, requires_grad=True) * 2.0).sum()}, {}) == {"loss": 2.0}
