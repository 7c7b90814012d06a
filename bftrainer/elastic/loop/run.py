"""`elastic.Run`: a training script's loop on however many nodes it has at the moment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch

from bftrainer.elastic.loop.assembly import Agreement, Objects, Samples, Updates, assembled
from bftrainer.elastic.loop.evaluation import RunEvaluation
from bftrainer.elastic.loop.script_loop import ScriptLoop
from bftrainer.elastic.loop.steps import StepTaker
from bftrainer.elastic.members.patience import TIMEOUT_S
from bftrainer.elastic.partial.options import Partial
from bftrainer.elastic.process.identity import Identity
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.train.policy import Policy
from bftrainer.elastic.train.schedule import Every
from bftrainer.messages.loop import NO_LENGTH

Hook = TypeVar("Hook", bound=Callable[[], object])


class Run(Identity, RunEvaluation):
    """One data-parallel training run on however many nodes it has at the moment.

    Iterating yields this node's share of every global batch; `step` takes the place of
    `optimizer.step`: it averages the gradients over all nodes first. Between two turns of the loop the run
    may grow, shrink or move. Members that stay keep weights, optimiser, step count and the position in the
    data in their memory, and newcomers receive them. If all nodes are lost at once, the run
    goes on from its last checkpoint.

    Args:
        model: its parameters' gradients are averaged over the nodes. Buffers are each node's own;
            newcomers and checkpoints get rank 0's. Several models are given by name: {"G": ..., "D": ...}.
        optimizer: stepped by `step`; several by name, stepped by `step("G")` and so on.
        data: map-style data set with a length, or an IterableDataset, or a DataLoader over one. All nodes
            must see the same data in the same order.
        batch_size: the most samples that a node computes at once; a DataLoader's own by default.
        policy: samples per step for each number of nodes, and how the learning rate follows;
            `FixedPerNode(batch_size * accumulate)` by default. A spec's key `batch` goes before it.
        accumulate: micro-batches per step where no policy is given.
        epochs: number of passes, of which one `for batch in run` makes all; None to go on until the
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
        parts: anything else that must survive, by name: objects with `state_dict` and `load_state_dict`,
            such as an average of the weights. Newcomers get a member's, and checkpoints have rank 0's.
        compare_every: steps between comparisons of the nodes' states; the trainer stops where these
            differ; 0: never.
        timeout_s: how long a node waits for another that says nothing, before it takes it for hung. Within
            `pause` and `evaluate` there is no such limit.
        may_differ: names of entries that need not be the same on all nodes, such as "model.codebook*", or
            "data set".
        least_per_worker: a step's samples go to fewer workers where a share would have fewer than these; 2 by
            default where the model has batch normalisation in training mode, else 1.
        partial: of k workers, worker j computes gradients of the last j/k of the model only: `Partial` says
            how. Experimental; a spec's key `partial` goes before it.

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
        least_per_worker: int | None = None,
        partial: Partial | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._parts = assembled(
            Objects(model, optimizer, scheduler, scaler, parts),
            Samples(data, batch_size, collate, policy, accumulate, epochs, seed, least_per_worker),
            Updates(scheduler_every, clip_norm, ddp, average, partial),
            Agreement(compare_every, may_differ, timeout_s),
            joined=lambda: self._steps.joined(),  # noqa: PLW0108  there is none yet
        )
        self._orders, self._steps = self._parts.orders, StepTaker(self._parts)
        self._loop = ScriptLoop(self._parts, self._steps)

    @property
    def model(self) -> torch.nn.Module:
        """Model to call in the forward pass: the model, with `ddp` wrapped; of several, `run.model["G"]`."""
        return self._parts.averaging.model

    @property
    def rank(self) -> int:
        """This worker's number, from 0, among those that share the samples right now. A node runs one, or one
        for each of its GPUs."""
        self.start()
        return self._steps.rank

    @property
    def size(self) -> int:
        """The number of workers that share the samples right now."""
        self.start()
        return self._parts.peers.size

    @property
    def generation(self) -> int:
        """The number of the present membership; it grows with every change. 0 if started by hand."""
        self.start()
        return self._parts.peers.group.generation

    @property
    def position(self) -> Position:
        """Step, samples, epoch and place in it, all counted over all nodes."""
        self.start()
        return self._parts.state.position

    @property
    def weight(self) -> float:
        """Weight of the mean over this node's present batch in the mean over all nodes' batches.

        It is 0 where there are fewer samples left than nodes, and the batch is a stand-in.
        """
        turn = self._steps.turn
        return 0.0 if turn is None else turn.share.weight

    @property
    def accumulating(self) -> bool:
        """True if further micro-batches belong to the present step."""
        part = self._steps.part
        return part is not None and not part.last

    def start(self) -> Position:
        """Become a member now, before the loop, with the state that the members or a checkpoint have.

        Returns the position from which the loop will go on. The loop does it otherwise, and so does asking
        for `position`, `rank`, `size` or `generation`. Members stand still from here until the loop begins:
        do what takes time before. (Large weights reach a newcomer in the course of the loop's first steps.)

        Raises:
            SystemExit: this process must leave. Its code is 0.
        """
        self._loop.start(self)
        return self._parts.state.position

    def __iter__(self) -> Iterator[Any]:
        """Yield this node's batches until the work is done, or the script breaks out of the loop.

        Raises:
            SystemExit: this process must leave. Its code is 0.
            RuntimeError: the script did not call `step` once for each batch, or restarts a loop that is over.
        """
        return self._loop.turns(self)

    def backward(self, loss: torch.Tensor, which: str | None = None) -> None:
        """`loss.backward()` for the mean loss of the present batch, scaled by the scaler, and weighed as
        one of its step's micro-batches. Of several optimisers, `which` names the one whose parameters get
        gradients; those of the others stay as they are.

        Raises:
            RuntimeError: called outside of the loop, or the script has thrown away the gradients of earlier
                micro-batches, or left others behind where a step has several.
            ValueError: several optimisers and no name of one.
        """
        self._steps.backward(loss, which)

    def step(
        self,
        which: str | Mapping[str, float] | None = None,
        metrics: Mapping[str, float] | None = None,
        /,
        **more: float,
    ) -> bool:
        """Average the gradients over all nodes and step the optimiser; to be called once per batch. With
        several optimisers, `which` is the name of one; call it once for each to be stepped.

        Returns whether the step was taken: False after a micro-batch that others follow, and where a
        node was lost during the step. Nothing was changed then, and the loop yields the same samples
        again, redistributed. (With several optimisers, those that had their step keep it, and this is
        False for them then.) `metrics` go to `bftrainer show` like those of `report`, but only with the
        next report of progress.

        Raises:
            RuntimeError: called outside of the loop, twice for one batch, or without `backward` where a step
                has several micro-batches. Or the script has changed gradients since the backward pass.
            ValueError: several optimisers and no name of one.
        """
        if which is not None and not isinstance(which, str):
            which, metrics = None, which
        return self._steps.step(which, figures(metrics, more))

    def stop(self) -> None:
        """End the run on all nodes: at once where an epoch ends, else after the next step at the latest. The
        work counts as done.

        One node's call suffices; so early stopping needs no agreement of its own.
        """
        self._parts.peers.stop()

    def report(self, metrics: Mapping[str, float] | None = None, /, **more: float) -> None:
        """Report figures such as accuracy; the last of each name is what `bftrainer show` shows.

        They are stored with the step and the samples reached now. Only rank 0's count.
        """
        self._parts.peers.report(figures(metrics, more), now=True)

    def after_step(self, hook: Hook) -> Hook:
        """Have `hook()` called after every step that is taken, on every node that has the state.

        So it is called as often on every node: also on a node for which a step had no samples, and whose
        loop's body did not run. Use it for what follows the weights, such as an average of them. It may be
        used as a decorator.
        """
        self._steps.hooks.append(hook)
        return hook

    def after_epoch(self, hook: Hook) -> Hook:
        """Have `hook()` called after every step that ends an epoch, as `after_step` does."""
        self._steps.epoch_hooks.append(hook)
        return hook

    def together(self) -> contextlib.AbstractContextManager[None]:
        """Around the script's own collectives, in `torch.distributed`'s default group.

        If a node is lost in it the block is left, `step` returns False, and the batch comes again. Where a
        step has been taken already, as in hooks, no batch could come again: the process ends then, for
        another to begin from a whole state.
        """
        return self._steps.together()

    def __len__(self) -> int:
        """The batches that the loop has yet to yield on this node, as long as there are as many nodes: of all
        epochs, from where training stands. It is another number after a change of nodes. Like asking for
        `position`, it has this process become a member.

        Raises:
            TypeError: that is not known: data is a stream, or nothing says when the run ends.
        """
        left = self._parts.batches.left(self.position)
        if left is None:
            raise TypeError(NO_LENGTH.say())
        return left

    def __bool__(self) -> bool:
        """True: a run is no container that may be empty."""
        return True


def figures(metrics: Mapping[str, float] | None, more: Mapping[str, float]) -> dict[str, float]:
    """A script's report, as one mapping."""
    return {name: _number(value) for name, value in {**(metrics or {}), **more}.items()}


def _number(value: Any) -> float:
    """It may be a loss as it is, which has a gradient."""
    return float(value.detach() if isinstance(value, torch.Tensor) else value)
