"""A script's own count of turns is found, through what it loops by."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from bftrainer.elastic.counted import is_enumerated


class Turns:
    """Looks for a count when its loop begins, as a run does."""

    found = False

    def __iter__(self) -> Iterator[int]:
        self.found = is_enumerated(self)
        yield 1


def bar(turns: Iterable[Any]) -> Iterator[Any]:
    """As that of a script's own."""
    yield from turns


def in_tqdm(turns: Any) -> Any:
    return pytest.importorskip("tqdm").tqdm(turns, disable=False, file=io.StringIO())


@pytest.mark.parametrize(
    "way",
    [
        enumerate,
        lambda turns: bar(enumerate(turns)),
        lambda turns: enumerate(bar(turns)),
        lambda turns: enumerate(zip(turns, range(9), strict=False)),
        lambda turns: enumerate(in_tqdm(turns)),
        lambda turns: in_tqdm(enumerate(turns)),
    ],
)
def test_a_count_is_found(way: Callable[[Any], Any]) -> None:
    turns = Turns()
    next(iter(way(turns)))
    assert turns.found


@pytest.mark.parametrize("way", [iter, bar, in_tqdm])
def test_a_loop_without_one_is_none(way: Callable[[Any], Any]) -> None:
    turns, other = Turns(), enumerate(bar(Turns()))
    next(other)
    next(iter(way(turns)))
    assert not turns.found
