"""`bftrainer plan size`: nodes by time, cost and utility, of measurements and of a curve."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bftrainer.cli import app
from bftrainer.errors import BftrainerError
from tests.support.measured_programs import write_program

SPEC = """\
name: digits
command: [python, digits.py]
nodes: {min: 1, max: 4}
curve: [[1, 100], [2, 160], [4, 200]]
work: {samples: 360000}
"""


def plan(*words: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["plan", "size", *words], env={"COLUMNS": "200"})


def test_a_curve_is_worth_as_many_nodes_as_it_uses(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    found = plan(str(path), "--price", "2")
    assert found.exit_code == 0, found.output
    rows = [line.split() for line in found.output.splitlines() if line.strip()[:1].isdigit()]
    assert rows == [
        ["1", "100.0", "1.000", "1.000", "1:00:00", "2.00"],
        ["2", "160.0", "1.000", "0.800", "37:30", "2.50"],
        ["3", "180.0", "1.000", "0.600", "33:20", "3.33"],
        ["4", "200.0", "1.000", "0.500", "30:00", "4.00"],
    ]
    assert "take 4: its utility 0.500 is closest to 0.5" in found.output
    assert "none of" not in found.output and "changing" not in found.output


def test_measurements_are_planned_by_their_epochs(tmp_path: Path) -> None:
    write_program(tmp_path / "p")
    words = (str(tmp_path / "p"), "--gpus", "4", "--max-nodes", "3")
    found = plan(*words)
    assert found.exit_code == 0, found.output
    assert "changing:" in found.output and "from epoch 1 on" in found.output
    figures = json.loads(plan(*words, "--json").output)
    assert (figures["name"], figures["gpus"], len(figures["sizes"])) == ("p", 4, 3)
    assert len(figures["changing"]["course"]) == 3
    for size in figures["sizes"]:
        assert size["cost"] == size["node_hours"] == pytest.approx(size["nodes"] * size["time_s"] / 3600)
    assert figures["nodes"] in (1, 2, 3)


def test_where_no_size_is_within_the_bounds_it_says_so(tmp_path: Path) -> None:
    write_program(tmp_path / "p")
    found = plan(str(tmp_path / "p"), "--max-nodes", "2", "--low-utility", "1", "--high-utility", "1")
    assert "take 1:" in found.output
    assert "none of 1 to 2 nodes has one from 1 to 1" in found.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--low-utility", "0.7"], "no larger than the high one"),
        (["--min-nodes", "3", "--max-nodes", "2"], "the nodes are to lie in"),
        (["--max-nodes", "17"], "at most 16 nodes"),
        (["--low-utility", "nan"], "no number"),
        (["--gpus", "0"], "1<=x<=9"),
    ],
)
def test_bounds_that_cannot_be_are_refused(tmp_path: Path, words: list[str], says: str) -> None:
    write_program(tmp_path / "p")
    found = plan(str(tmp_path / "p"), *words)
    assert found.exit_code != 0
    assert says in (str(found.exception) if isinstance(found.exception, BftrainerError) else found.output)


@pytest.mark.parametrize("missing", ["curve"])
def test_a_spec_says_what_it_lacks(tmp_path: Path, missing: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("".join(line for line in SPEC.splitlines(keepends=True) if not line.startswith(missing)))
    found = plan(str(path))
    assert found.exit_code == 2, found.exception
    assert "curve: [[1, 100.0], [2, 190.0]]" in found.output


@pytest.mark.parametrize(
    ("nodes", "sizes"),
    [
        ("{sizes: [2, 4, 8]}", [2, 4, 8]),
        ("{min: 3, max: 9, multiple_of: 3}", [3, 6, 9]),
        ("{min: 3, max: 5}", [3, 4, 5]),
    ],
)
def test_only_numbers_on_which_the_trainer_runs_are_advised(
    tmp_path: Path, nodes: str, sizes: list[int]
) -> None:
    spec = {"name": "t", "command": "python t.py", "work": {"samples": 1e6}}
    text = json.dumps(spec | {"curve": [[n, 100 * n**0.7] for n in range(1, 10)]})
    (tmp_path / "spec.yaml").write_text(f"{text[:-1]}, nodes: {nodes}}}")
    found = json.loads(plan(str(tmp_path / "spec.yaml"), "--json").output)
    assert [size["nodes"] for size in found["sizes"]] == sizes
    assert found["nodes"] in sizes
    assert set(found["changing"]["course"]) <= set(sizes)


def test_gpus_are_not_a_curves(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    found = plan(str(tmp_path / "spec.yaml"), "--gpus", "4")
    assert found.exit_code == 2 and "not with a trainer spec" in found.output


def test_a_search_needs_no_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "search.yaml").write_text("halving: {trials: 2, least: 1, most: 2, eta: 2}\n")
    short, long = (
        CliRunner().invoke(app, ["plan", *words, str(tmp_path / "search.yaml")]) for words in ([], ["search"])
    )
    assert str(short.exception) == str(long.exception) != ""
