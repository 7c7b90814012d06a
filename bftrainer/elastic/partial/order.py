"""The order in which a backward pass completes gradients, and how far each worker follows it. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from bftrainer.messages.partial import NO_MODULE

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Completed:
    """A parameter whose gradient a full backward pass has completed: as the `index`-th, after `seconds`.

    Tied weights are one parameter, complete where the last of their uses is; so they sort themselves.
    """

    name: str
    index: float
    seconds: float

    @property
    def module(self) -> str:
        """The module that has it."""
        return self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class GradientOrder:
    """Parameters, the last layer's first. `ends`: the share of the model's backward pass within which each
    is complete; those of one part have the same. The last is 1."""

    names: tuple[str, ...]
    ends: tuple[float, ...]

    def count(self, share: float) -> int:
        """Number of parameters in the last `share` of the model; always the last part."""
        fitting = bisect_right(self.ends, max(share + ROUNDING, self.ends[0]))
        return len(self.names) if share >= 1.0 else fitting


def role(place: int, step: int, workers: int) -> int:
    """The j of the worker at `place` in the step after `step` others: 1 to `workers`. Each step has all
    roles, and a worker has each role once in `workers` steps."""
    return (place + step) % workers + 1


def ordered(found: Sequence[Completed], by: str | Sequence[str]) -> GradientOrder:
    """The order of these parameters, with shares of the time, of the modules, or by modules' names. Those
    whose index is no less than their number get no gradient: they come last, and keep no module back.

    Raises:
        ValueError: a name that no module with parameters has.
    """
    there = sorted((each for each in found if each.index < len(found)), key=lambda each: each.index)
    never = [each.name for each in found if each.index >= len(found)]
    blocks = _blocks(there, by)
    ends = [(i + 1) / len(blocks) for i in range(len(blocks))]
    if by == "time":
        times = [*accumulate((max(each.seconds for each in block) for block in blocks), max)]
        ends = [seconds / times[-1] for seconds in times] if times and times[-1] > 0 else ends
    ends[-1:] = [1.0] if ends else []
    return GradientOrder(
        (*(each.name for block in blocks for each in block), *never),
        (*(end for block, end in zip(blocks, ends, strict=True) for _ in block), *[1.0 for _ in never]),
    )


def _blocks(found: Sequence[Completed], by: str | Sequence[str]) -> list[list[Completed]]:
    """The parameters that no cut divides, ordered by when the last of each is complete."""
    keys = {each.name: each.module for each in found} if isinstance(by, str) else _named(found, by)
    blocks: dict[str, list[Completed]] = {}
    for each in reversed(found):
        blocks.setdefault(keys[each.name], []).append(each)
    return [block[::-1] for block in reversed(blocks.values())]


def _named(found: Sequence[Completed], names: Sequence[str]) -> Mapping[str, str]:
    """The block of each parameter: that of the innermost module in the list; of what none has, the block
    that the backward pass comes to next, so that a block begins, in the forward pass, with its module. What
    lies before all of them is a block, too."""
    keys, waiting = dict[str, str](), list[str]()
    for each in found:
        inside = [name for name in names if f"{each.name.partition('.')[2]}.".startswith(f"{name}.")]
        waiting.append(each.name)
        if inside:
            keys |= dict.fromkeys(waiting, max(inside, key=len))
            waiting = []
    keys |= dict.fromkeys(waiting, "")
    if missing := [name for name in names if name not in keys.values()]:
        raise ValueError(NO_MODULE.say(names=list(names), name=missing[0]))
    return keys
