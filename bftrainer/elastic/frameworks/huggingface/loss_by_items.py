"""Losses that Hugging Face's Trainer takes for sums divided by the items of the whole step, but are means.

It then multiplies them by the number of nodes, and does not divide them by that of micro-batches.
"""

from __future__ import annotations

import dis
import functools
import gc
import inspect
from typing import Any

import torch

from bftrainer.elastic.process.refusal import RefusedError

ITEMS = "num_items_in_batch"


class _Asked(torch.Tensor):
    """A number that knows whether anything was computed with it."""

    used = False

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.used = True
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def watch_first_loss(model: torch.nn.Module) -> None:
    """See in the first forward pass whether a model divides its loss by the items that it is given: many do
    not use them, or hand them to a part that does not.

    The forward pass raises `RefusedError` where it does not, with what to do instead.
    """

    def before(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        items = kwargs.get(ITEMS)
        if not isinstance(items, torch.Tensor) or "labels" not in kwargs:
            return None
        _Asked.used = False
        return args, {**kwargs, ITEMS: items.as_subclass(_Asked)}

    def after(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
        for handle in handles:
            handle.remove()
        if isinstance(kwargs.get(ITEMS), _Asked) and not _Asked.used:
            raise RefusedError(
                f"{type(module).__name__} computes its loss without {ITEMS}, although its forward takes it. "
                "Hugging Face takes that loss for a sum divided by it, and multiplies it by the number of "
                "nodes and of micro-batches. Say model.accepts_loss_kwargs = False before you make the "
                "Trainer"
            )

    handles = [
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.register_forward_hook(after, with_kwargs=True),
    ]


def trainers_of(base: type, callback: Any) -> list[Any]:
    """The Trainers that have this callback, which is told of none. It goes through all objects: a tenth of a
    second or so."""
    return [
        each
        for each in gc.get_objects()
        if issubclass(type(each), base)
        and callback in getattr(getattr(each, "callback_handler", None), "callbacks", ())
    ]


def require_function_by_items(base: type, callback: Any) -> None:
    """Refuse a `compute_loss_func` that does not use the items, of the Trainer that has this callback.

    Raises:
        RefusedError: then, with what to do instead.
    """
    for trainer in trainers_of(base, callback):
        function = getattr(trainer, "compute_loss_func", None)
        names = set() if function is None else _names(function)
        if names and ITEMS not in names:
            raise RefusedError(
                f"compute_loss_func does not use {ITEMS}, and Hugging Face multiplies what it returns by the "
                "number of nodes and of micro-batches: return the sum over all items divided by "
                f"{ITEMS}"
            )


def require_smoothing_by_items(smoother: type, model: torch.nn.Module) -> None:
    """Refuse label smoothing, which `smoother` computes, of versions of transformers in which it is a mean.

    Raises:
        RefusedError: then, with what to do instead.
    """
    takes_items = getattr(model, "accepts_loss_kwargs", bool(_rest(type(model).forward)))
    if takes_items and ITEMS not in inspect.signature(smoother.__call__).parameters:
        raise RefusedError(
            f"this version of transformers smoothes labels without {ITEMS}, and multiplies the mean by the "
            "number of nodes and of micro-batches: install transformers 5.23 or newer, leave "
            "label_smoothing_factor out, or say model.accepts_loss_kwargs = False before you make the Trainer"
        )


def is_hugging_faces(trainer: Any, base: type) -> bool:
    """Whether a Trainer's losses come from Hugging Face's own `compute_loss`, maybe with more around it."""
    own: Any = type(trainer).compute_loss
    return own is base.compute_loss or "super" in _names(own)  # type: ignore[attr-defined]


def _rest(function: Any) -> list[str]:
    """The name of `**kwargs`, if it takes them."""
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD]


def _names(function: Any) -> set[Any]:
    """What a function reads or sets, by name; nothing where there is no telling."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
    found = dis.get_instructions(code) if code is not None else ()
    return {one.argval for one in found if one.opname.startswith(("LOAD", "STORE"))}
