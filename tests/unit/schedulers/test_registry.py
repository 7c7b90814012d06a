"""A scheduler is a folder, one line in settings/schedulers.py, a contract test and a page of the docs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import bftrainer
from bftrainer.settings.schedulers import SCHEDULERS

PACKAGE = Path(bftrainer.__file__).parent
ROOT = PACKAGE.parent
PAGES = {"local": "user-guide.md"}
"""Where a scheduler's page has another name than the scheduler."""
LSF = re.compile(r"\blsf|\bLSF|LsfSettings|\b(?:bsub|bjobs|bhosts|bkill|bslots|jobstat)\b")
LINE = re.compile(r'^    "local": (SchedulerKind\(.*\)),\n', re.MULTILINE)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_can_be_made_passes_the_contract_and_has_its_page(name: str) -> None:
    module = SCHEDULERS[name].module
    assert callable(import_module(module).make)
    assert SCHEDULERS[name].on_this_machine or callable(import_module(module).observer)
    assert module == f"bftrainer.schedulers.{name}.make"
    folder = module.rpartition(".")[0]
    tests = [*(ROOT / "tests" / "contract").glob("*.py"), *(ROOT / "tests" / "cluster").glob("*.py")]
    contracts = [text for path in tests if "SchedulerContract" in (text := path.read_text(encoding="utf-8"))]
    assert any(folder in text for text in contracts), f"no contract test of {name}"
    assert (ROOT / "docs" / PAGES.get(name, f"{name}.md")).exists()


def test_the_page_on_the_architecture_names_every_place_that_knows_lsf() -> None:
    page = (ROOT / "docs" / "contributing" / "architecture.md").read_text(encoding="utf-8")
    part = page[page.index("### What LSF took") : page.index("## Decisions worth knowing")]
    known = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", part[: part.index("`tests/unit/")])
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if LSF.search(path.read_text(encoding="utf-8"))
    }
    assert {path for path in found if not path.startswith(tuple(known))} == set()
    assert [place for place in known if not any(path.startswith(place) for path in found)] == []


def test_a_folder_and_a_line_are_all_that_a_scheduler_takes(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "bftrainer", ignore=shutil.ignore_patterns("__pycache__"))
    folder = tmp_path / "bftrainer" / "schedulers"
    shutil.copytree(folder / "local", folder / "twin")
    for path in (folder / "twin").glob("*.py"):
        path.write_text(path.read_text().replace("schedulers.local", "schedulers.twin"))
    registry = tmp_path / "bftrainer" / "settings" / "schedulers.py"
    registered, added = LINE.subn(
        lambda line: line[0] + line[0].replace("local", "twin"), registry.read_text()
    )
    assert added == 1
    registry.write_text(registered)

    def python(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            env={**os.environ, "PYTHONPATH": str(tmp_path), "BFTRAINER_SITE_CONFIG": "/nowhere"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.stdout + done.stderr

    assert "[slurm|lsf|local|twin]" in python("-m", "bftrainer", "daemon", "--help")
    assert "One of `slurm`, `lsf`, `local`, `twin`" in python("-m", "bftrainer.settings.page")
    made = python(
        "-c",
        "from pathlib import Path\n"
        "from bftrainer.daemon.process.compose import compose\n"
        "from bftrainer.schedulers.shared.context import PlayedLog\n"
        "from bftrainer.settings.sources import load\n"
        "from bftrainer.store.sql import SqlStore\n"
        "own = load({'state_dir': Path('state'), 'scheduler': 'twin'}, environ={})\n"
        "own.state_dir.mkdir()\n"
        "log = PlayedLog(path=None, nodes=2, speed=1.0, seed=0, begin=None)\n"
        "daemon = compose(own, SqlStore(own.database), log, print)\n"
        "print(type(daemon.recovery.scheduler).__module__)\n",
    )
    assert made.strip() == "bftrainer.schedulers.twin.scheduler", made
