"""docs/cli.md has every command and option, and none that there is not."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import click
import pytest

from bftrainer.cli import app
from bftrainer.cli.shared.reference import commands, page

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "cli.md").read_text(encoding="utf-8")
EXAMPLES = json.loads((DOCS / "examples.json").read_text(encoding="utf-8"))
COMMANDS = {
    context.command_path: (command, context)
    for command, context in commands(app, click.Context(app, info_name="bftrainer"))
    if not isinstance(command, click.Group)
}
MOST_LINES, MOST_CHARACTERS = 16, 110


def of_page(text: str) -> dict[str, set[str]]:
    """Command -> its options, as the page has them."""
    found = {}
    for section in re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]:
        rows = "\n".join(line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `"))
        found[section.partition("\n")[0]] = set(re.findall(r"--[\w-]+", rows))
    return found


def test_the_page_is_what_the_commands_say() -> None:
    assert page(app, examples=EXAMPLES) == PAGE, "run `make docs`"
    assert of_page(PAGE)["bftrainer study show"] >= {"--watch", "--json"}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_an_example_that_it_still_takes_with_what_it_printed(name: str) -> None:
    """Where one is missing or refused, docs/record_examples.py records it anew."""
    command, context = COMMANDS[name]
    words = shlex.split(EXAMPLES[name]["command"])
    given = words[len(name.split()) :]
    assert " ".join(words[: len(name.split())]) == name
    found, rest, _ = command.make_parser(context).parse_args(given)
    assert rest == []
    assert not [p.name for p in command.params if p.required and found.get(p.name) in (None, ())]
    printed = EXAMPLES[name]["output"].splitlines()
    assert 1 <= len(printed) <= MOST_LINES
    assert max(map(len, printed)) <= MOST_CHARACTERS and "Traceback" not in EXAMPLES[name]["output"]


def test_the_front_page_has_six_commands_with_what_they_printed() -> None:
    page = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    shown = [each for each in EXAMPLES.values() if f"$ {each['command']}\n{each['output']}\n" in page]
    assert len(shown) == page.count("\n$ bftrainer ") == 6


def test_there_is_no_example_of_a_command_that_is_gone() -> None:
    assert set(EXAMPLES) <= set(COMMANDS)


def test_what_would_be_a_column_or_stressed_is_shown_as_it_is() -> None:
    @click.group()
    def group() -> None:
        """All."""

    @group.command()
    @click.option("--which", type=click.Choice(["a", "b"]), help="One of a|b, 2*a, or 3*b.")
    def below(which: str) -> None:
        """Do it."""

    assert r"| `--which [a\|b]` | One of a\|b, 2\*a, or 3\*b. |" in page(group, "x")
    assert "## x below\n\n```\nx below [OPTIONS]\n```\n\nDo it.\n" in page(group, "x")
