"""What a job's constraint asks of its nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.schedulers.slurm.queue.constraints import ANY, MOST_SETS, Part, ways


def sets(*words: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(word.split()) for word in words)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ((Part(ANY),),)),
        ("a&b", ((Part(sets("a b")),),)),
        ("a,b", ((Part(sets("a b")),),)),
        ("a|b", ((Part(sets("a", "b")),),)),
        ("(a|b)&c", ((Part(sets("a c", "b c")),),)),
        ("a&(b|c)", ((Part(sets("a b", "a c")),),)),
        ("a&b|c", ((Part(sets("a b", "c")),),)),
        ("[a|b]", ((Part(sets("a")),), (Part(sets("b")),))),
        ("[(a&b)|c]&d", ((Part(sets("a b d")),), (Part(sets("c d")),))),
        ("a*2&b*1", ((Part(sets("a"), 2), Part(sets("b"), 1)),)),
        ("[(a|b)*2&c*4]", ((Part(sets("a", "b"), 2), Part(sets("c"), 4)),)),
    ],
)
def test_what_slurm_understands(text: str, found: object) -> None:
    assert ways(text) == found


@pytest.mark.parametrize(
    "text", ["a*2|b*1", "a*2&b", "((a)", "a&", "&", "()", "[a|b", "a]b", "a)b", "!a", "*", "[]"]
)
def test_what_is_not_understood_may_be_any_node(text: str) -> None:
    assert ways(text) == ((Part(ANY),),)


def test_alternatives_do_not_multiply_without_bound() -> None:
    assert ways("&".join(["(a|b)"] * 500)) == ((Part(ANY),),)
    assert ways("(" * 1500 + "a" + ")" * 1500) == ((Part(ANY),),)
    assert ways("[" + "|".join(map(str, range(900))) + "]") == ((Part(ANY),),)
    assert ways("a" * 5000) == ((Part(ANY),),)


@given(st.text(st.sampled_from("ab&|,()[]*!1 \n"), max_size=30))
def test_nothing_that_a_user_writes_is_an_error(text: str) -> None:
    found = ways(text)
    assert found
    assert all(len(part.features) <= MOST_SETS for way in found for part in way)
