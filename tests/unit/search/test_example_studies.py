"""The studies of the examples are valid; each names a script that is there and takes what it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.search.files.parse import parse
from bftrainer.search.plan.ahead import ahead, late

STUDIES = Path(__file__).parents[3] / "trainers" / "studies"


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_study_names_a_script_that_takes_its_options(path: Path) -> None:
    spec = parse(path.read_text(encoding="utf-8"), path.name, path.parent)
    script = Path(spec.trainer.workdir, spec.trainer.command[1]).read_text(encoding="utf-8")
    options = [word for word in spec.trainer.command if word.startswith("--")]
    assert options
    assert all(f'"{option}"' in script for option in options)


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_study_can_be_planned_as_it_is(path: Path) -> None:
    spec = parse(path.read_text(encoding="utf-8"), path.name, path.parent)
    found = ahead(spec, [], 4, 3600.0)
    assert found is not None and found.seconds is not None
    assert not late(found, 3600.0)


def test_there_is_one_for_each_example() -> None:
    folder = STUDIES.parent
    examples = {p.parent.name for p in folder.glob("*/task.py")}
    examples |= {p.stem for p in folder.glob("*.py")}
    assert {path.stem for path in STUDIES.glob("*.yaml")} == examples
