"""docs/contributing/extending.md describes the ports that there are, and names files that exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from bftrainer.ports import Scheduler

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "contributing" / "extending.md").read_text(encoding="utf-8")


def test_every_method_of_a_scheduler_is_described() -> None:
    methods = {name for name in vars(Scheduler) if not name.startswith("_")}
    section = PAGE.partition("## A scheduler\n")[2].partition("\n## ")[0]
    assert methods == set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


def test_files_that_the_page_names_exist() -> None:
    paths = [path for path in re.findall(r"`((?:bftrainer|tests)/[^`<]+)`", PAGE) if "<" not in path]
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_names_that_the_page_gives_exist() -> None:
    for module, name in re.findall(r"`(bftrainer(?:\.\w+)+)\.(\w+)`", PAGE):
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"
    for name, path in re.findall(r"`(\w+)` (?:of|from)\s+`(bftrainer/[\w/]+)\.py`", PAGE):
        module = path.replace("/", ".").removesuffix(".__init__")
        assert hasattr(importlib.import_module(module), name), f"{module}.{name}"
    ports = importlib.import_module("bftrainer.ports")
    for name in re.findall(r"`ports\.(\w+)`", PAGE):
        assert hasattr(ports, name), name
