"""The catalogue of messages: what it says is what is raised, and the page is made of it."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from string import Formatter

import pytest
from click.testing import CliRunner

import bftrainer
from bftrainer.cli import app
from bftrainer.messages.catalogue import CATALOGUE, SECTIONS, messages_of
from bftrainer.messages.diagnostic import Diagnostic
from bftrainer.messages.page import page

PACKAGE = Path(bftrainer.__file__).parent
NAMED = {
    (module.__name__, name): found
    for module in SECTIONS.values()
    for name, found in vars(module).items()
    if isinstance(found, Diagnostic)
}


def places(message: Diagnostic) -> set[str]:
    """The names of the values in its text and cure."""
    return {
        name
        for template in (message.text, message.cure)
        for _, name, _, _ in Formatter().parse(template)
        if name is not None
    }


def used() -> tuple[dict[str, set[str]], list[str]]:
    """Id -> packages that use it, and the calls whose values are not those of the templates."""
    packages: dict[str, set[str]] = defaultdict(set)
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        tree, where = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(PACKAGE)
        known = {
            alias.asname or alias.name: NAMED[node.module, alias.name]
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module is not None
            for alias in node.names
            if (node.module, alias.name) in NAMED
        }
        for call in ast.walk(tree):
            if isinstance(call, ast.Name) and isinstance(call.ctx, ast.Load) and call.id in known:
                packages[known[call.id].id].add(where.parts[0])
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            of = call.func.value
            if call.func.attr in ("say", "parts") and isinstance(of, ast.Name) and of.id in known:
                message = known[of.id]
                given = {keyword.arg for keyword in call.keywords}
                if None not in given and given != places(message):  # None: of a mapping, as it is at the time
                    wrong.append(f"{where}:{call.lineno} {message.id}")
    return packages, wrong


def test_each_message_is_said_with_the_values_that_it_names() -> None:
    packages, wrong = used()
    assert not wrong
    assert set(CATALOGUE) - set(packages) == set()


def test_ids_are_unique_and_in_order() -> None:
    found = [message for module in SECTIONS.values() for message in messages_of(module)]
    assert len(found) == len(CATALOGUE)
    for module in SECTIONS.values():
        numbers = [message.number for message in messages_of(module)]
        assert all(one < other for one, other in pairwise(numbers)), module.__name__


@pytest.mark.parametrize("message", CATALOGUE.values(), ids=lambda message: message.id)
def test_a_message_has_all_parts_and_ends_with_its_id(message: Diagnostic) -> None:
    assert not any(part.endswith(".") for part in (message.text, message.cure))
    assert message.cause.endswith(".")
    assert message.cure.startswith("{") or message.cure[0].isupper()
    assert not message.text.startswith(("The ", "A ", "This "))
    assert "docs/" not in message.text + message.cure, "an installed package has no such folder"
    assert re.fullmatch(
        rf"(?s).+\. .+ \(bftrainer explain {message.id}\)", Diagnostic(message.number, "a", "B", "C.").say()
    )


def test_the_page_is_what_the_catalogue_says() -> None:
    there = (PACKAGE.parent / "docs" / "messages.md").read_text(encoding="utf-8")
    assert there == page(), "run `make docs`"
    assert re.findall(r"(?m)^### (.+)$", there) == list(CATALOGUE)


@pytest.mark.parametrize("word", ["BFT-105", "bft-105", "BFT105", "105"])
def test_explain_knows_an_id_however_it_is_written(word: str) -> None:
    done = CliRunner().invoke(app, ["explain", word])
    assert done.exit_code == 0 and done.output.startswith("BFT-105: the model is in evaluation mode")
    found = json.loads(CliRunner().invoke(app, ["explain", "--json", word]).output)
    assert found["id"] == "BFT-105" and "model.train()" in found["cure"] and found["cause"]


@pytest.mark.parametrize("word", ["4", "BFT-999", "x" * 10_000, "BFT-105\n"])
def test_explain_refuses_what_is_no_id(word: str) -> None:
    done = CliRunner().invoke(app, ["explain", word])
    assert done.exit_code == 2
    assert "no message" in done.output and "bftrainer show" in done.output and len(done.output) < 400


def test_ids_are_completed() -> None:
    done = CliRunner().invoke(
        app,
        env={
            "_BFTRAINER_COMPLETE": "bash_complete",
            "COMP_WORDS": "bftrainer explain bft-10",
            "COMP_CWORD": "2",
        },
        prog_name="bftrainer",
    )
    assert "plain,BFT-101" in done.output and "BFT-110" not in done.output
