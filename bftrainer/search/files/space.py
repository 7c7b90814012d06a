"""The space that a study searches: its parameters, their values counted and indexed without a list. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bftrainer.messages.files.tables import UNKNOWN_NAME, WRONG_VALUE
from bftrainer.model.text import cut
from bftrainer.threads import check

Value = float | int | str | bool
"""A value of a parameter."""
Params = tuple[tuple[str, Value], ...]
"""The values of the parameters that apply in a trial, in the order of the space."""
MOST_APART = 2**53
"""Whole numbers up to here are exact as floating-point numbers: the most values that differ."""

NAMED, SHOWN = 8, 70
"""Parameters, and letters of a value, in a message, at most."""


class Kind(StrEnum):
    """Kinds of values of a parameter."""

    FLOAT = "float"
    INT = "int"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter: numbers from `low` to `high`, on a logarithmic scale if `log`, in steps of `step` if
    that is not 0; or one of `choices`.

    `when` has earlier parameters with the values at which this one applies; otherwise it has no value.
    `points`: its number of values on a grid, where neither step nor choices determine it.
    """

    name: str
    kind: Kind
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float = 0.0
    points: int = 0
    choices: tuple[Value, ...] = ()
    when: tuple[tuple[str, tuple[Value, ...]], ...] = ()

    def number(self, given: Value) -> Value:
        """Return a number that a user gives, as the parameter has it.

        Raises:
            ValueError: the parameter may not have it.
        """
        whole = "" if self.kind is Kind.FLOAT else "whole "
        if isinstance(given, bool | str) or not self.low <= given <= self.high or (whole and given % 1):
            wanted = f"a {whole}number from {self.low:g} to {self.high:g}"
            raise ValueError(WRONG_VALUE.say(name=f"{self.name}:", given=shown(given), wanted=wanted))
        return round(given) if whole else float(given)

    def applies(self, values: Mapping[str, Value]) -> bool:
        """Return whether it has a value beside those of the parameters before it."""
        return all(
            name in values and any(same(values[name], one) for one in wanted) for name, wanted in self.when
        )

    def count(self) -> int:
        """Return how many values it has on a grid, at most `MOST_APART`; 0 if it is nowhere said."""
        if listed := self._listed():
            return len(listed)
        step = self._step()
        if not step:
            return 0
        return math.floor(min((self.high - self.low) / step, MOST_APART - 1) + 1e-9) + 1

    def value(self, index: int) -> Value:
        """The value with this index on a grid, from 0 on, ascending."""
        if listed := self._listed():
            return listed[index]
        found = self.low + index * self._step()
        return round(found) if self.kind is Kind.INT else found

    def indices(self, wanted: Iterable[Value]) -> list[int | None]:
        """Return the index of each of these values among those on a grid; None: not on the grid."""
        if listed := self._listed():
            places = ValueIndex(listed)
            return [places.index(value) for value in wanted]
        return [self._stepped(value) for value in wanted]

    def _stepped(self, wanted: Value) -> int | None:
        step = self._step()
        if isinstance(wanted, bool | str) or not step or not self.low - step <= wanted <= self.high + step:
            return None
        index = round((wanted - self.low) / step)
        return index if 0 <= index < self.count() and same(self.value(index), wanted) else None

    def _listed(self) -> tuple[Value, ...]:
        """Its values on a grid where the study file bounds their number; empty where steps do."""
        if self.kind is Kind.CHOICE:
            return self.choices
        if self.step or not self.points:
            return ()
        found = [self._between(i / max(1, self.points - 1)) for i in range(self.points)]
        return tuple(dict.fromkeys(map(round, found))) if self.kind is Kind.INT else tuple(found)

    def _step(self) -> float:
        return self.step or (1.0 if self.kind is Kind.INT else 0.0)

    def _between(self, share: float) -> float:
        """The value at a share of the way from low to high; the ends are exact."""
        if share in (0.0, 1.0):
            return self.high if share else self.low
        if self.log:
            return math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        return self.low + share * (self.high - self.low)


class ValueIndex:
    """Finds values in a list of them without a search: equal ones by hash, and numbers that are almost equal
    by their order."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._places: dict[tuple[bool, Value], int] = {}
        for place, value in enumerate(values):
            self._places.setdefault((isinstance(value, bool), value), place)
        numbers = ((value, i) for i, value in enumerate(values) if not isinstance(value, bool | str))
        self._numbers = sorted(numbers)

    def index(self, wanted: Value) -> int | None:
        """The place of the value; None: it is not in the list."""
        found = self._places.get((isinstance(wanted, bool), wanted))
        if found is not None or isinstance(wanted, bool | str):
            return found
        at = bisect_left(self._numbers, (wanted, -1))
        near = self._numbers[max(0, at - 1) : at + 1]
        return next((place for value, place in near if same(value, wanted)), None)


class PointReader:
    """Reads points that a user gives: made once for a space, and asked for each point."""

    def __init__(self, space: tuple[Parameter, ...]) -> None:
        self._space = {own.name: own for own in space}
        self._choices = {own.name: ValueIndex(own.choices) for own in space if own.kind is Kind.CHOICE}

    def read(self, given: Mapping[str, object]) -> Params:
        """The values of some parameters, in the order of the space.

        Raises:
            ValueError: one is no parameter, or its value is none that it may have; the message says what it
                may.
        """
        check()
        for name in given:
            if name not in self._space:
                some = ", ".join([*self._space][:NAMED])
                raise ValueError(
                    UNKNOWN_NAME.say(kind="parameter", name=repr(name[:70]), known=f"one of {some}")
                )
        return tuple(
            (name, self._taken(own, given[name])) for name, own in self._space.items() if name in given
        )

    def _taken(self, own: Parameter, given: object) -> Value:
        if not isinstance(given, bool | str | int | float):
            wanted = "a number, a text, true or false"
            given = type(given).__name__
            raise ValueError(WRONG_VALUE.say(name=f"{own.name}:", given=given, wanted=wanted))
        if own.kind is not Kind.CHOICE:
            return own.number(given)
        place = self._choices[own.name].index(given)
        if place is None:
            some = ", ".join(map(shown, own.choices[:5]))
            wanted = f"one of its choices, such as {some}"
            raise ValueError(WRONG_VALUE.say(name=f"{own.name}:", given=shown(given), wanted=wanted))
        return own.choices[place]


def shown(value: Value) -> str:
    """A value in a message: of a long one its beginning."""
    return cut(repr(value), SHOWN)


def same(one: Value, other: Value) -> bool:
    """Return whether two values are equal: true is not 1, and 0.1 * 3, a value in steps of 0.1, is 0.3."""
    if isinstance(one, bool | str) or isinstance(other, bool | str):
        return one == other and isinstance(one, bool) is isinstance(other, bool)
    try:
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-300)
    except OverflowError:  # whole numbers beyond all that are floating-point ones
        return one == other
