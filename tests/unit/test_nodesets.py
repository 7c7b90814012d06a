"""Sets of nodes are counted, and then expanded by ClusterShell."""

from __future__ import annotations

import pytest
from ClusterShell import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.nodesets import MAX_NODES, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[01-03],gpu3", {"n01", "n02", "n03", "gpu3"}),
        ("r[1-2]n[1-2]", {"r1n1", "r1n2", "r2n1", "r2n2"}),
        ("n[1-5/2],b[1,3-4]", {"n1", "n3", "n5", "b1", "b3", "b4"}),
        ("n[1-3]!n2", {"n1", "n3"}),
        ("a[1-2]x[1-2],b[3-4]", {"a1x1", "a1x2", "a2x1", "a2x2", "b3", "b4"}),
    ],
)
def test_sets_of_nodes(text: str, names: set[str]) -> None:
    assert set(expand(text, operations=True)) == names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n[1-100000000]", "names more than 100,000 nodes"),
        ("n[1-1000000000]", "is no range of numbers, of 9 digits at most"),
        ("r[1-1000]n[1-1000]", "names more than 100,000 nodes"),
        ("a,b[1-99999],c[1-2]", "names more than 100,000 nodes"),
        (",".join("a" * (MAX_NODES + 1)), "names more than 100,000 nodes"),
        ("n1\0", "names have no such characters"),
        ("n1\x1b[2J", "names have no such characters"),
        ("n1\ud800", "names have no such characters"),
        ("n\u0661", "names have no such characters"),
        ("n[1", "no set of nodes"),
        ("n[x-y]", "is no range of numbers"),
        ("n[1-5/0]", "is no set of nodes"),
    ],
)
def test_sets_that_no_machine_has(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        expand(text, operations=True)


def test_only_the_brackets_of_one_name_multiply() -> None:
    assert len(expand("a[1-2000],b[1-2000],c[1-2000]")) == 6000


@pytest.mark.parametrize("text", ["n[1-3]!n2", "@all", "n*", "a b", "a&b", "a^b", "n%d"])
def test_operations_are_for_those_that_we_trust(text: str) -> None:
    with pytest.raises(ValueError, match="names have no such characters"):
        expand(text)


def test_a_set_is_counted_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeSet, "NodeSet", None)
    with pytest.raises(ValueError, match="names more than 100,000 nodes"):
        expand(f"n[{','.join(['1-99999'] * 1000)}]")


PART = st.sampled_from(["n", "rack", "7", "[1-3]", "[08-10]", "[1,5-9/2]", ",", "x", "[2]"])


@given(st.lists(PART, max_size=8).map("".join))
def test_no_set_has_more_names_than_it_was_counted_to_have(text: str) -> None:
    try:
        names = expand(text, most=MAX_NODES)
    except ValueError:
        return
    if names:
        with pytest.raises(ValueError, match="names more than"):
            expand(text, most=len(set(names)) - 1)
