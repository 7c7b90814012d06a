"""Has Hugging Face's Trainer evaluate alike on any number of nodes, and tells where it does not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from accelerate.utils import recursively_apply
from transformers import Trainer

from bftrainer.elastic.frameworks.huggingface.loss_by_items import is_hugging_faces
from bftrainer.elastic.frameworks.huggingface.order import length_of
from bftrainer.elastic.process.warnings import note_warning
from bftrainer.messages.huggingface import EVALUATION_FILLED_UP


def make_even(trainer: Any) -> None:
    """Have a Trainer divide the loss of each batch of an evaluation by that batch's own items, as it does on
    one node. On several it divides by those of the batches of all nodes at that moment, so that `eval_loss`
    would depend on their number. A `compute_loss` of the script's own may count on that: it is left alone.

    And have it leave out samples with which the last batches are filled up, where it does not by itself: the
    Trainer for sequences returns them with its predictions, and they count in its metrics.
    """
    if is_hugging_faces(trainer, Trainer):
        trainer.prediction_step = partial(_by_own_items, trainer, trainer.prediction_step)
    trainer.evaluation_loop = partial(_each_once, trainer, trainer.evaluation_loop, set())


def _by_own_items(trainer: Any, step: Callable[..., Any], *given: Any, **options: Any) -> Any:
    args, name = trainer.args, "average_tokens_across_devices"
    before = getattr(args, name, None)
    if before is None:  # a version that never does
        return step(*given, **options)
    setattr(args, name, False)
    try:
        return step(*given, **options)
    finally:
        setattr(args, name, before)


def _each_once(
    trainer: Any, loop: Callable[..., Any], told: set[str], dataloader: Any, *given: Any, **options: Any
) -> Any:
    accelerator = trainer.accelerator
    if accelerator.num_processes > 1:
        if trainer.gather_function == accelerator.gather:
            trainer.gather_function = partial(gathered, accelerator)
        said = filled_up(length_of(dataloader), trainer.args.per_device_eval_batch_size)
        if said and said not in told and accelerator.is_main_process:
            note_warning(said)
        told.add(said)
    return loop(dataloader, *given, **options)


def gathered(accelerator: Any, given: Any) -> Any:
    """Result of `accelerator.gather`, without the rows of samples that fill the last batches up. A sample
    may have several rows, such as sequences that were generated from it; all of them follow each other."""
    found, state = accelerator.gather(given), accelerator.gradient_state
    if not state.end_of_dataloader or state.remainder <= 0:
        return found
    total = state.active_dataloader.total_batch_size
    return recursively_apply(lambda rows: rows[: len(rows) // total * state.remainder], found)


def filled_up(length: int | None, batch: int) -> str:
    """Warning where the last batch of an evaluation is not full; empty where it is."""
    left = (length or 0) % batch
    if not left:
        return ""
    return EVALUATION_FILLED_UP.say(length=length, batch=batch, left=left)
