"""Pages name files that exist, and the tree in docs/architecture.md is the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "bftrainer"
PLUGIN = re.compile(r"(schedulers|launch)/\w+/")
PAGES = sorted([ROOT / "README.md", ROOT / "SECURITY.md", *ROOT.glob("docs/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(
        r"(?<![\w/.<{-])((?:[\w.-]+/)+[\w-]+\.(?:py|j2|sh|yaml|service|md))(?!\.?\w|/)", page.read_text()
    )
    for name in named:
        places = (ROOT / name, PACKAGE / name, page.parent / name, ROOT / "trainers" / Path(name).name)
        assert any(place.exists() for place in places), f"{page.name} names {name}"


def test_the_tree_of_the_architecture_is_the_tree() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    block = re.search(r"```\nbftrainer/\n(.*?)```", text, re.DOTALL)
    assert block is not None
    named, folders = set(), [""]
    for line in block[1].splitlines():
        depth, words = (len(line) - len(line.lstrip())) // 2, line.split()
        if words and words[0].endswith("/"):
            folders = [*folders[:depth], words[0]]
        elif words and words[0].endswith(".py"):
            folders = folders[:depth]
            named |= {"".join(folders) + word for word in words if word.endswith(".py")}
    there = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "migrations" not in path.parts and path.name != "__init__.py"
    }
    shown = {name.rpartition("/")[0] for name in named}
    plugins = {name for name in there if PLUGIN.match(name) and name.rpartition("/")[0] not in shown}
    assert named == there - plugins, "a scheduler or launcher of its own need not be shown, all else is"
