"""The figures that a script reports: how many names of them there may be."""

from __future__ import annotations

import pytest

from bftrainer.elastic.figures import Figures


def test_the_first_names_stay_with_their_latest_values_and_the_log_says_what_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = Figures(3)
    for step in range(50):
        figures.keep({"loss": step, f"acc_{step}": 0.5})
    assert figures == {"loss": 49.0, "acc_0": 0.5, "acc_1": 0.5}
    (line,) = capsys.readouterr().err.splitlines()
    figures = Figures(3)
    figures.keep({"n" * 1000: 1.0})
    assert list(figures) == ["n" * 100]
    assert "'acc_2'" in line and "3 at most (max_metrics)" in line and "one name" in line
