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

ITEMS = "num_items_in_batch"
KNOW = {ITEMS, "super", "model_accepts_loss_kwargs", "loss_is_scaled_for_ga"}
"""What a Trainer's `compute_loss` or `__init__` names that knows how Hugging Face scales losses."""
SCALED = {"super", "num_processes", "world_size", "get_world_size"}
"""What a Trainer's `compute_loss` names that multiplies by the number of ranks."""


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


class _Asked(torch.Tensor):
    """A number that knows whether anything was computed with it."""

    used = False

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.used = True
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def watch_first_loss(model: torch.nn.Module) -> None:
    """See in the first forward pass whether a model divides its loss by the items that it is given, which its
    code does not always show: many hand them to a part of it that does not use them.

    The forward pass raises `ValueError` where it does not, with what to do instead.
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
            raise ValueError(
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
        ValueError: then, with what to do instead.
    """
    for trainer in trainers_of(base, callback):
        function = getattr(trainer, "compute_loss_func", None)
        names = set() if function is None else _names(function)
        if names and ITEMS not in names:
            raise ValueError(
                f"compute_loss_func does not use {ITEMS}, and Hugging Face multiplies what it returns by the "
                "number of nodes and of micro-batches: return the sum over all items divided by "
                f"{ITEMS}"
            )


def require_smoothing_by_items(smoother: type, model: torch.nn.Module) -> None:
    """Refuse label smoothing, which `smoother` computes, of versions of transformers in which it is a mean.

    Raises:
        ValueError: then, with what to do instead.
    """
    takes_items = getattr(model, "accepts_loss_kwargs", bool(_rest(type(model).forward)))
    if takes_items and ITEMS not in inspect.signature(smoother.__call__).parameters:
        raise ValueError(
            f"this version of transformers smoothes labels without {ITEMS}, and multiplies the mean by the "
            "number of nodes and of micro-batches: install transformers 5.23 or newer, leave "
            "label_smoothing_factor out, or say model.accepts_loss_kwargs = False before you make the Trainer"
        )


def means(base: type, model: torch.nn.Module) -> list[str]:
    """The names of a script's classes derived from Hugging Face's Trainer whose `compute_loss` returns a
    mean, as far as can be told, where Hugging Face expects a sum divided by `num_items_in_batch`."""
    return [
        kind.__name__
        for kind, names in _own_losses(base, model)
        if not KNOW & (names | _names(vars(kind).get("__init__")) - {"super"})
    ]


def unscaled(base: type, model: torch.nn.Module) -> list[str]:
    """The names of those whose `compute_loss` divides by the items of all ranks, and does not multiply by the
    number of ranks, as Hugging Face's own does: DDP then divides by it once more."""
    return [
        kind.__name__ for kind, names in _own_losses(base, model) if ITEMS in names and not SCALED & names
    ]


def is_hugging_faces(trainer: Any, base: type) -> bool:
    """Whether a Trainer's losses come from Hugging Face's own `compute_loss`, maybe with more around it."""
    own: Any = type(trainer).compute_loss
    return own is base.compute_loss or "super" in _names(own)  # type: ignore[attr-defined]


def _own_losses(base: type, model: torch.nn.Module) -> list[tuple[type, set[Any]]]:
    """A script's classes with a `compute_loss` of their own, and the names in it, by the classes' names; none
    where the model takes no items, so that there are none."""
    if not getattr(model, "accepts_loss_kwargs", bool(_rest(type(model).forward))):
        return []
    found: list[tuple[type, set[Any]]] = []
    ahead: list[type] = base.__subclasses__()
    while ahead:
        each = ahead.pop()
        ahead += each.__subclasses__()
        own = vars(each).get("compute_loss")
        if own is not None and each.__module__.partition(".")[0] not in ("transformers", "trl"):
            found.append((each, _names(own)))
    return sorted(found, key=lambda one: one[0].__name__)


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
