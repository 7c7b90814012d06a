"""Lightning's Trainer on nodes that come and go: a callback that saves, stops, resumes and reports.

    elastic = ElasticCallback(batch=48, at_most=16)    # before anything that takes long
    loader = elastic.loader(train, num_workers=2)      # instead of a DataLoader with a batch_size and shuffle
    trainer = Trainer(**elastic.arguments(), callbacks=[elastic], max_epochs=3)
    trainer.fit(model, loader, ckpt_path=elastic.checkpoint)

The spec says `launcher: torchrun`. A step has as many samples on any number of nodes, and an epoch as many
steps: so Lightning's counts are right whatever the nodes, and a run goes on within an epoch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from bftrainer.elastic.attach import step_files
from bftrainer.elastic.attach.checkpoints import begin_training
from bftrainer.elastic.attach.collectives import check_same_start
from bftrainer.elastic.attach.job import attach
from bftrainer.elastic.frameworks.batch_norm import watch_batch_norm
from bftrainer.elastic.frameworks.data_check import warn_of_other_data
from bftrainer.elastic.frameworks.even_batches import EvenBatches
from bftrainer.elastic.frameworks.fixed_batch import at_once, check_even, cut
from bftrainer.elastic.frameworks.lightning import epoch_figures
from bftrainer.elastic.frameworks.lightning.counts import (
    figures,
    go_on_with,
    logged,
    plain_numbers,
    recount,
    validates_next,
    whole_training,
)
from bftrainer.elastic.frameworks.lightning.files import CheckpointFiles
from bftrainer.elastic.frameworks.lightning.step_figures import StepFigures
from bftrainer.elastic.frameworks.model_check import AsAtStart, Restored
from bftrainer.elastic.frameworks.own_callbacks import OwnCallbacks
from bftrainer.elastic.frameworks.pending_gradients import windows
from bftrainer.elastic.frameworks.replica_check import SameWeights
from bftrainer.elastic.process.refusal import RefusedError
from bftrainer.elastic.process.rng import reseed_here
from bftrainer.elastic.process.warnings import begun, note
from bftrainer.messages.commands.lines import NOT_INSTALLED
from bftrainer.messages.lightning import NOT_RESTORED, OTHER_BATCH, OWN_CALLBACK, OWN_LOADER, WEIGHTS_APART

HOOK = "on_train_batch_end"


def after_each_batch(module: Any, then: Callable[[int], None]) -> None:
    """Have `then(batch_idx)` called when a batch is over.

    Lightning calls the module's hook last. What it and callbacks do there, such as the update of an average,
    belongs to the step, and so into a checkpoint that is written after it.
    """
    forget(module)
    own = getattr(module, HOOK)

    def both(outputs: Any, batch: Any, batch_idx: int) -> None:
        own(outputs, batch, batch_idx)
        then(batch_idx)

    setattr(module, HOOK, both)


def forget(module: Any) -> None:
    """Undo it; a module with a function of bftrainer's could not be pickled."""
    vars(module).pop(HOOK, None)


try:
    from lightning.pytorch import Callback

    from bftrainer.elastic.frameworks.lightning.arguments import (
        check_arguments,
        check_averaged,
        check_data,
        check_goes_on,
        check_one_loss,
        check_resumed,
        check_schedulers,
        check_set_up,
        check_steps,
        resume_windows,
        take_averages,
        warn_of_callbacks,
        warn_of_counts,
        warn_of_figures,
        warn_of_lengths,
        warn_of_parts,
        warn_of_validations,
    )
except ImportError as error:
    raise ImportError(
        NOT_INSTALLED.say(
            what=f"bftrainer.elastic.lightning ({error})", package="lightning", how="pip install lightning"
        )
    ) from error


class ElasticCallback(Callback):  # type: ignore[misc]  # lightning need not be installed
    """Give it to the Trainer, with its `arguments`, `loader` and `checkpoint`.

    It has all ranks write a checkpoint every `checkpoint.every_s` of the spec, and when nodes join or leave.
    After the latter it ends the process: what follows `fit` runs only when the training is done.

    Args:
        batch: the samples of a step, over all nodes.
        at_most: those that a node computes at once; gradients of more are accumulated.
        folder: where checkpoints are if the script is started by hand.

    Raises:
        RefusedError: a number of nodes that the spec allows does not divide `batch`, or strangers can put
            files among the checkpoints.
    """

    def __init__(self, batch: int, *, at_most: int | None = None, folder: str | Path = "checkpoints") -> None:
        self._job = attach(folder)
        check_even(batch, self._job.sizes)
        self._batch, self._cut = batch, cut(batch, self._job.size, at_most)
        self._at_once = at_once(batch, self._job.sizes, at_most)
        self._accumulates = at_most is not None and batch > at_most  # on some number of nodes
        self._folder = Path(self._job.checkpoint_dir or folder)
        step_files.check_no_strangers(self._folder)
        if self._job.rank == 0:
            step_files.tidy(self._folder)
        found = step_files.whole(self._folder)
        self.checkpoint = str(found[-1]) if found else None
        """Checkpoint from which `fit` must go on; None at the start."""
        self._batches: EvenBatches | None = None
        self._resumed: tuple[int, int] | None = None  # epoch, and steps of it
        self._at_start: AsAtStart | None = None
        self._files, self._data = CheckpointFiles(self._job), dict[str, str]()
        self._same = SameWeights(WEIGHTS_APART)
        self._restored: Restored | None = None
        self._step_figures, self._callbacks = StepFigures(), OwnCallbacks(OWN_CALLBACK)
        self._figures: epoch_figures.Kept = {}  # of the epoch under way, up to the checkpoint
        self._logged: dict[str, Any] = {}  # the last of each figure before this start

    def loader(self, data: Any, *, shuffle: bool = True, seed: int = 0, **options: Any) -> DataLoader[Any]:
        """A DataLoader of this rank's share of each step; `options` are a DataLoader's. What is left of an
        epoch in the end, less than a step, is left out of it.

        Raises:
            RefusedError: the data has not enough samples for two steps.
            RefusedError: it has no length, or options say which samples a batch has.
        """
        check_data(data, options)
        self._batches = EvenBatches(
            len(data), self._batch, self._cut, self._job.rank, shuffle=shuffle, seed=seed
        )
        check_steps(self._batches.steps, len(data), self._batch)
        if self._resumed is not None:  # a data module's, which Lightning asks for after the checkpoint
            self._batches.go_on(*self._resumed)
        return _Loader(data, batch_sampler=self._batches, **options)

    def arguments(self) -> dict[str, Any]:
        """The Trainer's arguments that follow from the nodes."""
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # one for each GPU of the node
        return {
            "devices": here,
            "num_nodes": self._job.size // here,
            "accumulate_grad_batches": self._cut.micro_batches,
            "use_distributed_sampler": False,
        }

    # what the Trainer calls

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Refuse what would train before `on_fit_start`, and weights that a checkpoint would round.

        Raises:
            RefusedError: what.
        """
        check_set_up(trainer, pl_module)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Note what its counts of batches mean."""
        warn_of_counts(epoch_figures.by_hand(trainer, pl_module, alone=tuple(self._job.sizes) == (1,)))
        plain_numbers(checkpoint)
        counts: dict[str, Any] = {"batch": self._batch, "micro_batches": self._cut.micro_batches}
        counts |= {"files": self._files.noted(trainer), "data": self._data}
        checkpoint["bftrainer"] = counts | {"figures": self._figures, "metrics": logged(trainer)}

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Go on at the same sample, and count batches as this number of nodes does.

        Raises:
            RefusedError: the checkpoint is not of this callback, or of another batch; or its training was
                over, and Lightning would not go on well.
        """
        if trainer.state.fn != "fit":  # a test of the best weights, for example
            return
        before = checkpoint.get("bftrainer")
        if before is None or before["batch"] != self._batch:
            raise RefusedError(
                OTHER_BATCH.say(before=before["batch"] if before else "unknown", now=self._batch)
            )
        weights = checkpoint.get("current_model_state", checkpoint.get("state_dict", {}))  # beside an average
        self._restored = Restored(weights, NOT_RESTORED)
        self._figures, self._logged, self._data = (before.get(k, {}) for k in ("figures", "metrics", "data"))
        self._files.resume(before.get("files"))
        self._resumed = recount(checkpoint, before["micro_batches"], self._cut.micro_batches)
        check_goes_on(trainer, *self._resumed)
        if self._batches is not None:  # before the first iterator, whose workers fetch ahead
            self._batches.go_on(*self._resumed)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse what would go wrong, and go on with random numbers of its own.

        Raises:
            RefusedError: what, and what to do instead.
        """
        check_arguments(trainer, self.arguments(), accumulates=self._accumulates)
        check_resumed(trainer, self.checkpoint)
        self._job.check_ranks(Lightning=trainer.world_size)
        check_same_start(at := step_files.step_of(self.checkpoint))
        begin_training(self._job)
        self._files.begin(trainer)
        if at:
            reseed_here(at, self._job.rank)
        if self._job.rank == 0:
            note(begun(at))

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """Take SIGTERM back from Lightning, which would have all ranks wait for a signal to rank 0."""
        self._job.listen_for_sigterm()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse data that is not shared out by `loader`, and what counts micro-batches. Take SIGTERM, too.

        Raises:
            RefusedError: what, and what to do instead.
        """
        if self._batches is None or not isinstance(trainer.train_dataloader, _Loader):
            raise RefusedError(OWN_LOADER.say())
        go_on_with(trainer, self._logged)
        check_schedulers(trainer, accumulates=self._accumulates)
        check_one_loss(trainer, pl_module, is_shared=self._accumulates or self._job.sizes[-1] > 1)
        self._data = warn_of_other_data(trainer.train_dataloader.dataset, self._data)
        warn_of_callbacks(trainer, pl_module, self._resumed, self._files.is_own)
        warn_of_parts(trainer, pl_module, accumulates=self._accumulates)
        warn_of_lengths(trainer, whole_training(trainer, pl_module, self._batches.steps))
        warn_of_validations(trainer, self._batches.steps, accumulates=self._accumulates)
        watch_batch_norm(pl_module, self._at_once)
        self._at_start = AsAtStart(pl_module)
        self._callbacks.begin(trainer.callbacks, trainer, pl_module)
        windows().know(getattr(trainer, "optimizers", ()))
        self._job.listen_for_sigterm()
        after_each_batch(pl_module, lambda batch_idx: self.after_batch(trainer, pl_module, batch_idx))

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Forget figures of the epoch before."""
        self._figures = {}

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Tell of the epoch's figures that have a part of it only."""
        warn_of_figures(trainer, self._resumed if self._job.rank == 0 else None)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Refuse weights that were changed after they had been restored, by a `RefusedError`."""
        if self._restored is not None:  # the first batch of a process that goes on
            self._restored.check_unchanged(pl_module)
            resume_windows(trainer)
        self._restored = None

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Have a step's figures be those of all its micro-batches."""
        self._step_figures.after_part(trainer, is_last=not (batch_idx + 1) % self._cut.micro_batches)

    def after_batch(self, trainer: Any, pl_module: Any, batch_idx: int) -> None:
        """After a step and all hooks at its end: report, and agree with all ranks whether to save and stop.

        Raises:
            SystemExit: all ranks have saved and must end; the code is 0.
            RefusedError: layers were frozen or unfrozen, gradients not averaged, or the ranks' weights
                differ.
        """
        check_averaged(trainer.strategy.model, pl_module)
        if self._at_start is not None and pl_module.automatic_optimization:
            self._at_start.check_frozen(pl_module)
        trainer.fit_loop._restarting = False  # else it steps no scheduler at the end of an epoch that goes on
        if self._figures:
            self._figures = epoch_figures.add(trainer, self._figures, self._job.size)
        assert self._batches is not None  # noqa: S101  see `on_train_start`
        done, rest = divmod(batch_idx + 1, self._cut.micro_batches)
        if rest:
            return
        self._callbacks.after_step()
        if isinstance(trainer.strategy.model, DistributedDataParallel):
            self._same.after_step(pl_module)
        step = (epoch := trainer.current_epoch) * self._batches.steps + done
        samples = step * self._batch
        steps = whole_training(trainer, pl_module, self._batches.steps)
        self._job.progress(
            step=step,
            samples=samples,
            epoch=epoch,
            of=None if steps is None else steps * self._batch,
            metrics=figures(trainer),
        )
        stop = self._job.should_stop(saves=self._files.are_many)
        if self._job.complete(samples):
            trainer.should_stop = True
        elif self._job.should_save() and not validates_next(
            trainer, batch_idx, self._batches.steps, self._cut.micro_batches
        ):
            self._save(trainer, step)
            if stop:
                self._job.saved(step=step, samples=samples, epoch=epoch)
                raise SystemExit(0)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report the figures of a validation."""
        if not trainer.sanity_checking:
            self._job.report(figures(trainer))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Save where all epochs are done: with more of them a run goes on there, and a start after that
        leaves `fit` at once. Where something else ended the training, such as an early stopping, Lightning
        would train for a further epoch."""
        forget(pl_module)
        self._job.report(figures(trainer))
        epoch = trainer.current_epoch
        if self._batches is not None and epoch == trainer.max_epochs and trainer.max_steps == -1:
            self._save(trainer, epoch * self._batches.steps)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Tell that the work of the spec is done, also where a start finds nothing left to do; with
        `until_exit`, the script's end does."""
        self._files.end(trainer)
        go_on_with(trainer, self._logged)  # where `fit` had nothing left to do
        if self._at_start is None:
            take_averages(trainer, pl_module)
        if self._job.samples is not None and self._batches is not None:
            step = trainer.current_epoch * self._batches.steps
            self._job.done(step=step, samples=step * self._batch, epoch=trainer.current_epoch)

    def _save(self, trainer: Any, step: int) -> None:
        """Have all ranks write a checkpoint, which counts when it is whole."""
        left = self._figures
        self._figures = left | epoch_figures.collect(trainer)
        trainer.save_checkpoint(step_files.partial(self._folder, step))
        self._figures = left
        self._job.checkpointed()
        if self._job.rank == 0:
            step_files.finish(self._folder, step)
        self._files.saved(trainer)


class _Loader(DataLoader[Any]):
    """Tells Lightning that it can go on within an epoch. Where, the callback says."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
