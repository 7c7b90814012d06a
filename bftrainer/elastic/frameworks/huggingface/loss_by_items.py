"""Losses that Hugging Face's Trainer takes for sums divided by the items of the whole step, but are means.

It then multiplies them by the number of nodes, and does not divide them by that of micro-batches.
"""

from __future__ import annotations

import dis
import functools
import gc
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from bftrainer.elastic.frameworks.fixed_batch import Uneven
from bftrainer.elastic.process.refusal import RefusedError
from bftrainer.elastic.process.warnings import note_warning
from bftrainer.messages.huggingface import (
    FUNCTION_WITHOUT_ITEMS,
    LOSS_WITH_TERMS,
    LOSS_WITHOUT_ITEMS,
    LOSS_WITHOUT_NODES,
    MASKED_MEAN,
    MODEL_WITHOUT_ITEMS,
    SMOOTHING,
)

ITEMS = "num_items_in_batch"
NODES = {"num_processes", "world_size", "process_count", "get_world_size"}
"""Names by which a loss knows the number of nodes."""
MASKED = -100
"""The label that PyTorch's losses leave out."""
PARTS = {"current_gradient_accumulation_steps", "gradient_accumulation_steps"}
"""Names by which a loss knows the number of micro-batches."""


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
            raise RefusedError(MODEL_WITHOUT_ITEMS.say(model=type(module).__name__, items=ITEMS))

    handles = [
        model.register_forward_pre_hook(before, with_kwargs=True),
        model.register_forward_hook(after, with_kwargs=True),
    ]


def trainers_of(base: type, callback: Any) -> list[Any]:
    """The Trainers with this callback, which gets no reference to them. Searches all objects: a tenth of a
    second or so."""
    return [
        each
        for each in gc.get_objects()
        if issubclass(type(each), base)
        and callback in getattr(getattr(each, "callback_handler", None), "callbacks", ())
    ]


def check_function_by_items(base: type, callback: Any) -> None:
    """Refuse a `compute_loss_func` that does not use the items, of the Trainer that has this callback.

    Raises:
        RefusedError: then, with what to do instead.
    """
    for trainer in trainers_of(base, callback):
        function = getattr(trainer, "compute_loss_func", None)
        names = set() if function is None else _names(function)
        if names and ITEMS not in names:
            raise RefusedError(FUNCTION_WITHOUT_ITEMS.say(items=ITEMS))


def watch_own_loss(base: type, callback: Any, *, is_cut: bool, is_shared: bool) -> None:
    """See at the first loss whether a `compute_loss` of the script's own returns what Hugging Face takes it
    for: a sum divided by the items of the whole step. It is that of the Trainer that has this callback.

    `compute_loss` raises `RefusedError` where it is a mean, with what to do instead. A warning tells of one
    that leaves the number of nodes out, and of a term that is added to Hugging Face's own loss.

    Args:
        base: Hugging Face's Trainer.
        is_cut: a step has several micro-batches on some number of nodes.
        is_shared: a step is shared out among several nodes on some number of them.
    """
    for trainer in trainers_of(base, callback):
        own = trainer.compute_loss
        if getattr(own, "__func__", own) is not base.compute_loss:  # type: ignore[attr-defined]
            around = is_hugging_faces(trainer, base)
            names = _names(own)
            if around and is_cut and not names & PARTS:
                _at_first_loss(trainer, functools.partial(_with_terms, trainer, own))
            elif names and not around:
                _check_sum(own, names, is_cut=is_cut, is_shared=is_shared, trainer=trainer)


def _at_first_loss(trainer: Any, instead: Callable[..., Any]) -> None:
    """Have a Trainer call this once in place of `compute_loss`, at the first loss that is taken for a sum."""
    own, before = trainer.compute_loss, vars(trainer).get("compute_loss")

    def first(*given: Any, **options: Any) -> Any:
        if options.get(ITEMS) is None or not _is_taken_for_sum(trainer):
            return own(*given, **options)
        if before is None:
            del trainer.compute_loss
        else:
            trainer.compute_loss = before
        return instead(*given, **options)

    trainer.compute_loss = first


def _check_sum(own: Any, names: set[Any], *, is_cut: bool, is_shared: bool, trainer: Any) -> None:
    uses_items = bool(names & {ITEMS, *_rest(own)})
    if not (is_shared and not names & NODES if uses_items else is_cut):
        return

    def instead(*given: Any, **options: Any) -> Any:
        if not uses_items:
            raise RefusedError(LOSS_WITHOUT_ITEMS.say(items=ITEMS))
        note_warning(LOSS_WITHOUT_NODES.say(items=ITEMS))
        return own(*given, **options)

    _at_first_loss(trainer, instead)


def watch_masked_labels(base: type, callback: Any, at_once: Mapping[int, int]) -> None:
    """See in the first batch whether the loss of the Trainer that has this callback is a mean over labels of
    which some are masked, and tell where it is one over other samples on other numbers of ranks.

    Args:
        base: Hugging Face's Trainer.
        at_once: the samples that a rank computes at once, by the number of ranks.
    """
    if (found := Uneven.of(at_once)) is not None:
        for trainer in trainers_of(base, callback):
            _at_first_step(trainer, MASKED_MEAN.say(**found._asdict()))


def _at_first_step(trainer: Any, of_masked: str) -> None:
    own, before = trainer.training_step, vars(trainer).get("training_step")

    def first(model: Any, inputs: Any, *given: Any, **options: Any) -> Any:
        del trainer.training_step
        if before is not None:
            trainer.training_step = before
        labels = inputs.get("labels") if isinstance(inputs, Mapping) else None
        is_masked = isinstance(labels, torch.Tensor) and bool((labels == MASKED).any())
        if is_masked and not _is_taken_for_sum(trainer):
            note_warning(of_masked)
        return own(model, inputs, *given, **options)

    trainer.training_step = first


def _with_terms(trainer: Any, own: Callable[..., Any], model: Any, *given: Any, **options: Any) -> Any:
    """Call `compute_loss`, and tell where it returns another number than the model's loss."""
    losses: list[float] = []

    def note_loss(module: Any, args: Any, output: Any) -> None:
        found = output.get("loss") if isinstance(output, Mapping) else None
        if isinstance(found, torch.Tensor):
            losses.append(float(found.detach()))

    handle = model.register_forward_hook(note_loss)
    try:
        found = own(model, *given, **options)
    finally:
        handle.remove()
    loss = float((found[0] if isinstance(found, tuple) else found).detach())
    times = {1, trainer.accelerator.num_processes}
    is_smoothed = getattr(trainer, "label_smoother", None) or getattr(trainer, "compute_loss_func", None)
    if losses and not is_smoothed and not any(math.isclose(loss, n * losses[0], rel_tol=1e-3) for n in times):
        note_warning(LOSS_WITH_TERMS.say())
    return found


def _is_taken_for_sum(trainer: Any) -> bool:
    """True if Hugging Face takes what `compute_loss` returns for a sum divided by the step's items."""
    said = getattr(trainer, "loss_is_scaled_for_ga", None)
    return bool(getattr(trainer, "model_accepts_loss_kwargs", False) if said is None else said)


def check_smoothing_by_items(smoother: type, model: torch.nn.Module) -> None:
    """Refuse label smoothing, which `smoother` computes, of versions of transformers in which it is a mean.

    Raises:
        RefusedError: then, with what to do instead.
    """
    takes_items = getattr(model, "accepts_loss_kwargs", bool(_rest(type(model).forward)))
    if takes_items and ITEMS not in inspect.signature(smoother.__call__).parameters:
        raise RefusedError(SMOOTHING.say(items=ITEMS))


def is_hugging_faces(trainer: Any, base: type) -> bool:
    """True if a Trainer's losses come from Hugging Face's own `compute_loss`, maybe with more around it."""
    own: Any = type(trainer).compute_loss
    its: Any = base.compute_loss  # type: ignore[attr-defined]
    return own is its or bool(_names(own) & {"super", its.__name__})


def _rest(function: Any) -> list[str]:
    """The name of `**kwargs`, if it takes them."""
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD]


def _names(function: Any) -> set[Any]:
    """Names that a function reads or sets; none where there is no telling."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
    found = dis.get_instructions(code) if code is not None else ()
    return {one.argval for one in found if one.opname.startswith(("LOAD", "STORE"))}
