"""The space that a study searches: its parameters, and the points of its grid. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

Value = float | int | str | bool
"""A value of a parameter."""
Params = tuple[tuple[str, Value], ...]
"""The values of the parameters that apply in a trial, in the order of the space."""


class Kind(StrEnum):
    """What values a parameter has."""

    FLOAT = "float"
    INT = "int"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter: numbers from `low` to `high`, on a logarithmic scale if `log`, in steps of `step` if
    that is not 0; or one of `choices`.

    `when` has earlier parameters with the value at which this one applies; otherwise it has no value.
    `points`: so many values of it are on a grid, where neither step nor choices say so.
    """

    name: str
    kind: Kind
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float = 0.0
    points: int = 0
    choices: tuple[Value, ...] = ()
    when: Params = ()

    def applies(self, values: Mapping[str, Value]) -> bool:
        """Whether it has a value beside those of the parameters before it."""
        return all(name in values and same(values[name], wanted) for name, wanted in self.when)

    def on_grid(self) -> tuple[Value, ...]:
        """Its values on a grid, ascending; none if it is nowhere said how many they are."""
        if self.kind is Kind.CHOICE:
            return self.choices
        if self.step:
            count = math.floor((self.high - self.low) / self.step + 1e-9) + 1
            found = [self.low + i * self.step for i in range(count)]
        elif self.points:
            found = [self._between(i / max(1, self.points - 1)) for i in range(self.points)]
        elif self.kind is Kind.INT:
            found = [float(n) for n in range(int(self.low), int(self.high) + 1)]
        else:
            return ()
        if self.kind is Kind.INT:
            return tuple(dict.fromkeys(round(value) for value in found))
        return tuple(found)

    def _between(self, share: float) -> float:
        """The value at a share of the way from low to high; the ends are exact."""
        if share in (0.0, 1.0):
            return self.high if share else self.low
        if self.log:
            return math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        return self.low + share * (self.high - self.low)


def same(one: Value, other: Value) -> bool:
    """Whether two values are the same one: true is not 1, and 0.1 * 3, a value in steps of 0.1, is 0.3."""
    if isinstance(one, bool | str) or isinstance(other, bool | str):
        return one == other and isinstance(one, bool) is isinstance(other, bool)
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-300)


def grid(space: tuple[Parameter, ...]) -> Iterator[Params]:
    """Yield every point of the grid once; the last parameter changes first."""
    return _grid(space, ())


def grid_size(space: tuple[Parameter, ...], most: int) -> int:
    """How many points the grid has; `most` if there are more."""
    return sum(1 for _ in islice(grid(space), most))


def _grid(rest: tuple[Parameter, ...], values: Params) -> Iterator[Params]:
    if not rest:
        yield values
        return
    first, *others = rest
    if not first.applies(dict(values)):
        yield from _grid(tuple(others), values)
        return
    for value in first.on_grid():
        yield from _grid(tuple(others), (*values, (first.name, value)))
