"""The points of a grid by their numbers: counted and found by arithmetic, as it may have billions. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from bftrainer.messages.files.studies import TANGLED
from bftrainer.search.files.space import Parameter, Params, Value

MOST_STATES = 5_000
"""Combinations of values, of parameters that others depend on by `when`, that are told apart at most: to
count them takes 0.03 s."""
OTHER, ABSENT = -1, -2
"""In place of an index: a value that no later parameter asks for; none, as the parameter does not apply."""

Run = tuple[int, int, int]
"""Values of a parameter of which later ones see the same: the first one's index, how many, what is seen."""
State = tuple[int, ...]
"""The relevant values before a parameter: the index of each that is asked for from there on."""


class TangledError(ValueError):
    """The conditions of a space depend on each other in too many ways; the message says what to do."""


@dataclass(slots=True)
class Grid:
    """The first `most` points of a space's grid, each of whose parameters has a `count`. The last parameter
    changes first. Where `when` is nowhere used, everything is a product of counts.

    `size` is how many points there are; `most` if there are more.
    """

    space: tuple[Parameter, ...]
    most: int
    size: int = field(init=False)
    _runs: list[tuple[Run, ...]] = field(init=False)  # of each parameter's values
    _conditions: list[tuple[tuple[str, frozenset[int]], ...]] = field(init=False)
    _asked: list[tuple[str, ...]] = field(init=False)  # before each parameter: names asked for from it on
    _sizes: dict[tuple[int, State], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Count the points.

        Raises:
            TangledError: too many combinations would have to be told apart.
        """
        known = {own.name: own for own in self.space}
        self._conditions = [
            tuple((name, _indices(known[name], values)) for name, values in own.when) for own in self.space
        ]
        wanted: dict[str, set[int]] = {}
        for name, indices in (one for conditions in self._conditions for one in conditions):
            wanted.setdefault(name, set()).update(indices)
        self._runs = [_runs(own.count(), sorted(wanted.get(own.name, ()))) for own in self.space]
        later = [{name for name, _ in conditions} for conditions in self._conditions]
        self._asked = [
            tuple(own.name for own in self.space[:k] if any(own.name in names for names in later[k:]))
            for k in range(len(self.space) + 1)
        ]
        self.size = self._size(0, ())

    def point(self, number: int) -> Params:
        """The point with this number, from 0 on, below `size`."""
        values: Params = ()
        state: State = ()
        for k, own in enumerate(self.space):
            if not self._applies(k, state):
                state = self._after(k, state, ABSENT)
                continue
            for begin, length, seen in self._runs[k]:
                after = self._after(k, state, seen)
                each = self._size(k + 1, after)
                if number < each * length:
                    values = (*values, (own.name, own.value(begin + number // each)))
                    number, state = number % each, after
                    break
                number -= each * length
        return values

    def _size(self, k: int, state: State) -> int:
        """Return how many points the parameters from the k-th one on have; `most` if there are more."""
        if k == len(self.space):
            return 1
        known = self._sizes.get((k, state))
        if known is not None:
            return known
        if len(self._sizes) >= MOST_STATES:
            raise TangledError(TANGLED.say(most=MOST_STATES))
        if self._applies(k, state):
            found = 0
            for _, length, seen in self._runs[k]:
                found = min(self.most, found + length * self._size(k + 1, self._after(k, state, seen)))
                if found == self.most:
                    break
        else:
            found = self._size(k + 1, self._after(k, state, ABSENT))
        self._sizes[k, state] = found
        return found

    def _applies(self, k: int, state: State) -> bool:
        seen = dict(zip(self._asked[k], state, strict=True))
        return all(seen[name] in indices for name, indices in self._conditions[k])

    def _after(self, k: int, state: State, seen: int) -> State:
        """Return the state before the parameter after the k-th one, whose value was `seen`."""
        if not self._asked[k + 1]:
            return ()
        values = {**dict(zip(self._asked[k], state, strict=True)), self.space[k].name: seen}
        return tuple(values[name] for name in self._asked[k + 1])


def _indices(own: Parameter, values: tuple[Value, ...]) -> frozenset[int]:
    """The indices of those of these values that a parameter has."""
    return frozenset(index for index in own.indices(values) if index is not None)


def _runs(count: int, wanted: list[int]) -> tuple[Run, ...]:
    """Return `count` values as runs: each of those that are asked for, and what is between them."""
    found, begin = [], 0
    for index in wanted:
        if index > begin:
            found.append((begin, index - begin, OTHER))
        found.append((index, 1, index))
        begin = index + 1
    if count > begin:
        found.append((begin, count - begin, OTHER))
    return tuple(found)
