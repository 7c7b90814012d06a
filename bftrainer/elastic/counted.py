"""Whether a script counts the turns of its loop by itself: such a count begins anew in every process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import islice
from types import GeneratorType
from typing import Any

DEPTH = 5
"""Iterators within iterators are followed so far, such as a bar around the loop."""
MANY = 1000
"""So many objects are looked at for each `enumerate`."""
THROUGH = (enumerate, zip, map, filter, islice, tuple)
TOLD = (
    "the script counts the turns of its loop by enumerate(...): the count is 0 again on every node that "
    "joins and after every restart of the trainer, and it counts micro-batches. What follows from it, such "
    "as a warm-up, when to evaluate, or the name of a file, is wrong then: take run.position.step"
)


def is_enumerated(run: object) -> bool:
    """Whether an `enumerate` goes through `run`, itself or by another iterator such as tqdm's."""
    found = [each for each in gc.get_objects() if type(each) is enumerate]
    return any(one is run for each in found for one in islice(_within(each, DEPTH), MANY))


def _within(iterator: Any, depth: int) -> Iterator[Any]:
    """What an iterator takes its values from, as far as that can be known."""
    for each in _next(iterator) if depth else ():
        yield each
        yield from _within(each, depth - 1)


def _next(iterator: Any) -> list[Any]:
    kind = type(iterator)  # to ask an object of another library for its class may do anything
    if issubclass(kind, GeneratorType):
        frame = iterator.gi_frame
        return [] if frame is None else list(frame.f_locals.values())
    if kind in THROUGH:
        return gc.get_referents(iterator)
    if kind.__module__.partition(".")[0] == "tqdm":
        return list(vars(iterator).values())
    return []
