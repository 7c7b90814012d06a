"""Hugging Face's Trainer on nodes that come and go: a callback that saves, stops, resumes and reports.

    elastic = ElasticCallback()                       # before anything that takes long
    args = TrainingArguments(output_dir=elastic.output_dir, **elastic.batch(48, at_most=16), ...)
    trainer = Trainer(model, args, train_dataset=..., callbacks=[elastic])
    trainer.train(resume_from_checkpoint=elastic.checkpoint)

The spec says `launcher: torchrun`. Hugging Face counts epochs in steps. So a step must have as many samples
on any number of nodes, or epochs come out wrong after a change of nodes: `batch` sees to that, and the
callback refuses arguments with which it would not be so.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from bftrainer.elastic.attach.checkpoints import begin_training
from bftrainer.elastic.attach.collectives import check_same_start, highest
from bftrainer.elastic.attach.job import attach
from bftrainer.elastic.attach.step_files import check_no_strangers
from bftrainer.elastic.frameworks.batch_norm import watch_batch_norm
from bftrainer.elastic.frameworks.data_check import warn_of_other_data
from bftrainer.elastic.frameworks.fixed_batch import at_once, check_even, cut
from bftrainer.elastic.frameworks.huggingface import checkpoints
from bftrainer.elastic.frameworks.huggingface.arguments import (
    check_arguments,
    check_data,
    warn_of_filled_up,
)
from bftrainer.elastic.frameworks.huggingface.ended import EndedTraining, noted
from bftrainer.elastic.frameworks.huggingface.loss_by_items import (
    check_function_by_items,
    check_smoothing_by_items,
    trainers_of,
    watch_first_loss,
    watch_masked_labels,
    watch_own_loss,
)
from bftrainer.elastic.frameworks.huggingface.order import begin_epoch, length_of, order_of
from bftrainer.elastic.frameworks.huggingface.running_loss import RunningLoss
from bftrainer.elastic.frameworks.model_check import AsAtStart, Restored
from bftrainer.elastic.frameworks.own_callbacks import OwnCallbacks
from bftrainer.elastic.frameworks.replica_check import SameWeights
from bftrainer.elastic.process.refusal import RefusedError
from bftrainer.elastic.process.rng import reseed_here
from bftrainer.elastic.process.warnings import begun, note, note_warning
from bftrainer.messages.commands.lines import NOT_INSTALLED
from bftrainer.messages.huggingface import (
    CALLBACK_KEEPS,
    JIT_CHECKPOINT,
    NOT_IN_TRAINER,
    OTHER_BATCH,
    OTHER_BATCHES,
    OUTPUT_DIR,
    RESUME,
    STREAM_DRAWS,
    STREAM_ENDED,
    WEIGHTS_APART,
)

try:
    from transformers import Trainer, TrainerCallback
    from transformers.trainer_pt_utils import LabelSmoother

    from bftrainer.elastic.frameworks.huggingface import resume as resumed
except ImportError as error:
    raise ImportError(
        NOT_INSTALLED.say(
            what=f"bftrainer.elastic.huggingface ({error})",
            package="transformers with accelerate",
            how="pip install transformers accelerate",
        )
    ) from error


class ElasticCallback(TrainerCallback):  # type: ignore[misc]  # transformers need not be installed
    """Give it to the Trainer, and its `output_dir`, `batch` and `checkpoint` to arguments and `train`.

    It has all ranks write a checkpoint every `checkpoint.every_s` of the spec, and when nodes join or leave.
    After the latter it ends the process: what follows `train` runs only when the training is done.

    Args:
        output_dir: where checkpoints are if the script is started by hand.
    """

    def __init__(self, output_dir: str | Path = "checkpoints") -> None:
        self._job = attach(output_dir)
        self.output_dir = str(self._job.checkpoint_dir)
        check_no_strangers(Path(self.output_dir))
        if self._job.rank == 0 and self._job.trainer:
            checkpoints.tidy(Path(self.output_dir), self._job.trainer)
        self.checkpoint = checkpoints.newest(Path(self.output_dir))
        """Checkpoint from which `train` must resume; None at the start."""
        self._cut: int | None = None  # the global batch that has been cut evenly
        self._at_once: dict[int, int] = {}
        self._is_cut = False  # in several micro-batches, where nodes are few
        self._batch = 0
        self._figures: dict[str, float] = {}
        self._leaving = self._ours = self._complete = False
        self._ended, self._loss = EndedTraining(), RunningLoss()
        self._at_start: AsAtStart | None = None
        self._restored: Restored | None = None
        self._same, self._callbacks = SameWeights(WEIGHTS_APART), OwnCallbacks(CALLBACK_KEEPS)
        self._data: dict[str, str] = {}
        self._order: int | None = None

    def batch(self, total: int, *, at_most: int | None = None) -> dict[str, int]:
        """The arguments with which a step has `total` samples on any number of nodes that the spec allows, in
        micro-batches of at most `at_most` samples.

        Raises:
            RefusedError: a number of nodes that the spec allows does not divide `total`.
        """
        check_even(total, self._job.sizes)
        samples, parts = cut(total, self._job.size, at_most)
        self._cut, self._at_once = total, at_once(total, self._job.sizes, at_most)
        self._is_cut = cut(total, self._job.sizes[0], at_most).micro_batches > 1
        return {"per_device_train_batch_size": samples, "gradient_accumulation_steps": parts}

    # what the Trainer calls

    def on_init_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Have the Trainer restore its callbacks from checkpoints, too, such as the patience of an early
        stopping: by default every process would reset them. And have it evaluate alike on any number
        of nodes."""
        args.restore_callback_states_from_checkpoint = True
        resumed.take_over(self)

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Refuse arguments that would go wrong, and listen for SIGTERM.

        Raises:
            RefusedError: which ones, and what to give instead.
        """
        self._job.listen_for_sigterm()  # frameworks take the signal for themselves
        self._job.check_ranks()  # accelerate's, too
        self._batch = _global_batch(args, self._job.size)
        self._require(args, state, given.get("train_dataloader"))
        if (model := given.get("model")) is not None:
            check_function_by_items(Trainer, self)
            watch_own_loss(Trainer, self, is_cut=self._is_cut, is_shared=self._job.sizes[-1] > 1)
            watch_masked_labels(Trainer, self, self._at_once)
            if getattr(args, "label_smoothing_factor", 0):
                check_smoothing_by_items(LabelSmoother, model)
            if not getattr(args, "torch_compile", False):  # which would compile the watching, too
                watch_first_loss(model)
                watch_batch_norm(model, self._at_once)
            self._at_start = AsAtStart(model)
        check_same_start(state.global_step)
        before = checkpoints.mark_of(Path(self.checkpoint)) if self.checkpoint else {}
        self._ended = EndedTraining(state, before)
        trainer = next((each for each in trainers_of(Trainer, self) if each.state is state), None)
        self._callbacks.begin(resumed.without_state(trainer), trainer, given.get("model"))
        self._loss = RunningLoss(trainer, before.get("loss"), is_over=self._ended.is_so)
        loader = given.get("train_dataloader")
        self._data = warn_of_other_data(getattr(loader, "dataset", None), before.get("data", {}))
        self._order = order_of(loader, before.get("order"))
        begin_training(self._job)
        if state.global_step:
            # the Trainer restores them on as many nodes only; it has all ranks begin with the same
            reseed_here(state.global_step, rank=0)
            args.eval_on_start = False  # it was, and an early stopping would count each start
        self._restored = resumed.restored(self.checkpoint)
        if self._job.rank == 0:
            note(begun(state.global_step))
            if resumed.order_differs(loader):
                note_warning(STREAM_DRAWS.say())

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Refuse weights that have been changed since they were restored, by a `RefusedError`."""
        if self._restored is not None and "model" in given:
            self._restored.check_complete(given["model"])
            self._restored.check_unchanged(given["model"])
        self._restored = None
        self._ended.before_step(given.get("model"))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Hugging Face takes a step more from a checkpoint of the very end: see `EndedTraining`."""
        self._ended.before_update(given["model"])

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Report, and agree with all ranks whether to save and to stop.

        Raises:
            RefusedError: layers were frozen or unfrozen while the script trained, or the ranks' weights
                are not the same.
        """
        if self._at_start is not None:
            self._at_start.check_frozen(given["model"])
        if _is_whole_on_each(args):
            self._same.after_step(given["model"])
        self._callbacks.after_step()
        self._ended.after_step(state, control)
        loader = given.get("train_dataloader")
        samples = self._samples(state.global_step, loader)
        self._job.progress(
            step=state.global_step,
            samples=samples,
            epoch=int(state.epoch or 0),
            of=self._samples(state.max_steps, loader),
            metrics=self._figures,
        )
        over = state.global_step >= state.max_steps or self._ended.is_so
        if self._job.complete(samples) and not over:
            control.should_training_stop = over = self._complete = True
        stop = self._job.should_stop()
        self._leaving = stop and not over
        if over or self._ends_epoch(state, loader):
            return  # the epoch's evaluation and what other callbacks do comes first: see `on_epoch_end`
        if (self._job.should_save() or stop) and not control.should_save:
            control.should_save = self._ours = True  # `on_save` ends the process, after an evaluation

    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Mark a checkpoint as whole once all ranks have written their part, or raise `RefusedError`: it
        lacks weights under the names that the model has."""
        highest([0])
        self._job.checkpointed()
        loss = self._loss.noted()
        if self._job.rank == 0:
            folder = Path(self.output_dir, f"checkpoint-{state.global_step}")
            resumed.check_whole(folder, given.get("model"))
            mark = {"global_batch": self._batch, "ours": self._ours, "data": self._data}
            mark |= {"order": self._order, "loss": loss}
            mark |= noted(state, is_stopped=control.should_training_stop and not self._complete)
            checkpoints.mark(folder, mark)
            checkpoints.prune(Path(self.output_dir), state.best_model_checkpoint)
        self._ours = False
        if self._leaving and not self._ends_epoch(state, given.get("train_dataloader")):
            control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Within an epoch: end the process if its node is wanted or others join. After an epoch: have the
        Trainer save after the epoch's evaluation, if that is due.

        Raises:
            SystemExit: then; the code is 0.
            RefusedError: a stream of unknown length has come to its end, before the training has.
        """
        loader = given.get("train_dataloader")
        if self._leaving and not self._ends_epoch(state, loader):
            self._leave(state, loader)
        if self._ended.is_so:
            self._ended.leave_out(control)
            return
        over = control.should_training_stop or state.global_step >= state.max_steps
        if not over and length_of(loader) is None:
            raise RefusedError(STREAM_ENDED.say(step=state.global_step, most=state.max_steps))
        if (self._job.should_save() or over) and not control.should_save:
            control.should_save = self._ours = True

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """End the process that was to end after the last step of the epoch before, or begin its order.

        Raises:
            SystemExit: then; the code is 0.
        """
        loader = given.get("train_dataloader")
        if self._leaving:
            self._leave(state, loader)
        begin_epoch(loader, int(state.epoch or 0))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **given: Any) -> None:
        """Report the figures that the Trainer logs."""
        numbers = {name: value for name, value in (logs or {}).items() if isinstance(value, int | float)}
        self._figures |= numbers
        self._job.report(numbers)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Tell that the work of the spec is done; with `until_exit`, the script's end does."""
        if self._job.samples is not None:
            samples = self._samples(state.global_step, given.get("train_dataloader"))
            self._job.done(step=state.global_step, samples=samples, epoch=int(state.epoch or 0))

    # what it needs for that

    def _leave(self, state: Any, loader: Any) -> None:
        samples = self._samples(state.global_step, loader)
        self._job.saved(step=state.global_step, samples=samples, epoch=int(state.epoch or 0))
        raise SystemExit(0)

    def _samples(self, steps: int, loader: Any) -> int:
        """The samples of `steps` steps over all nodes. The last step of an epoch has what is left of it."""
        length = length_of(loader)
        if length is None:
            return int(steps * self._batch)
        epochs, steps = divmod(steps, math.ceil(length / self._batch))
        return int(epochs * length + min(steps * self._batch, length))

    def _ends_epoch(self, state: Any, loader: Any) -> bool:
        length = length_of(loader)
        return length is not None and not state.global_step % math.ceil(length / self._batch)

    def _require(self, args: Any, state: Any, loader: Any) -> None:
        fewest, most = self._job.nodes
        if fewest != most and self._cut != self._batch:
            raise RefusedError(OTHER_BATCHES.say(batch=self._batch, size=self._job.size))
        check_arguments(args, is_fixed=fewest == most)
        check_data(args, loader, self._batch, is_fixed=fewest == most)
        if fewest != most and self._job.rank == 0:
            warn_of_filled_up(loader, self._batch)
        if not args.restore_callback_states_from_checkpoint:
            raise RefusedError(NOT_IN_TRAINER.say())
        if getattr(args, "enable_jit_checkpoint", False):
            raise RefusedError(JIT_CHECKPOINT.say())
        if Path(args.output_dir).absolute() != Path(self.output_dir).absolute():
            raise RefusedError(OUTPUT_DIR.say(given=args.output_dir))
        self._check_resumed(state)

    def _check_resumed(self, state: Any) -> None:
        if self.checkpoint is None:
            return
        if Path(self.checkpoint).name != f"checkpoint-{state.global_step}":
            raise RefusedError(RESUME.say(checkpoint=self.checkpoint))
        before = checkpoints.mark_of(Path(self.checkpoint))["global_batch"]
        if before != self._batch:
            raise RefusedError(OTHER_BATCH.say(checkpoint=self.checkpoint, before=before, now=self._batch))


def _is_whole_on_each(args: Any) -> bool:
    """True if each of several ranks has the whole model, not a shard of it."""
    kind = getattr(getattr(args, "distributed_state", None), "distributed_type", None)
    return getattr(kind, "name", "").startswith("MULTI_")


def _global_batch(args: Any, size: int) -> int:
    """The samples of a step, over all nodes."""
    return int(args.per_device_train_batch_size * args.gradient_accumulation_steps * size)
