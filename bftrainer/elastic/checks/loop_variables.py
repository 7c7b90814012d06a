"""Variables of a script that change while its loop trains, and that the run does not have.

They are found in the frame of the loop, in the script's frames around it, and in objects of the script's own
classes: counts, best values, averages that the script keeps by hand, and hidden states, which one turn of the
loop leaves to the next.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from torch.utils.data import Dataset

from bftrainer.elastic.loop.observers import StepObserver
from bftrainer.elastic.process import warnings
from bftrainer.elastic.process.warnings import LIBRARIES, script_frame
from bftrainer.elastic.state.training_state import Stateful, TrainingState
from bftrainer.messages.diagnostic import Diagnostic
from bftrainer.messages.loop import LOOP_VARIABLES

AFTER = (20, 200)
"""Steps of this process after which variables are checked, and again at the loop's end."""
FEW = 4
"""Entries of a container to compare, and names to report, at most."""
SPREAD = 64
DEEP = 2
"""So deep objects of the script's own classes are followed: the patience of a stopper of a trainer."""
INSTALLED = ("site-packages", "dist-packages")
PYTORCHS = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
STATE = "state"
"""A tensor of several dimensions with a gradient: what a model gave, such as a hidden state."""
FROM_NONE = ("number", "tuple", "list", STATE)
"""Kinds that a best value or a hidden state takes after None; other tensors are more often a batch."""


class ChangingVariables(StepObserver):
    """Warns of variables of the script beside the parts of its run."""

    _state: TrainingState
    _variables: LoopVariables | None = None  # while the loop trains

    def enters(self, state: TrainingState) -> None:
        self._state = state

    def loop_begins(self) -> None:
        self._variables = LoopVariables.beside(self._state.parts.values())

    def step_taken(self, *, has_state: bool) -> None:
        if has_state and self._variables is not None and (told := self._variables.stepped()):
            warnings.warn(told)

    def loop_ends(self) -> None:
        if self._variables is not None and (told := self._variables.changed()):
            warnings.warn(told)
        self._variables = None


class LoopVariables:
    """Variables as they were when the loop began. `known`: objects that the run has, such as its models.
    `own`: those parts of it that the script has made. `within`: objects by name, in which alone variables are
    sought. `said`: the warning."""

    def __init__(
        self,
        known: Iterable[object],
        own: Iterable[Stateful] = (),
        *,
        within: Mapping[str, object] | None = None,
        said: Diagnostic = LOOP_VARIABLES,
    ) -> None:
        self._frame: FrameType | None = script_frame()[0] if within is None else None
        self._objects, self._said = within or {}, said
        self._known = {id(each) for each in known}
        self._own = list(own)
        self._before = dict(self._found())
        self._told: set[str] = set()
        self._steps = 0

    @classmethod
    def beside(cls, parts: Iterable[Stateful]) -> LoopVariables:
        """Those beside the parts of a run, which survive."""
        known = list(parts)
        kept = [each for part in known for each in _of_model(part)]
        return cls([*known, *kept], [part for part in known if not isinstance(part, PYTORCHS)])

    @classmethod
    def of_callbacks(
        cls, callbacks: Iterable[Any], known: Iterable[object], said: Diagnostic
    ) -> LoopVariables:
        """Those that the script's own callbacks of a framework keep, but for what their state has. `known`:
        the framework's trainer, and its model."""
        found = {type(each).__name__: each for each in callbacks if _is_own(type(each).__module__)}
        kept = [each for part in known for each in (part, *_of_model(part))]
        return cls(kept, [c for c in found.values() if hasattr(c, "state_dict")], within=found, said=said)

    def stepped(self) -> str:
        """Count a step of this process; the warning if it is time to look and something new has changed."""
        self._steps += 1
        return self.changed() if self._steps in AFTER else ""

    def changed(self) -> str:
        """The warning of variables that have changed, without those reported before; else empty."""
        now = dict(self._found())
        names = [
            name
            for name, (kind, was) in self._before.items()
            if name in now and _goes_on(kind, now[name][0]) and now[name][1] != was
        ]
        if names:
            kept = set(self._kept())
            last = {name: name.rpartition(".")[2] for name in names}
            names = [name for name in names if not {("", now[name]), (last[name], now[name])} & kept]
        new = sorted(set(names) - self._told)
        self._told |= set(new)
        more = f" and {len(new) - FEW} more" if len(new) > FEW else ""
        return self._said.say(names=f"{', '.join(new[:FEW])}{more}") if new else ""

    def _kept(self) -> Iterator[tuple[str, Hashable]]:
        """States of the script's own parts: a variable that is the same there is kept, even if its object is
        another. A whole number may be the same by chance, so its name counts, too."""
        states: list[object] = [part.state_dict() for part in self._own]
        for state in states:  # of a part, or of an object within it
            for name, value in state.items() if isinstance(state, Mapping) else ():
                yield str(name) if isinstance(value, int) else "", _fingerprint(value, self._known)
                states += [value] if isinstance(value, Mapping) else []

    def _found(self) -> Iterator[tuple[str, tuple[Hashable, Hashable]]]:
        seen = set[int]()
        yield from self._within(self._objects, "", DEEP, seen)
        if self._frame is None:
            return
        for names in (self._frame.f_globals, *reversed(list(_locals(self._frame)))):
            yield from self._within(names, "", DEEP, seen)

    def _within(
        self, names: Mapping[str, Any], path: str, deep: int, seen: set[int]
    ) -> Iterator[tuple[str, tuple[Hashable, Hashable]]]:
        for name, value in list(names.items()):
            if name[:1] == "_" or id(value) in self._known:
                continue
            if (fingerprint := _fingerprint(value, self._known)) is not None:
                yield path + name, fingerprint
            if deep and id(value) not in seen and _is_own(type(value).__module__):
                seen.add(id(value))
                inner = self._within(getattr(value, "__dict__", {}), f"{path}{name}.", deep - 1, seen)
                numbers = isinstance(value, Dataset)  # what else it keeps is more often a cache
                yield from (each for each in inner if not numbers or each[1][0] == "number")


def _of_model(part: object) -> list[object]:
    """Parts of a model; empty for anything else."""
    if not isinstance(part, torch.nn.Module):
        return []
    return [*part.modules(), *part.parameters(), *part.buffers()]


def _locals(frame: FrameType | None) -> Iterator[Mapping[str, Any]]:
    """The variables of a function of the script, and of those that have called it."""
    while frame is not None and _is_own(str(frame.f_globals.get("__name__"))):
        if frame.f_locals is not frame.f_globals:
            yield frame.f_locals
        frame = frame.f_back


def _is_own(module: str) -> bool:
    """True if a module is the script's, or beside it: neither installed nor PyTorch or Python."""
    if module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file or any(each in file for each in INSTALLED):
        return False
    return module.partition(".")[0] not in {*LIBRARIES, *sys.stdlib_module_names}


def _goes_on(before: Hashable, now: Hashable) -> bool:
    """True if a variable may keep its meaning in another kind: zeros become a hidden state."""
    if now == STATE:
        return before == "none" or (isinstance(before, tuple) and len(before) > 1)
    return now == before or (before == "none" and now in FROM_NONE)


def _fingerprint(value: Any, known: Collection[int], depth: int = 1) -> tuple[Hashable, Hashable] | None:
    """The kind of a value, which stays where it is changed and not replaced, and something small that changes
    with it; None of what is not followed."""
    found: tuple[Hashable, Hashable] | None = None
    if value is None:
        found = "none", None
    elif type(value) in (int, float):
        found = "number", repr(value)  # NaN is what it was
    elif isinstance(value, torch.Tensor):
        result = value.requires_grad and not value.is_leaf
        if result and value.dim() < 2:  # a loss: what is kept from turn to turn is detached
            return None
        flat = value.detach().reshape(-1)
        found = STATE if result else tuple(value.shape), repr(flat[:: len(flat) // SPREAD + 1].tolist())
    elif isinstance(value, torch.nn.Module):
        weights, buffers = (
            [each for each in tensors if id(each) not in known][:FEW]
            for tensors in (value.parameters(), value.buffers())
        )
        own = [*weights, *buffers]
        found = ("module", tuple(_fingerprint(each, known, 0) for each in own)) if own else None
    elif depth and isinstance(value, Mapping):
        found = "mapping", (len(value), *_entries(list(value.values()), known))
    elif depth and isinstance(value, list | deque):
        found = "list", (len(value), *_entries(list(value), known))
    elif depth and isinstance(value, tuple):
        states = [each.detach() for each in value if isinstance(each, torch.Tensor) and each.dim()]
        found = ("tuple", tuple(_entries(states, known))) if len(states) == len(value) else None
    return found


def _entries(values: list[Any], known: Collection[int]) -> list[Hashable]:
    ends = values if len(values) <= 2 * FEW else [*values[:FEW], *values[-FEW:]]
    return [_fingerprint(each, known, 0) for each in ends if id(each) not in known]
