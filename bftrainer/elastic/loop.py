"""The elastic training loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from bftrainer.elastic import counted, warned
from bftrainer.elastic.begin_anew import begin_anew
from bftrainer.elastic.member_group import peers_of
from bftrainer.elastic.members.channel import Orders
from bftrainer.elastic.members.group import lost_peer
from bftrainer.elastic.members.membership import Leave
from bftrainer.elastic.members.patience import TIMEOUT_S, Patience
from bftrainer.elastic.state import parts as own_parts
from bftrainer.elastic.state.compare import Comparison
from bftrainer.elastic.state.state import STEPPED, TrainingState
from bftrainer.elastic.state.unsaved_buffers import PART as UNSAVED
from bftrainer.elastic.state.unsaved_buffers import UnsavedBuffers
from bftrainer.elastic.steps import Steps
from bftrainer.elastic.train import average as averaging
from bftrainer.elastic.train import policy as policies
from bftrainer.elastic.train import same_data, same_settings
from bftrainer.elastic.train.loss import TOLD, is_sum
from bftrainer.elastic.train.modes import PART as MODES
from bftrainer.elastic.train.modes import Modes
from bftrainer.elastic.train.own_gradients import CHANGED, LEFT, OwnGradients
from bftrainer.elastic.train.policy import Policy
from bftrainer.elastic.train.schedule import Every, Schedule
from bftrainer.elastic.train.stopped import PART as STOPPED
from bftrainer.elastic.train.stopped import Stopped
from bftrainer.elastic.train.streamed import batches_of, opened, passes
from bftrainer.elastic.train.trainable import PART as TRAINABLE
from bftrainer.elastic.train.trainable import Trainable
from bftrainer.elastic.train.trained import trained
from bftrainer.elastic.train.turn import Stepped
from bftrainer.elastic.train.update import Update
from bftrainer.elastic.view import figures


class Run(Steps):
    """One data-parallel training run on however many nodes it has at the moment.

    Iterating yields this node's share of every global batch; `step` takes the place of
    `optimizer.step`: it averages the gradients over all nodes first. Between two turns of the loop the run
    may grow, shrink or move; weights, optimiser, step count and the position in the data survive in the
    memory of the members that stay, and newcomers receive them. If all nodes are lost at once, the run
    goes on from its last checkpoint.

    Args:
        model: its parameters' gradients are averaged over the nodes. Buffers are each node's own;
            newcomers and checkpoints get rank 0's. Several models are given by name: {"G": ..., "D": ...}.
        optimizer: stepped by `step`; several by name, stepped by `step("G")` and so on.
        data: map-style data set with a length, or an IterableDataset, or a DataLoader over one. All nodes
            must see the same data in the same order.
        batch_size: the most samples that a node computes at once; a DataLoader's own by default.
        policy: how many samples a step takes on so many nodes, and how the learning rate follows;
            `FixedPerNode(batch_size * accumulate)` by default. A spec's key `batch` goes before it.
        accumulate: micro-batches per step where no policy is given.
        epochs: end after so many passes, of which one `for batch in run` makes all; None to go on until the
            spec's samples are done, or the script stops the run; by hand, None is one pass.
        seed: of the epochs' permutations and of every rank's random numbers.
        scheduler: a learning-rate scheduler; of several optimisers by their names.
        scheduler_every: "step" (as by default) or "epoch": when the scheduler is stepped.
        scaler: a GradScaler, for mixed precision.
        clip_norm: the averaged gradient's norm is cut to this, of several optimisers each one's.
        ddp: exchange gradients during the backward pass, with DistributedDataParallel; a mapping gives
            it options, such as {"bucket_cap_mb": 50}. Call `run.model` then in the forward pass.
        average: False if the script averages gradients by itself, see `together`.
        collate: makes a batch from a list of samples, as for a DataLoader.
        parts: anything else that has to survive, by name: objects with `state_dict` and `load_state_dict`,
            such as an average of the weights. Newcomers get a member's, and checkpoints have rank 0's.
        compare_every: after so many steps the nodes compare their states, and stop the trainer where they
            differ; 0: never.
        timeout_s: how long a node waits for another that says nothing, before it takes it for hung. Within
            `pause` and `evaluate` there is no such limit.
        may_differ: names of entries that need not be the same on all nodes, such as "model.codebook*", or
            "data set".

    Raises:
        ValueError, TypeError: a combination that cannot work, with what to give instead.
    """

    def __init__(
        self,
        model: torch.nn.Module | Mapping[str, torch.nn.Module],
        optimizer: torch.optim.Optimizer | Mapping[str, torch.optim.Optimizer],
        data: Any,
        *,
        batch_size: int | None = None,
        policy: Policy | None = None,
        accumulate: int | None = None,
        epochs: int | None = None,
        seed: int = 0,
        scheduler: Any = None,
        scheduler_every: Every | None = None,
        scaler: torch.amp.GradScaler | None = None,
        clip_norm: float | None = None,
        ddp: bool | Mapping[str, Any] = False,
        average: bool = True,
        collate: Callable[[list[Any]], Any] | None = None,
        parts: Mapping[str, Any] | None = None,
        compare_every: int = 100,
        may_differ: Sequence[str] = (),
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        orders = Orders.from_environment()
        source = opened(data, batch_size, collate, seed)
        policy = policies.chosen(policy, source.batch_size, accumulate, orders.batch if orders else {})
        what = trained(model, optimizer, scheduler)
        schedule = Schedule(what.schedulers, scheduler_every)
        stepped, update = Stepped(), Update(what, schedule, scaler, clip_norm, policy)
        state = {**own_parts.plain_only(what.parts()), "pace": update.pace, **own_parts.checked(parts)}
        state |= ({"scaler": scaler} if scaler else {}) | ({STEPPED: stepped} if what.is_several else {})
        number, budget = (orders.trainer, orders.samples) if orders else (0, None)
        freezing, modes = Trainable(what.models, number), Modes(what.models, number)
        stopped = Stopped(epochs, budget)
        state |= {UNSAVED: UnsavedBuffers(state), MODES: modes, STOPPED: stopped}
        state |= {TRAINABLE: freezing} if ddp is False else {}
        state |= {same_data.PART: same_data.SameData(data, number, may_differ)}
        given = {"epochs": epochs, "seed": seed, "scheduler_every": scheduler_every, "clip_norm": clip_norm}
        state |= same_settings.part_of(orders, policy, **given, average=average, ddp=ddp is not False)
        ways = averaging.chosen(what, ddp, average, freezing)
        training = TrainingState(state)
        comparison = Comparison(training, compare_every, may_differ)
        batches = batches_of(
            source, policy, epochs=passes(epochs, orders), budget=budget, stand_in=ways.needs_batch
        )
        peers = peers_of(
            orders,
            training,
            self._joined,
            streams=not ways.needs_batch,  # else a rank without samples cannot follow the others
            comparison=comparison,
            patience=Patience(timeout_s),
            stopped=stopped,
            of=batches.samples,
        )
        schedule.compare(batches.epochs, *map(batches.steps, orders.ranks if orders else (1, 1)))
        self._passes, self._loss_is_known = epochs, not average
        super().__init__(
            ways,
            training,
            peers,
            orders,
            trained=what,
            update=update,
            stepped=stepped,
            batches=batches,
            trainable=freezing,
            modes=modes,
            own_gradients=OwnGradients(is_watching=average and ddp is False, are_averaged=average),
            seed=seed,
        )

    def __iter__(self) -> Iterator[Any]:
        """Yield this node's batches until the work is done, or the script breaks out of the loop.

        Raises:
            SystemExit: this process is to leave. Its code is 0.
            RuntimeError: the script did not call `step` once for each batch, or begins anew what is over.
        """
        self._check_first()
        self._own_gradients.warn_of_hooks(self._stepped_parameters())
        try:
            if self._life != "inside":
                self._enter()
            self._is_late()
            if self._orders is not None and counted.is_enumerated(self):
                warned.warn(counted.TOLD)
            while not (self._is_over() and self._peers.finish()):
                if self._is_over():  # a member was lost as all agreed on the end: the others agree again
                    continue
                yield from self._one_step()
        except Leave:
            self._peers.leave()
        except GeneratorExit:  # the script broke out of its loop, or an error did
            self._close_turn()
            if self._turn is None or not self._turn.is_torn:
                self._peers.broke_off()
            raise
        finally:
            self._batches.stop()
            self._peers.let_go()
            self._life = "over"

    def _check_first(self) -> None:
        """Refuse a second loop where it would silently do nothing. Where the work is done, a script that has
        kept its outer loop over epochs comes to no harm."""
        if self._life != "over":
            return
        told = (
            "this run's loop is over: one `for batch in run` goes through all epochs. Give "
            "elastic.Run(epochs=...), leave the outer loop over epochs out, and put what is done at the end "
            "of each epoch into a function that you give to run.after_epoch"
        )
        if not self._is_over() or (self._passes is None and self._orders is None):
            raise RuntimeError(told)
        warned.warn(told)

    def backward(self, loss: torch.Tensor, which: str | None = None) -> None:
        """`loss.backward()` for the mean loss of the present batch, scaled by the scaler, and weighed as
        one of its step's micro-batches. Of several optimisers, `which` names the one whose parameters get
        gradients; those of the others stay as they are.

        Raises:
            RuntimeError: called outside of the loop, or the script has thrown away the gradients of earlier
                micro-batches, or left others behind where a step has several.
            ValueError: several optimisers and no name of one.
        """
        part = self._working("backward(loss)")
        name = self._trained.name(which)
        if not part.first and all(p.grad is None for p in self._trained.parameters(name)):
            raise RuntimeError(
                "gradients were set to zero between micro-batches: leave zero_grad() to the run"
            )
        if part.first and not part.went_backward and self._own_gradients.left(self._trained.parameters(name)):
            if not part.last:
                raise RuntimeError(LEFT)
            warned.warn(LEFT)
        part.went_backward = True
        if not self._loss_is_known:
            self._loss_is_known = True
            if is_sum(loss, part.stop - part.start):
                warned.warn(TOLD)
        weighed = self._update.scaled(loss * part.weight if part.weight != 1.0 else loss)
        own = self._trained.parameters(name) if self._trained.is_several else None
        weighed.backward(inputs=own)  # type: ignore[no-untyped-call]

    def step(
        self,
        which: str | Mapping[str, float] | None = None,
        metrics: Mapping[str, float] | None = None,
        /,
        **more: float,
    ) -> bool:
        """Average the gradients over all nodes and step the optimiser; to be called once per batch. With
        several optimisers, `which` is the name of one; call it once for each that is to be stepped.

        Returns whether the step was taken: False after a micro-batch that others follow, and where a
        node was lost during the step. Nothing was changed then, and the loop yields the same samples
        again, shared out anew. (With several optimisers, those that had their step keep it, and this is
        False for them then.) `metrics` go to `bftrainer show` like those of `report`, but only with the
        next report of progress.

        Raises:
            RuntimeError: called outside of the loop or twice for one batch, or without `backward` where a
                step has several micro-batches; or the script has changed gradients since the backward pass.
            ValueError: several optimisers and no name of one.
        """
        part = self._working("step()")
        if which is not None and not isinstance(which, str):
            which, metrics = None, which
        name = self._trained.name(which)
        if not (part.first and part.last) and not part.went_backward:
            raise RuntimeError("with several micro-batches a step, say run.backward(loss): it weighs them")
        if self._own_gradients.changed(self._trained.parameters(name)):
            raise RuntimeError(CHANGED)
        self._own_weights.check(name)
        self._peers.report(figures(metrics, more), now=False)
        if self._trained.is_several:
            return self._step_one_of_several(part, name)
        self._part = None
        if not part.last and self._peers.group.failure is None:
            return False
        return self._average_and_step(name) and self._advance([name])

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Around the script's own collectives, in `torch.distributed`'s default group.

        If a node is lost in it the block is left, `step` returns False, and the batch comes again. Where a
        step has been taken already, as in hooks, no batch could come again: the process ends then, for
        another to begin from a whole state.
        """
        try:
            yield
        except RuntimeError as error:
            if self._peers.group.size == 1 or not lost_peer(error):
                raise
            self._peers.group.fail(str(error))
            if self._turn is None or self._turn.is_taken:
                begin_anew(f"a node was lost in together(), after step {self._state.position.step} was taken")
