"""Pages name files that exist, and the tree in docs/contributing/architecture.md is the tree."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bftrainer.search.files.schema import StudyForm
from bftrainer.spec.schema import Spec

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "bftrainer"
SENTENCES = ROOT / ".ci" / "sentences.py"
EVIDENCE = ROOT / "benchmarks" / "evidence.py"
WRITTEN_OTHERWISE = {"across"}
"""A part of `curve` in a spec that users write."""
PLUGIN = re.compile(r"(schedulers|launch)/\w+/")
PAGES = sorted([*ROOT.glob("*.md"), ROOT / "slurm" / "README.md", *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(
        r"(?<![\w/.<{-])((?:[\w.-]+/)+[\w-]+\.(?:py|j2|sh|yaml|service|md))(?!\.?\w|/)", page.read_text()
    )
    for name in named:
        places = (ROOT / name, PACKAGE / name, page.parent / name, ROOT / "trainers" / Path(name).name)
        assert any(place.exists() for place in places), f"{page.name} names {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_pages_and_headings_that_are_there(page: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```$|`[^`\n]*`", "", page.read_text())
    for target in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        other = page.parent / path if path else page
        assert other.is_file(), f"{page.name} links to {target}, which is no page that the site has"
        assert not anchor or anchor in _anchors(other), f"{page.name} links to {target}"


def _anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text())
    headings = re.findall(r"(?m)^#+ (.+)$", text)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_no_sentence_of_a_users_or_admins_page_has_more_than_30_words() -> None:
    folders = (ROOT / "docs", ROOT / "docs" / "tutorials")
    written = [page for page in PAGES if page.parent in folders]
    printed = subprocess.run(
        [sys.executable, SENTENCES, *written], capture_output=True, text=True, check=True
    ).stdout
    assert len(printed.splitlines()) == len(written), printed


def test_the_index_of_evidence_is_that_of_the_claims(tmp_path: Path) -> None:
    """And each claim's page and script are there; a claim that is checked names a number."""
    index, written = ROOT / "docs" / "evidence" / "README.md", tmp_path / "index.md"
    written.write_text(index.read_text())
    subprocess.run([sys.executable, EVIDENCE, "--write", str(written)], check=True)
    assert written.read_text() == index.read_text(), "make docs"
    claims = tomllib.loads(EVIDENCE.with_suffix(".toml").read_text())["claim"]
    for claim in claims:
        assert (index.parent / f"{claim['page']}.md").exists()
        assert all((ROOT / name).exists() for name in re.findall(r"benchmarks/\w+\.py", claim["command"]))
        assert ("pattern" in claim) == ("value" in claim) == ("spread" in claim)
        if "pattern" in claim:
            assert 1 <= re.compile(claim["pattern"]).groups <= 2


@pytest.mark.parametrize("name", ["python", "http"])
def test_generated_pages_are_those_of_the_docstrings(name: str, tmp_path: Path) -> None:
    page = ROOT / "docs" / f"{name}.md"
    written = tmp_path / page.name
    written.write_text(page.read_text())
    subprocess.run([sys.executable, page.with_name(f"{name}_page.py"), written], check=True)
    assert written.read_text() == page.read_text(), "make docs"


def test_the_tables_of_specs_and_studies_have_all_keys_and_no_others() -> None:
    for page, form in (("trainer-spec", Spec), ("studies", StudyForm)):
        text = (ROOT / "docs" / f"{page}.md").read_text()
        table = text.partition("| key | meaning | default |\n|---|---|---|\n")[2].partition("\n\n")[0]
        cells = [row.split(" | ")[0] for row in table.splitlines()]
        named = {name for cell in cells for name in re.findall(r"`(\w+)(?:\.\w+)?`", cell)}
        assert named == set(form.model_fields) - WRITTEN_OTHERWISE, page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_install_from_the_checkout_or_a_wheel_as_there_is_no_distribution(page: Path) -> None:
    said = "\n".join(line.partition("#")[0] for line in page.read_text().splitlines())
    assert not re.findall(r"pip install[^`\n]* '?bftrainer(?=\[|'|\s|`).*", said)


def test_the_tree_of_the_architecture_is_the_tree() -> None:
    text = (ROOT / "docs" / "contributing" / "architecture.md").read_text()
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


def test_one_node_event_is_followed_through_at_most_20_files() -> None:
    text = (ROOT / "docs" / "contributing" / "trainer-life.md").read_text()
    section = text.partition("## One node event, file by file\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([\w/]+\.py)`", section))
    assert 10 < len(named) <= 20, sorted(named)


def test_the_lines_that_a_kind_of_script_needs_stand_in_its_script() -> None:
    page = (ROOT / "docs" / "evidence" / "scripts.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| `(\w+\.py)` \| (.+) \|$", page, re.MULTILINE)
    kinds = ROOT / "tests" / "support" / "scripts" / "kinds"
    assert {name for name, _ in rows} == {path.name for path in kinds.glob("*.py")} - {"material.py"}
    prose = {"parts=", "scheduler.step()"}
    missing = [
        f"{name}: {line}"
        for name, lines in rows
        for line in re.findall(r"`([^`]+)`", lines)
        if line not in prose and line not in (kinds / name).read_text()
    ]
    assert not missing, missing


def test_the_pictures_of_nodes_are_those_that_their_text_describes(tmp_path: Path) -> None:
    folder = ROOT / "docs" / "pictures"
    shutil.copy(folder / "lanes.toml", tmp_path)
    subprocess.run([sys.executable, folder / "lanes.py", tmp_path], check=True)
    drawn = list(tmp_path.glob("*.svg"))
    assert drawn
    assert all(each.read_text() == (folder / each.name).read_text() for each in drawn), "make docs"
