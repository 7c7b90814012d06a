"""What a model of a script's own may not do where others train it: its steps would depend on the nodes."""

from __future__ import annotations

import dis
import inspect
from typing import Any

import torch

KNOW = {"num_items_in_batch", "super", "model_accepts_loss_kwargs", "loss_is_scaled_for_ga"}
"""What a Trainer's `compute_loss` or `__init__` names that knows how Hugging Face scales losses."""


class AsAtStart:
    """What of a model has to stay as it is at the start of a process, as no checkpoint has it."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._frozen, self._numbers = _frozen(model), _numbers(model)

    def require_frozen(self, model: torch.nn.Module) -> None:
        """Refuse layers that are frozen or unfrozen while a script trains.

        Raises:
            ValueError: the first of them, and what to do instead.
        """
        changed = sorted(_frozen(model) ^ self._frozen)
        if changed:
            raise ValueError(
                f"{changed[0]} and {len(changed) - 1} more parameters were frozen or unfrozen while the "
                "script trains. After a restart they would be as at the beginning, and gradients of other "
                "nodes are not averaged: make a trainer of each phase, which begins with the weights of the "
                "one before"
            )

    def lost(self, model: torch.nn.Module) -> list[str]:
        """The names of the model's own numbers that have changed, such as a count of steps; each once."""
        before, now = self._numbers, _numbers(model)
        self._numbers = {name: value for name, value in before.items() if now.get(name) == value}
        return sorted(name for name, value in before.items() if now.get(name) != value)


def _frozen(model: torch.nn.Module) -> frozenset[str]:
    return frozenset(name for name, p in model.named_parameters() if not p.requires_grad)


def _numbers(model: torch.nn.Module) -> dict[str, float]:
    return {name: value for name, value in vars(model).items() if type(value) in (int, float)}


def require_loss_by_items(model: torch.nn.Module) -> None:
    """Refuse a model that Hugging Face takes for one whose loss is a sum, divided by the items of the whole
    step, although the loss cannot be: its `forward` takes `**kwargs` and does not use them.

    Raises:
        ValueError: then, with what to do instead.
    """
    if getattr(model, "accepts_loss_kwargs", None) is not None:
        return  # it says so itself
    forward: Any = getattr(type(model), "forward", None)
    rest = _rest(forward)
    code = getattr(inspect.unwrap(forward), "__code__", None)
    if not rest or code is None or "labels" not in inspect.signature(forward).parameters:
        return
    if rest[0] not in _names(forward):
        raise ValueError(
            f"{type(model).__name__}.forward takes **{rest[0]} and does not use them. Hugging Face takes its "
            "loss for a sum that is divided by num_items_in_batch, and multiplies it by the number of nodes "
            f"and of micro-batches. Leave **{rest[0]} out, or set accepts_loss_kwargs = False in the class, "
            f'or divide the sum by {rest[0]}["num_items_in_batch"]'
        )


def means(base: type, model: torch.nn.Module) -> list[str]:
    """The names of a script's classes derived from Hugging Face's Trainer whose `compute_loss` returns a
    mean, as far as can be told, where Hugging Face expects a sum divided by `num_items_in_batch`."""
    if not getattr(model, "accepts_loss_kwargs", bool(_rest(type(model).forward))):
        return []
    found: list[str] = []
    ahead: list[type] = base.__subclasses__()
    while ahead:
        each = ahead.pop()
        ahead += each.__subclasses__()
        own = vars(each).get("compute_loss")
        if own is None or each.__module__.partition(".")[0] in ("transformers", "trl"):
            continue
        if not KNOW & (_names(own) | _names(vars(each).get("__init__")) - {"super"}):
            found.append(each.__name__)
    return sorted(found)


def _rest(function: Any) -> list[str]:
    """The name of `**kwargs`, if it takes them."""
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD]


def _names(function: Any) -> set[Any]:
    """What a function reads or sets, by name."""
    code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
    found = dis.get_instructions(code) if code is not None else ()
    return {one.argval for one in found if one.opname.startswith(("LOAD", "STORE"))}
