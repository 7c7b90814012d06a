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
from bftrainer.elastic.train.trained import needs_closure
from bftrainer.messages.lightning import (
    AFTER_BACKWARD,
    ARGUMENTS,
    AT_EVERY_START,
    CLOSURE,
    COUNTS_BY_ITSELF,
    FINDER,
    FREQUENCY_COUNTS,
    LIMITED,
    LOADER_OPTIONS,
    MADE_NARROW,
    NO_EPOCH_START,
    NO_LENGTH,
    OTHER_FOLDER,
    PART_OF_EPOCH,
    PRUNING,
    RELOADS,
    RESUME,
    SAVE_LAST,
    SCHEDULE_LENGTH,
    SKIPS_EPOCH,
    STOCHASTIC_AVERAGING,
    STRANGE_CALLBACK,
    TOO_FEW_STEPS,
    UNUSED,
    VALIDATION_COUNTS,
    VALIDATION_PART,
)

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


def check_set_up(trainer: Any, module: Any) -> None:
    """Refuse callbacks that train before the training, and weights that Lightning converts to a wider type
    after they have come from a checkpoint.

    Raises:
        RefusedError: which, and what to do instead.
    """
    finders = [c for c in trainer.callbacks if isinstance(c, BatchSizeFinder | LearningRateFinder)]
    if finders:
        raise RefusedError(FINDER.say(finder=type(finders[0]).__name__))
    if str(getattr(trainer, "precision", "")) == "64-true":
        _check_made_wide(module)


def check_data(data: Any, options: Mapping[str, Any]) -> None:
    """Refuse data without a length, and a loader's options that say which samples a batch has.

    Raises:
        RefusedError: then, with what to do instead.
    """
    if own := {"batch_size", "batch_sampler", "drop_last", "sampler"} & options.keys():
        raise RefusedError(LOADER_OPTIONS.say(options=", ".join(sorted(own))))
    if not hasattr(data, "__len__"):
        raise RefusedError(NO_LENGTH.say(data=type(data).__name__))


def check_steps(steps: int, samples: int, batch: int) -> None:
    """Refuse data that is not enough for two steps.

    Raises:
        RefusedError: it is not.
    """
    if steps < 2:
        raise RefusedError(TOO_FEW_STEPS.say(samples=samples, batch=batch))


def check_arguments(trainer: Any, arguments: Mapping[str, Any], *, accumulates: bool) -> None:
    """Refuse a Trainer without the callback's arguments, or with others that count what nodes change.

    `accumulates`: whether on some number of nodes a step has several micro-batches.

    Raises:
        RefusedError: which, and what to give instead.
    """
    wrong = [name for name, value in arguments.items() if _told(trainer, name) not in (value, None)]
    if wrong:
        raise RefusedError(ARGUMENTS.say(names=", ".join(wrong)))
    _check_whole_epochs(trainer)
    interval = getattr(trainer, "val_check_interval", 1.0)
    if accumulates and isinstance(interval, int):
        raise RefusedError(VALIDATION_COUNTS.say(interval=interval))


def check_schedulers(trainer: Any, *, accumulates: bool) -> None:
    """Refuse schedulers that are stepped after a number of micro-batches, where nodes change what a step has.

    Raises:
        RefusedError: then, with what to do instead.
    """
    configs = getattr(trainer, "lr_scheduler_configs", ())
    frequencies = [each.frequency for each in configs if each.interval == "step" and each.frequency != 1]
    if accumulates and frequencies:
        raise RefusedError(FREQUENCY_COUNTS.say(frequency=frequencies[0]))


def check_one_loss(trainer: Any, module: Any, *, is_shared: bool) -> None:
    """Refuse an optimiser that computes the loss of a step several times, where no loss is that of the whole
    step: Lightning repeats this rank's last micro-batch alone.

    `is_shared`: whether on some number of nodes a step has several ranks or micro-batches.

    Raises:
        RefusedError: then, with what to do instead.
    """
    if is_shared and module.automatic_optimization:
        for optimizer in filter(needs_closure, getattr(trainer, "optimizers", ())):
            raise RefusedError(CLOSURE.say(optimizer=type(optimizer).__name__))


def _check_made_wide(module: Any) -> None:
    for name, value in module.named_parameters():
        if value.dtype == torch.float32:
            raise RefusedError(MADE_NARROW.say(name=name))


def warn_of_callbacks(
    trainer: Any, module: Any, resumed: tuple[int, int] | None, is_own: Callable[[Path], bool]
) -> None:
    """Tell of a callback of Lightning that is not known to go on after a change of nodes, of hooks that are
    not called when an epoch goes on after the steps `resumed` says, and of files outside of the folders
    that are the trainer's own.
    """
    _warn_of_hooks(trainer, module, resumed)
    _warn_of_files(trainer, is_own)
    for each in trainer.callbacks:
        kind = type(each)
        if kind.__module__.partition(".")[0] == "lightning" and kind.__name__ not in FOLLOW:
            note_warning(STRANGE_CALLBACK.say(callback=kind.__name__))


def warn_of_parts(trainer: Any, module: Any, *, accumulates: bool) -> None:
    """Tell of a hook that sees gradients of a part of the step, of this rank's samples alone."""
    if not accumulates:
        return
    own = [each for each in (module, *trainer.callbacks) if isinstance(each, ModelHooks | Callback)]
    plain = (ModelHooks.on_after_backward, Callback.on_after_backward)
    names = [type(each).__name__ for each in own if type(each).on_after_backward not in plain]
    if names:
        note_warning(AFTER_BACKWARD.say(names=", ".join(names)))


def warn_of_figures(trainer: Any, resumed: tuple[int, int] | None) -> None:
    """Tell, at an epoch's end, of its figures that have a part of it only. `resumed`: where the run went on,
    as the epoch and the steps of it that were taken."""
    names = epoch_figures.lost(trainer)
    epoch, step = resumed or (-1, 0)
    if names and step and trainer.current_epoch == epoch:
        note_warning(PART_OF_EPOCH.say(names=", ".join(names), epoch=epoch, step=step))


def warn_of_counts(names: Collection[str]) -> None:
    """Tell, once each, of metrics that count by hand, see `epoch_figures.by_hand`."""
    for name in names:
        if name not in _counts_told:
            _counts_told.add(name)
            note_warning(COUNTS_BY_ITSELF.say(name=name))


def resume_windows(trainer: Any) -> None:
    """Accumulate as a GradientAccumulationScheduler says of the epoch, which Lightning only asks it when an
    epoch begins, not where a run goes on within one. Not before all callbacks' `on_train_start`: there it
    takes any number but 1 for the script's own, and refuses it."""
    for each in trainer.callbacks:
        if isinstance(each, GradientAccumulationScheduler):
            trainer.accumulate_grad_batches = each.get_accumulate_grad_batches(trainer.current_epoch)


def is_scripts_own(defined: Any) -> bool:
    """True if a class or function is of the script, and of none of the libraries that train for it."""
    return defined.__module__.partition(".")[0] not in LIBRARIES


def _warn_of_hooks(trainer: Any, module: Any, resumed: tuple[int, int] | None) -> None:
    """Tell of what a script does when an epoch begins, where a run goes on within one: Lightning does not
    call it then; and of what it does at every start. `resumed`: the epoch, and the steps of it that are
    taken."""
    if resumed is None:
        return
    for each in (module, *trainer.callbacks):
        for hook in ("on_train_start", "on_fit_start"):
            if is_scripts_own(getattr(type(each), hook)):
                note_warning(AT_EVERY_START.say(hook=f"{type(each).__name__}.{hook}"))
        if resumed[1] and is_scripts_own(type(each).on_train_epoch_start):
            note_warning(
                NO_EPOCH_START.say(hook=f"{type(each).__name__}.on_train_epoch_start", epoch=resumed[0])
            )


def warn_of_lengths(trainer: Any, steps: int | None) -> None:
    """Tell of a scheduler that is made for more or fewer steps than the whole training has, such as by the
    length of a loader, which counts this node's micro-batches."""
    for each in getattr(trainer, "lr_scheduler_configs", ()):
        length = getattr(each.scheduler, "total_steps", None)
        if each.interval == "step" and steps and length and length != steps:
            note_warning(
                SCHEDULE_LENGTH.say(scheduler=type(each.scheduler).__name__, length=length, steps=steps)
            )


def warn_of_validations(trainer: Any, steps: int, *, accumulates: bool) -> None:
    """Tell of validations within an epoch of `steps` whose step depends on the number of nodes."""
    part = getattr(trainer, "val_check_interval", 1.0)
    if accumulates and isinstance(part, float) and not (steps * part).is_integer():
        note_warning(VALIDATION_PART.say(part=part, steps=steps, whole=math.floor(steps * part)))


def check_averaged(model: Any, module: torch.nn.Module) -> None:
    """Refuse a step whose gradients DistributedDataParallel has not averaged, as it did not know of unused
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
        raise RefusedError(UNUSED.say(count=len(unused) or "some", names=", ".join(unused[:3]))) from error


def _warn_of_files(trainer: Any, is_own: Callable[[Path], bool]) -> None:
    """Tell of a ModelCheckpoint whose folder is another after every start; and, outside of the trainer's own
    folders, where files stay, of one whose last.ckpt may be an old one after a loss of nodes."""
    for each in getattr(trainer, "checkpoint_callbacks", ()):
        if any(part.startswith("version_") for part in Path(each.dirpath or "").parts):
            note_warning(OTHER_FOLDER.say(folder=each.dirpath))
        if (
            not is_own(Path(each.dirpath or ""))
            and getattr(each, "save_last", None)
            and getattr(each, "_enable_version_counter", False)
        ):
            note_warning(SAVE_LAST.say())


def check_resumed(trainer: Any, checkpoint: str | None) -> None:
    """Refuse a Trainer that does not go on from the newest checkpoint, if there is one.

    Raises:
        RefusedError: what to say.
    """
    if checkpoint is not None and str(trainer.ckpt_path) != checkpoint:
        raise RefusedError(RESUME.say(checkpoint=checkpoint))


def check_goes_on(trainer: Any, epoch: int, step: int) -> None:
    """Refuse to go on after `epoch` whole epochs with a number of steps: Lightning would skip an epoch.

    Raises:
        RefusedError: what to give instead.
    """
    if epoch and not step and getattr(trainer, "max_steps", -1) != -1:
        raise RefusedError(SKIPS_EPOCH.say(epochs=epoch))


def _check_whole_epochs(trainer: Any) -> None:
    """Refuse what Lightning does not go on with within an epoch."""
    if getattr(trainer, "limit_train_batches", 1.0) != 1.0 or getattr(trainer, "overfit_batches", 0.0):
        raise RefusedError(LIMITED.say())
    if getattr(trainer, "reload_dataloaders_every_n_epochs", 0):
        raise RefusedError(RELOADS.say())
    if any(isinstance(callback, ModelPruning) for callback in trainer.callbacks):
        raise RefusedError(PRUNING.say())
    if any(isinstance(callback, StochasticWeightAveraging) for callback in trainer.callbacks):
        raise RefusedError(STOCHASTIC_AVERAGING.say())


def _told(trainer: Any, argument: str) -> Any:
    """Value of an argument of the Trainer; None where it does not say."""
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
