"""Lightning's counts: batches in its checkpoints, the steps of a whole training, and logged figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from bftrainer.elastic.state.packing import mapped, plain


def recount(checkpoint: dict[str, Any], before: int, now: int) -> tuple[int, int]:
    """Have a checkpoint count batches as with `now` micro-batches a step, in place of `before`.

    Returns:
        The epoch where training goes on, and the steps of it that are taken.
    """
    loop = checkpoint["loops"]["fit_loop"]
    batches = loop["epoch_loop.batch_progress"]
    for counts in (batches["total"], batches["current"]):
        # batches at which a module ended its epoch (-1 in on_train_batch_start): Lightning never starts them,
        # and would take the one before the checkpoint for such
        ended = counts["ready"] - counts["started"]
        counts["started"] += ended
        counts["completed"] += ended
        ready = counts["ready"] * now // before
        for name, count in counts.items():  # the last may not be complete
            counts[name] = ready - (counts["ready"] - count) if name != "ready" else count
        counts["ready"] = ready
    epochs = loop["epoch_progress"]["current"]
    is_within = epochs["ready"] != epochs["processed"]  # else written when the last epoch was over
    return epochs["processed"], batches["current"]["ready"] // now if is_within else 0


def whole_training(trainer: Any, module: Any, steps_of_epoch: int) -> int | None:
    """The steps of the whole training; None: it has no end that is known.

    `max_steps` counts the steps of all optimisers, of which a module with manual optimisation may have
    several.
    """
    epochs, most = trainer.max_epochs, trainer.max_steps if module.automatic_optimization else -1
    by_epochs = None if epochs in (None, -1) else epochs * steps_of_epoch
    known = [steps for steps in (by_epochs, most if most != -1 else None) if steps]
    return int(min(known)) if known else None


def validates_next(trainer: Any, batch_idx: int, steps: int, micro_batches: int) -> bool:
    """True if a validation comes before the next step: it belongs to the save after this one. Where one
    comes after every step there is no better moment.

    `steps`: of an epoch.
    """
    if batch_idx + 1 == steps * micro_batches:
        return True
    epochs, apart = trainer.check_val_every_n_epoch, trainer.val_check_batch
    if not trainer.enable_validation or (epochs is not None and (trainer.current_epoch + 1) % epochs):
        return False
    at = trainer.fit_loop.total_batch_idx if epochs is None else batch_idx
    return bool(apart > micro_batches and (at + 1) % apart == 0)


def figures(trainer: Any) -> dict[str, float]:
    """Logged values that are one number."""
    found = trainer.callback_metrics.items()
    return {name: float(value) for name, value in found if getattr(value, "numel", lambda: 1)() == 1}


def logged(trainer: Any) -> dict[str, torch.Tensor]:
    """The last value of each figure, for a checkpoint."""
    found = trainer.callback_metrics.items()
    return {name: value.detach().cpu() for name, value in found if torch.is_tensor(value)}


def go_on_with(trainer: Any, before: Mapping[str, torch.Tensor]) -> None:
    """Have the Trainer know figures that were logged `before` this start, such as of the last validation."""
    there = trainer.callback_metrics
    for name, value in before.items():
        there.setdefault(name, value)


def plain_numbers(checkpoint: dict[str, Any]) -> None:
    """Have optimisers and schedulers keep Python's own numbers in a checkpoint: with NumPy's, such as a
    learning rate of `0.5 * (1 + np.cos(...))`, it could not be read."""
    for name in ("optimizer_states", "lr_schedulers"):
        if name in checkpoint:
            checkpoint[name] = mapped(checkpoint[name], plain)
