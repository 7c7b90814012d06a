"""Values of options are refused before a command does its work, and printed values are valid JSON."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.types import Finite, OutputPath, Positive, parse_utc


def test_a_number_is_finite_and_within_its_bounds() -> None:
    assert Finite(min=0.0).convert("1.5", None, None) == 1.5
    for text in ("nan", "-1", "one"):
        with pytest.raises(click.BadParameter):
            Finite(min=0.0).convert(text, None, None)


def test_a_positive_number_is_above_zero() -> None:
    assert Positive(most=10).convert("0.1", None, None) == 0.1
    for text in ("0", "inf", "11"):
        with pytest.raises(click.BadParameter):
            Positive(most=10).convert(text, None, None)


def test_a_time_is_utc_unless_it_names_a_zone() -> None:
    assert parse_utc("1970-01-01T01:00:00") == 3600.0
    assert parse_utc("1970-01-01T01:00:00+01:00") == 0.0
    assert parse_utc(None) is None
    with pytest.raises(click.BadParameter, match="yesterday"):
        parse_utc("yesterday")


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_times_that_utc_does_not_have_are_no_times(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no time"):
        parse_utc(text)


def test_an_output_goes_into_a_folder_that_exists(tmp_path: Path) -> None:
    assert OutputPath(".png").convert(str(tmp_path / "a.png"), None, None) == tmp_path / "a.png"
    with pytest.raises(click.BadParameter, match="make it first"):
        OutputPath().convert(str(tmp_path / "missing" / "a.csv"), None, None)
    with pytest.raises(click.BadParameter, match=r"must end in \.png or \.svg"):
        OutputPath(".png", ".svg").convert(str(tmp_path / "a.jpg"), None, None)


def test_json_has_null_for_what_it_cannot_say(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": float("nan"), "b": [float("inf"), 1.0], "c": ("x", {"d": -float("inf")})})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.0], "c": ["x", {"d": None}]}


def test_an_empty_table_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("id", "name"), [], empty="no trainers")
    assert capsys.readouterr().out == "no trainers\n"
    print_table(("id", "name"), [(1, None)])
    assert capsys.readouterr().out.split() == ["id", "name", "1"]
