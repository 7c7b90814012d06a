"""The elastic training loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from bftrainer.elastic.member_group import peers_of
from bftrainer.elastic.members.channel import Orders
from bftrainer.elastic.members.group import GroupBroken, lost_peer
from bftrainer.elastic.members.membership import Leave
from bftrainer.elastic.state.state import TrainingState
from bftrainer.elastic.train import average as averaging
from bftrainer.elastic.train import policy as policies
from bftrainer.elastic.train.batches import Batches, MicroBatch
from bftrainer.elastic.train.data import Source
from bftrainer.elastic.train.policy import Policy
from bftrainer.elastic.train.rng import reseed
from bftrainer.elastic.train.sampler import Position, Share
from bftrainer.elastic.train.update import Update


class Run:
    """One data-parallel training run on however many nodes it has at the moment.

    Iterating yields this node's share of every global batch; `step` takes the place of
    `optimizer.step`: it averages the gradients over all nodes first. Between two steps the run may
    grow, shrink or move; weights, optimiser, step count and the position in the data survive in the
    memory of the members that stay, and newcomers receive them. If all nodes are lost at once, the run
    goes on from its last checkpoint.

    Args:
        model: its parameters' gradients are averaged over the nodes. Buffers are each node's own;
            newcomers and checkpoints get rank 0's.
        optimizer: stepped by `step`.
        data: map-style data set with a length, or a DataLoader over one. All nodes must see the same
            data in the same order.
        batch_size: the most samples that a node computes at once; a DataLoader's own by default.
        policy: how many samples a step takes on so many nodes, and how the learning rate follows;
            `FixedPerNode(batch_size * accumulate)` by default. A spec's key `batch` goes before it.
        accumulate: micro-batches per step where no policy is given.
        epochs: end after so many passes; None to go on until the spec's samples are done.
        seed: of the epochs' permutations and of every rank's random numbers.
        scheduler: a learning-rate scheduler, stepped after every step.
        scaler: a GradScaler, for mixed precision.
        clip_norm: the averaged gradient's norm is cut to this.
        ddp: exchange gradients during the backward pass, with DistributedDataParallel; a mapping gives
            it options, such as {"bucket_cap_mb": 50}. Call `run.model` then in the forward pass.
        average: False if the script averages gradients by itself, see `together`.
        collate: makes a batch from a list of samples, as for a DataLoader.

    Raises:
        ValueError, TypeError: a combination that cannot work, with what to give instead.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        data: Any,
        *,
        batch_size: int | None = None,
        policy: Policy | None = None,
        accumulate: int | None = None,
        epochs: int | None = None,
        seed: int = 0,
        scheduler: Any = None,
        scaler: torch.amp.GradScaler | None = None,
        clip_norm: float | None = None,
        ddp: bool | Mapping[str, Any] = False,
        average: bool = True,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:
        orders = Orders.from_environment()
        source = Source(data, batch_size, collate, seed)
        policy = policies.chosen(policy, source.batch_size, accumulate, orders.batch if orders else {})
        self._averaging = averaging.chosen(model, ddp, average)
        self._seed = seed
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._update = Update(optimizer, scheduler, scaler, clip_norm, policy)
        parts = {"model": model, "optimizer": optimizer, "pace": self._update.pace}
        optional = {"scheduler": scheduler, "scaler": scaler}
        self._state = TrainingState(parts | {k: part for k, part in optional.items() if part is not None})
        streams = not self._averaging.needs_batch  # else a rank without samples cannot follow the others
        self._peers = peers_of(orders, self._state, self._joined, streams=streams)
        self._batches = Batches(
            source,
            policy,
            epochs=1 if epochs is None and orders is None else epochs,
            budget=self._peers.budget,
            stand_in=self._averaging.needs_batch,
        )
        self._leaving = False
        self._share: Share | None = None  # of the step that is under way
        self._part: MicroBatch | None = None  # that the script works on

    # what a script may ask

    @property
    def model(self) -> torch.nn.Module:
        """What to call in the forward pass: the model, with `ddp` wrapped."""
        return self._averaging.model

    @property
    def rank(self) -> int:
        """This node's number, from 0, among those that share the samples right now."""
        place = self._peers.place
        return self._peers.group.rank if place is None else place

    @property
    def size(self) -> int:
        """The number of nodes that share the samples right now."""
        return self._peers.size

    @property
    def generation(self) -> int:
        """The number of the present membership; it grows with every change. 0 if started by hand."""
        return self._peers.group.generation

    @property
    def position(self) -> Position:
        """Step, samples, epoch and place in it, all counted over all nodes."""
        return self._state.position

    @property
    def weight(self) -> float:
        """What the mean over this node's present batch counts in the mean over all nodes' batches.

        It is 0 where there are fewer samples left than nodes, and the batch is a stand-in.
        """
        return 0.0 if self._share is None else self._share.weight

    @property
    def accumulating(self) -> bool:
        """Whether further micro-batches belong to the present step."""
        return self._part is not None and not self._part.last

    def report(self, metrics: Mapping[str, float] | None = None, /, **more: float) -> None:
        """Report figures such as accuracy; the last of each name is what `bftrainer show` shows.

        They are stored with the step and the samples reached now. Only rank 0's count.
        """
        self._peers.report(_figures(metrics, more), now=True)

    def __iter__(self) -> Iterator[Any]:
        """Yield this node's batches until the work is done, or the script breaks out of the loop.

        Raises:
            SystemExit: this process is to leave. Its code is 0.
            RuntimeError: the script did not call `step` once for each batch.
        """
        try:
            self._peers.enter()
            while self._leaving or not (self._batches.complete(self.position) and self._peers.finish()):
                if self._leaving:
                    raise Leave
                yield from self._one_step()
        except Leave:
            self._peers.leave()
        except GeneratorExit:  # the script broke out of its loop: its own end
            self._peers.broke_off()
            raise
        finally:
            self._batches.stop()
            self._peers.let_go()

    def backward(self, loss: torch.Tensor) -> None:
        """`loss.backward()` for the mean loss of the present batch, scaled by the scaler, and weighed as
        one of its step's micro-batches.

        Raises:
            RuntimeError: called outside of the loop, or the script has thrown away the gradients of earlier
                micro-batches.
        """
        part = self._working("backward(loss)")
        if not part.first and all(p.grad is None for p in self._parameters):
            raise RuntimeError(
                "gradients were set to zero between micro-batches: leave zero_grad() to the run"
            )
        part.went_backward = True
        self._update.scaled(loss * part.weight if part.weight != 1.0 else loss).backward()  # type: ignore[no-untyped-call]

    def step(self, metrics: Mapping[str, float] | None = None, /, **more: float) -> bool:
        """Average the gradients over all nodes and step the optimiser; to be called once per batch.

        Returns whether the step was taken: False after a micro-batch that others follow, and where a
        node was lost during the step. Nothing was changed then, and the loop yields the same samples
        again, shared out anew. `metrics` go to `bftrainer show` like those of `report`, but only with the
        next report of progress.

        Raises:
            RuntimeError: called outside of the loop or twice for one batch, or without `backward` where a
                step has several micro-batches.
        """
        part, self._part = self._working("step()"), None
        if not (part.first and part.last) and not part.went_backward:
            raise RuntimeError("with several micro-batches a step, say run.backward(loss): it weighs them")
        self._peers.report(_figures(metrics, more), now=False)
        if not part.last and self._peers.group.failure is None:
            return False
        return self._close_step()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Around the script's own collectives, in `torch.distributed`'s default group.

        If a node is lost in it the block is left, `step` returns False, and the batch comes again.
        """
        try:
            yield
        except RuntimeError as error:
            if self._peers.group.size == 1 or not lost_peer(error):
                raise
            self._peers.group.fail(str(error))

    def _working(self, call: str) -> MicroBatch:
        if self._part is None:
            raise RuntimeError(f"call {call} once per batch, inside `for batch in run`")
        return self._part

    def _one_step(self) -> Iterator[Any]:
        """Yield this rank's micro-batches of the next step."""
        if not self._peers.begin_step():
            return
        mine = self._share = self._batches.share(self.position)
        self._update.clear()
        self._averaging.begin(self._peers.group, mine.weight)
        parts = self._batches.parts(mine)
        if not parts:
            self._averaging.absent()
            self._close_step()
        for part in parts:
            self._part = part
            with self._averaging.micro_batch(last=part.last):
                yield self._batches.fetch(self.position.epoch, part)
            if self._part is part:
                raise RuntimeError("the loop went on without run.step(); call it once per batch")
            if self._share is not mine:
                return  # a node was lost

    def _close_step(self) -> bool:
        assert self._share is not None  # noqa: S101  a step is under way
        mine, self._share = self._share, None
        try:
            return self._take_step(mine)
        except Leave:  # let the script finish this turn of its loop first
            self._leaving = True
            return self.position is mine.after

    def _take_step(self, mine: Share) -> bool:
        before = self.position
        try:
            self._peers.group.check()
            self._averaging.finish()
            self._peers.settle()
        except GroupBroken as error:
            self._update.clear()
            self._peers.lost(error)
            return False
        self._update.take(before.step)
        self._state.position = mine.after
        self._peers.taken(before)
        return True

    def _joined(self) -> None:
        """The run goes on from its position with other members, or with more that share the samples."""
        step = self.position.step
        reseed(self._seed, step, self.rank)
        self._update.rescaled(self.size, step)
        self._batches.enter(self.position, self._peers.place, self.size)


def _figures(metrics: Mapping[str, float] | None, more: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in {**(metrics or {}), **more}.items()}
