"""A trial's course: how far it came, and what the metric was there. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import overload

Point = tuple[int, float]


class PackedCourse(Sequence[Point]):
    """Samples and values in this order, in 16 bytes of memory each: as tuples they take 120, and a daemon
    keeps those of all trials of all studies. Samples are exact up to 2**53."""

    __slots__ = ("_flat",)

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self._flat = array("d", [number for point in points for number in point])

    def __len__(self) -> int:
        return len(self._flat) // 2

    @overload
    def __getitem__(self, at: int) -> Point: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Point, ...]: ...
    def __getitem__(self, at: int | slice) -> Point | tuple[Point, ...]:
        if isinstance(at, slice):
            return tuple(self)[at]
        if not -len(self) <= at < len(self):
            raise IndexError(at)
        i = at % len(self)
        return int(self._flat[2 * i]), self._flat[2 * i + 1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
