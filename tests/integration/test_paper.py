"""The paper's evaluation can be run: its sweeps are sound, and evidence/evaluation.md shows their results."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import paper  # of benchmarks/, see pythonpath in pyproject.toml
import pytest
import yaml

from bftrainer.replay.sweep import grid as description

ROOT = Path(__file__).resolve().parents[2]
GRIDS = sorted((ROOT / "benchmarks" / "paper").glob("*.yaml"))
DOC = ROOT / "docs" / "evidence" / "evaluation.md"
TRACES = ROOT.parent / "shared" / "traces" / "summit-2021"


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: grid.stem)
def test_sweeps_are_of_runs_that_differ_on_files_in_one_folder(grid: Path, tmp_path: Path) -> None:
    plain = yaml.safe_load(grid.read_text())
    for given in (plain["base"], plain.get("grid", {}), *plain.get("runs", [])):
        for name in ("log", "workload", "curves"):
            for file in [given[name]] if isinstance(given.get(name), str) else given.get(name, []):
                (tmp_path / file).touch()
    runs = description.read(grid, files=tmp_path)
    assert len(runs) == len({run.key for run in runs}) >= max(1, len(plain.get("runs", [])))
    for run in runs:
        what = run.scenario
        assert what.curves is not None
        assert {what.log.parent, what.workload.parent, what.curves.parent} == {tmp_path}


def test_the_document_has_every_table_and_picture_and_each_sweep_is_in_it() -> None:
    text = DOC.read_text(encoding="utf-8")
    marked = [found[1] for found in paper.MARKED.findall(text)]
    assert sorted(marked) == sorted(paper.TABLES)
    shown = re.findall(r"!\[[^]]+\]\(pictures/([a-z-]+)\.png\)", text)
    assert sorted(shown) == sorted(paper.PICTURES)
    for name in shown:
        assert (DOC.parent / "pictures" / f"{name}.png").stat().st_size < 100_000
    for grid in GRIDS:
        assert grid.name in text


def test_tables_are_replaced_between_their_marks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paper, "TABLES", {"costs": lambda results: paper.__name__})
    text = "before\n<!-- table: costs -->\nold\nolder\n<!-- end -->\nafter\n"
    for given in (text, text.replace("old\nolder\n", "")):
        found = paper.filled(given, paper.Results(tmp_path, tmp_path))
        assert found == "before\n<!-- table: costs -->\npaper\n<!-- end -->\nafter\n"


@pytest.mark.nightly  # the unit tests replay the same log
@pytest.mark.skipif(not TRACES.is_dir(), reason="the published Summit log is not beside this checkout")
def test_a_few_hours_of_a_sweep_give_a_row(tmp_path: Path) -> None:
    plain = yaml.safe_load((ROOT / "benchmarks" / "paper" / "pauses.yaml").read_text())
    plain["base"]["hours"] = 3
    plain["runs"] = plain["runs"][:2]
    grid = tmp_path / "short.yaml"
    grid.write_text(yaml.safe_dump(plain))
    command = [sys.executable, "-m", "bftrainer", "sweep", grid, "--files", TRACES, "--jobs", "1"]
    subprocess.run(command, check=True, capture_output=True)
    with (tmp_path / "short" / "results.csv").open(newline="") as file:
        published, free = csv.DictReader(file)
    assert 0.5 < float(published["efficiency_u"]) < float(free["efficiency_u"]) <= 1
    assert published["node_hours"] == free["node_hours"]
