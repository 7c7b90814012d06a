"""docs/cli.md has every command and option, and none that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import click

from bftrainer.cli import app
from bftrainer.cli.shared.reference import page

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")


def of_page(text: str) -> dict[str, set[str]]:
    """Command -> its options, as the page has them."""
    found = {}
    for section in re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]:
        rows = "\n".join(line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `"))
        found[section.partition("\n")[0]] = set(re.findall(r"--[\w-]+", rows))
    return found


def test_the_page_is_what_the_commands_say() -> None:
    assert of_page(PAGE) == of_page(page(app)), "run `make docs`"
    assert of_page(PAGE)["bftrainer study show"] >= {"--watch", "--json"}


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
