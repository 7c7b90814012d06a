"""What objects of a script keep in attributes, such as a count of steps or an average of weights: no
checkpoint has it, and it begins anew in every process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Iterator, Mapping
from typing import Any

import torch

from bftrainer.elastic.marks import mark
from bftrainer.elastic.warned import note_warning

DEPTH = 3
"""Objects within objects are followed so far."""
BEST = ("MaxMetric", "MinMetric")
"""Metrics of torchmetrics that go on over epochs; others begin anew with each."""


class OwnState:
    """What an object of a script changes in its attributes.

    Args:
        of: a module, a callback, a data set or the like.
        but: names of attributes to leave out.
        saved: objects in attributes that a checkpoint has, such as schedulers.
        held: what a checkpoint has of the object itself, when it is asked, such as its `state_dict`.
    """

    def __init__(
        self,
        of: object,
        but: Container[str] = (),
        saved: Collection[object] = (),
        held: Callable[[], Any] | None = None,
    ) -> None:
        self.of = of
        self._held = held
        self._keeps = list(saved)  # an id is another object's as soon as its own is gone
        self._saved = {id(each) for each in saved}
        self._marks = {name: at for name, at in self._found() if name not in but}

    def lost(self) -> list[str]:
        """The names of those that have changed since the start; each once."""
        now = dict(self._found())
        changed = sorted(name for name, at in self._marks.items() if now.get(name) != at)
        if changed and self._held is not None:
            held = frozenset(_leaves(self._held()))
            changed = [
                name for name in changed if not held.issuperset(_leaves(vars(self.of).get(name), name))
            ]
        for name in changed:
            del self._marks[name]
        return changed

    def _found(self) -> Iterator[tuple[str, Hashable]]:
        for name, value in list(vars(self.of).items()):
            if type(value) in (int, float) or (name[:1] != "_" and id(value) not in self._saved):
                yield name, mark(value, DEPTH, self._saved)
        inner = self.of.named_modules() if isinstance(self.of, torch.nn.Module) else ()
        for where, module in inner:
            for name, value in vars(module).items() if where else ():
                saved = getattr(module, "_persistent", {}).get(name, False)
                is_best = type(module).__name__ in BEST and name in ("max_value", "min_value") and not saved
                if name[0] != "_" and (type(value) in (int, float) or is_best):
                    yield f"{where}.{name}", mark(value, 0)


def tell_of_lost(states: Mapping[str, OwnState], remedy: str) -> None:
    """Tell what has changed in objects with these names, and so is missing in a checkpoint."""
    for name, state in states.items():
        if lost := state.lost():
            note_warning(
                f"the checkpoint lacks what {name} changes while it trains: {', '.join(lost)}. It begins "
                f"anew with every start: {remedy}"
            )


def _leaves(value: Any, name: str = "") -> Iterator[Hashable]:
    """The tensors within a state, and the numbers with the names that they have there."""
    if isinstance(value, torch.Tensor):
        yield mark(value, 0)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(each, str(key))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each, name)
    elif type(value) in (int, float):
        yield (name, mark(value, 0))
