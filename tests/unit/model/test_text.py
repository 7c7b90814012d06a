"""Texts from outside: what is refused, and how it is shown nonetheless."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model.text import plain, shown

ANY = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize("text", ["", "a b", "größer", "日本", "🚀", "a\u00a0b"])
def test_what_a_terminal_shows_as_it_is_passes(text: str) -> None:
    assert plain(text) == text
    assert shown(text) == text


@pytest.mark.parametrize(
    ("character", "named"),
    [
        ("\x00", r"'\x00'"),
        ("\x1b", r"'\x1b'"),
        ("\n", r"'\n'"),
        ("\t", r"'\t'"),
        ("\x7f", r"'\x7f'"),
        ("\x9b", r"'\x9b'"),
        ("\ud800", r"'\ud800'"),
        ("\udfff", r"'\udfff'"),
        ("\u2028", r"'\u2028'"),
        ("\u202e", r"'\u202e'"),
    ],
)
def test_what_it_obeys_or_cannot_print_is_refused_by_name_and_place(character: str, named: str) -> None:
    with pytest.raises(ValueError, match="remove it") as error:
        plain(f"ab{character}c")
    assert str(error.value) == f"contains the control character {named} at position 2: remove it"
    assert shown(f"ab{character}c") == f"ab{named[1:-1]}c"


def test_nothing_invisible_passes() -> None:
    categories = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    unseen = [c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in categories]
    unseen += "\u034f\u115f\u1160\u17b4\u180b\u3164\ufe0f\uffa0\U000e0100"  # marks and letters of no width
    passed = []
    for character in unseen:
        if shown(f"loss{character}") == f"loss{character}":
            passed.append(ascii(character))
        with pytest.raises(ValueError, match="remove it"):
            plain(f"loss{character}")
    assert passed == []


def test_lines_are_allowed_where_they_are_meant() -> None:
    assert plain("a\n\tb\n", lines=True) == "a\n\tb\n"
    with pytest.raises(ValueError, match="control character"):
        plain("a\n\x1b[2J", lines=True)
    with pytest.raises(ValueError, match="control character"):
        plain("a\rb", lines=True)


@given(ANY)
def test_what_is_shown_is_plain(text: str) -> None:
    assert plain(shown(text)) == shown(text)


@given(ANY)
def test_what_passes_can_be_stored_and_sent(text: str) -> None:
    try:
        plain(text, lines=True)
    except ValueError:
        return
    assert json.loads(json.dumps(text).encode("utf-8")) == text
    assert text.encode("utf-8").decode("utf-8") == text
