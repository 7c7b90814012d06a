"""Checks of a Lightning Trainer's arguments: refuses or warns of those under which a step would go wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import callbacks
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    Callback,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelPruning,
    StochasticWeightAveraging,
)
from lightning.pytorch.core.hooks import ModelHooks

from bftrainer.elastic.frameworks.lightning import epoch_figures
from bftrainer.elastic.process.refusal import RefusedError
from bftrainer.elastic.process.warnings import note_warning

_counts_told: set[str] = set()
FOLLOW = (
    *("BackboneFinetuning", "BaseFinetuning", "BasePredictionWriter", "Callback", "Checkpoint"),
    *("DeviceStatsMonitor", "EMAWeightAveraging", "EarlyStopping", "GradientAccumulationScheduler"),
    *("LambdaCallback", "LearningRateMonitor", "ModelCheckpoint", "ModelSummary", "OnExceptionCheckpoint"),
    *("ProgressBar", "RichModelSummary", "RichProgressBar", "TQDMProgressBar", "ThroughputMonitor", "Timer"),
    "WeightAveraging",
)
"""Lightning's callbacks that go on where a run goes on, or whose part in it is refused elsewhere."""

LIBRARIES = (
    "torch",
    "torchmetrics",
    "lightning",
    "pytorch_lightning",
    "transformers",
    "datasets",
    "accelerate",
    "bftrainer",
)
"""Hooks of classes of these are their own affair."""


def require_set_up(trainer: Any, module: Any) -> None:
    """Refuse callbacks that train before the training, and weights that Lightning converts to a wider type
    after they have come from a checkpoint.

    Raises:
        RefusedError: which, and what to do instead.
    """
    finders = [c for c in trainer.callbacks if isinstance(c, BatchSizeFinder | LearningRateFinder)]
    if finders:
        raise RefusedError(
            f"{type(finders[0]).__name__} would train for itself after every start, each time to another "
            "end: find the value beforehand, by a script of its own, and give it to this one"
        )
    if str(getattr(trainer, "precision", "")) == "64-true":
        _require_made_wide(module)


def require_data(data: Any, options: Mapping[str, Any]) -> None:
    """Refuse data without a length, and a loader's options that say which samples a batch has.

    Raises:
        RefusedError: then, with what to do instead.
    """
    if own := {"batch_size", "batch_sampler", "drop_last", "sampler"} & options.keys():
        raise RefusedError(
            f"leave {', '.join(sorted(own))} out: the nodes share the data in an order of the run's own"
        )
    if not hasattr(data, "__len__"):
        raise RefusedError(
            f"{type(data).__name__} has no length: under Lightning the nodes share a map-style data set. "
            "For a stream, take elastic.Run, or Hugging Face's Trainer"
        )


def require_steps(steps: int, samples: int, batch: int) -> None:
    """Refuse data that is not enough for two steps.

    Raises:
        RefusedError: it is not.
    """
    if steps < 2:
        raise RefusedError(
            f"{samples} samples are not enough for two steps of {batch}: a run goes on within an epoch; "
            "take a smaller batch"
        )


def require_arguments(trainer: Any, arguments: Mapping[str, Any], *, accumulates: bool) -> None:
    """Refuse a Trainer without the callback's arguments, or with others that count what nodes change.

    `accumulates`: whether on some number of nodes a step has several micro-batches.

    Raises:
        RefusedError: which, and what to give instead.
    """
    wrong = [name for name, value in arguments.items() if _told(trainer, name) not in (value, None)]
    if wrong:
        raise RefusedError(f"say Trainer(**elastic.arguments(), ...); {', '.join(wrong)} was set otherwise")
    _require_whole_epochs(trainer)
    interval = getattr(trainer, "val_check_interval", 1.0)
    if accumulates and isinstance(interval, int):
        raise RefusedError(
            f"val_check_interval={interval} counts micro-batches, and a step has fewer on more nodes: "
            "give it as a part of an epoch, such as 0.5, or leave at_most out"
        )


def require_schedulers(trainer: Any, *, accumulates: bool) -> None:
    """Refuse schedulers that are stepped after a number of micro-batches, where nodes change what a step has.

    Raises:
        RefusedError: then, with what to do instead.
    """
    configs = getattr(trainer, "lr_scheduler_configs", ())
    frequencies = [each.frequency for each in configs if each.interval == "step" and each.frequency != 1]
    if accumulates and frequencies:
        raise RefusedError(
            f'a scheduler with interval "step" has frequency {frequencies[0]}, which counts micro-batches, '
            "and a step has fewer on more nodes: give it frequency 1 and a schedule for each step, or leave "
            "at_most out"
        )


def _require_made_wide(module: Any) -> None:
    for name, value in module.named_parameters():
        if value.dtype == torch.float32:
            raise RefusedError(
                f'{name} is made in float32, and Trainer(precision="64-true") converts it after a start has '
                "restored it from a checkpoint, rounded. Make the module in float64 at once, such as by "
                "torch.set_default_dtype(torch.float64)"
            )


def tell_of_callbacks(
    trainer: Any, module: Any, resumed: tuple[int, int] | None, is_own: Callable[[Path], bool]
) -> None:
    """Tell of a callback of Lightning that is not known to go on after a change of nodes, of hooks that are
    not called when an epoch goes on after the steps `resumed` says, and of files outside of the folders
    that are the trainer's own.
    """
    _tell_of_hooks(trainer, module, resumed)
    _tell_of_files(trainer, is_own)
    for each in trainer.callbacks:
        kind = type(each)
        if kind.__module__.partition(".")[0] == "lightning" and kind.__name__ not in FOLLOW:
            note_warning(
                f"{kind.__name__} is not known to go on where it was after a change of nodes: compare a run "
                "with one by hand before you rely on it"
            )


def tell_of_parts(trainer: Any, module: Any, *, accumulates: bool) -> None:
    """Tell of a hook that sees gradients of a part of the step, of this rank's samples alone."""
    if not accumulates:
        return
    own = [each for each in (module, *trainer.callbacks) if isinstance(each, ModelHooks | Callback)]
    plain = (ModelHooks.on_after_backward, Callback.on_after_backward)
    names = [type(each).__name__ for each in own if type(each).on_after_backward not in plain]
    if names:
        note_warning(
            f"on_after_backward of {', '.join(names)} is called for each micro-batch, with gradients "
            "that are not averaged yet: what it does to them depends on the number of nodes. Do it in "
            "on_before_optimizer_step, or clip by the Trainer's gradient_clip_val"
        )


def tell_of_figures(trainer: Any, resumed: tuple[int, int] | None) -> None:
    """Tell, at an epoch's end, of its figures that have a part of it only. `resumed`: where the run went on,
    as the epoch and the steps of it that were taken."""
    names = epoch_figures.lost(trainer)
    epoch, step = resumed or (-1, 0)
    if names and step and trainer.current_epoch == epoch:
        note_warning(
            f"{', '.join(names)}: of epoch {epoch}, only what came after its step {step} counts. Log "
            "numbers in place of metrics of torchmetrics, or follow figures of the validation"
        )


def tell_of_counts(names: Collection[str]) -> None:
    """Tell, once each, of metrics that count by hand, see `epoch_figures.by_hand`."""
    for name in names:
        if name not in _counts_told:
            _counts_told.add(name)
            note_warning(
                f"{name} counts by itself, and a checkpoint lacks it or, by persistent(True), has what rank "
                "0 has counted: log the metric itself (self.log), or sum over all ranks in a buffer of the "
                "module"
            )


def resume_windows(trainer: Any) -> None:
    """Accumulate as a GradientAccumulationScheduler says of the epoch, which Lightning only asks it when an
    epoch begins, not where a run goes on within one. Not before all callbacks' `on_train_start`: there it
    takes any number but 1 for the script's own, and refuses it."""
    for each in trainer.callbacks:
        if isinstance(each, GradientAccumulationScheduler):
            trainer.accumulate_grad_batches = each.get_accumulate_grad_batches(trainer.current_epoch)


def is_scripts_own(defined: Any) -> bool:
    """Whether a class or function is of the script, and of none of the libraries that train for it."""
    return defined.__module__.partition(".")[0] not in LIBRARIES


def _tell_of_hooks(trainer: Any, module: Any, resumed: tuple[int, int] | None) -> None:
    """Tell of what a script does when an epoch begins, where a run goes on within one: Lightning does not
    call it then; and of what it does at every start. `resumed`: the epoch, and the steps of it that are
    taken."""
    if resumed is None:
        return
    for each in (module, *trainer.callbacks):
        for hook in ("on_train_start", "on_fit_start"):
            if is_scripts_own(getattr(type(each), hook)):
                note_warning(
                    f"{type(each).__name__}.{hook} is called at every start: what it resets, such as a "
                    "metric or an average, begins anew. Do that in __init__"
                )
        if resumed[1] and is_scripts_own(type(each).on_train_epoch_start):
            note_warning(
                f"{type(each).__name__}.on_train_epoch_start is not called for the rest of epoch "
                f"{resumed[0]}, which goes on after a change of nodes: do what follows from the epoch in "
                "on_train_start, too"
            )


def tell_of_lengths(trainer: Any, steps: int | None) -> None:
    """Tell of a scheduler that is made for more or fewer steps than the whole training has, such as by the
    length of a loader, which counts this node's micro-batches."""
    for each in getattr(trainer, "lr_scheduler_configs", ()):
        length = getattr(each.scheduler, "total_steps", None)
        if each.interval == "step" and steps and length and length != steps:
            note_warning(
                f"{type(each.scheduler).__name__} is made for {length} steps, and the training has {steps}: "
                "len(loader) counts this node's micro-batches, of which there are fewer on more nodes. Take "
                "self.trainer.estimated_stepping_batches"
            )


def tell_of_validations(trainer: Any, steps: int, *, accumulates: bool) -> None:
    """Tell of validations within an epoch of `steps` whose step depends on the number of nodes."""
    part = getattr(trainer, "val_check_interval", 1.0)
    if accumulates and isinstance(part, float) and not (steps * part).is_integer():
        note_warning(
            f"val_check_interval={part} of {steps} steps is no whole number of steps: on another number of "
            "nodes the validation comes after another step. Give a part of which an epoch has whole steps, "
            f"such as {math.floor(steps * part)}/{steps}"
        )


def require_averaged(model: Any, module: torch.nn.Module) -> None:
    """Refuse a step whose gradients DistributedDataParallel has not averaged, as it was not told of unused
    parameters. It would say so in the next step only, when this one may be saved.

    Raises:
        RefusedError: parameters without a gradient, and what to give.
    """
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return
    try:
        model._check_reducer_finalized()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        unused = [name for name, p in module.named_parameters() if p.requires_grad and p.grad is None]
        raise RefusedError(
            f"gradients were not averaged over the nodes, as {len(unused) or 'some'} parameters got none "
            f"({', '.join(unused[:3])}): freeze them (requires_grad_(False)), or say "
            'Trainer(strategy="ddp_find_unused_parameters_true", **elastic.arguments())'
        ) from error


def _tell_of_files(trainer: Any, is_own: Callable[[Path], bool]) -> None:
    """Tell of a ModelCheckpoint whose folder is another after every start; and, outside of the trainer's own
    folders, where files stay, of one whose last.ckpt may be an old one after a loss of nodes."""
    for each in getattr(trainer, "checkpoint_callbacks", ()):
        if any(part.startswith("version_") for part in Path(each.dirpath or "").parts):
            note_warning(
                f"ModelCheckpoint writes to {each.dirpath}, which is another folder after every start: the "
                "best score begins anew there. Give it a dirpath that stays, such as "
                'job.checkpoint_dir / "best" with job = elastic.attach()'
            )
        if (
            not is_own(Path(each.dirpath or ""))
            and getattr(each, "save_last", None)
            and getattr(each, "_enable_version_counter", False)
        ):
            note_warning(
                "ModelCheckpoint(save_last=True): where all nodes are lost, last.ckpt stays as it was then, "
                "and the newest is last-v1.ckpt: give it a dirpath in job.checkpoint_dir, where that is seen "
                "to, or enable_version_counter=False"
            )


def require_resumed(trainer: Any, checkpoint: str | None) -> None:
    """Refuse a Trainer that does not go on from the newest checkpoint, if there is one.

    Raises:
        RefusedError: what to say.
    """
    if checkpoint is not None and str(trainer.ckpt_path) != checkpoint:
        raise RefusedError(
            f"there is {checkpoint} to go on from: say trainer.fit(..., ckpt_path=elastic.checkpoint)"
        )


def require_goes_on(trainer: Any, epoch: int, step: int) -> None:
    """Refuse to go on after `epoch` whole epochs with a number of steps: Lightning would skip an epoch.

    Raises:
        RefusedError: what to give instead.
    """
    if epoch and not step and getattr(trainer, "max_steps", -1) != -1:
        raise RefusedError(
            f"the checkpoint was written after all of {epoch} epochs, and with max_steps Lightning would "
            "leave an epoch's samples out: give max_epochs alone"
        )


def _require_whole_epochs(trainer: Any) -> None:
    """Refuse what Lightning does not go on with within an epoch."""
    if getattr(trainer, "limit_train_batches", 1.0) != 1.0 or getattr(trainer, "overfit_batches", 0.0):
        raise RefusedError(
            "a run goes on within an epoch, which has all its steps then: leave limit_train_batches and "
            "overfit_batches out, and give elastic.loader fewer samples"
        )
    if getattr(trainer, "reload_dataloaders_every_n_epochs", 0):
        raise RefusedError(
            "a loader that is made anew begins an epoch anew: leave reload_dataloaders_every_n_epochs out"
        )
    if any(isinstance(callback, ModelPruning) for callback in trainer.callbacks):
        raise RefusedError(
            "Lightning does not restore the masks of ModelPruning: pruned weights would come back after a "
            "change of nodes. Prune when the training is done, or in a training of its own, by hand"
        )
    if any(isinstance(callback, StochasticWeightAveraging) for callback in trainer.callbacks):
        raise RefusedError(
            "Lightning does not restore StochasticWeightAveraging: its learning rates and averages would be "
            "others after a change of nodes. Take WeightAveraging or EMAWeightAveraging, which it restores"
        )


def _told(trainer: Any, argument: str) -> Any:
    """What an argument of the Trainer has been set to; None where it does not say."""
    if argument == "devices":
        return trainer.num_devices
    if argument == "use_distributed_sampler":
        return getattr(getattr(trainer, "_accelerator_connector", None), argument, None)
    return getattr(trainer, argument, None)


def take_averages(trainer: Any, module: Any) -> None:
    """Give a module the averages of its weights that a checkpoint has. Lightning does so as a training ends,
    and not where a start finds nothing left to train."""
    kind = getattr(callbacks, "WeightAveraging", ())  # older versions have none
    for each in trainer.callbacks:
        if isinstance(each, kind):
            each.on_train_end(trainer, module)
