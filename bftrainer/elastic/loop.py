"""The elastic training loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from bftrainer.elastic.crew import MemberGroup, SingleProcess
from bftrainer.elastic.members.channel import Orders
from bftrainer.elastic.members.group import GroupBroken, lost_peer
from bftrainer.elastic.members.membership import Leave
from bftrainer.elastic.state.state import TrainingState
from bftrainer.elastic.train.average import Averaging, ByScript, Flat, Overlapped
from bftrainer.elastic.train.data import Source
from bftrainer.elastic.train.policy import FixedPerNode, Policy, overridden
from bftrainer.elastic.train.rng import reseed
from bftrainer.elastic.train.sampler import Position, Share, pieces, share
from bftrainer.elastic.train.update import Update


class Run:
    """One data-parallel training run on however many nodes it is given at the moment.

    Iterating yields this node's share of every global batch; `step` takes the place of
    `optimizer.step`: it averages the gradients over all nodes first. Between two steps the run may
    grow, shrink or move; weights, optimiser, step count and the position in the data survive in the
    memory of the members that stay, newcomers receive them. If all nodes are lost at once, the run
    goes on from its last checkpoint.

    Args:
        model: averaged over nodes by its parameters' gradients; buffers are each node's own, rank 0's
            are what newcomers and checkpoints get.
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
        self._source = Source(data, batch_size, collate, seed)
        self._policy = _policy(policy, self._source.batch_size, accumulate, orders)
        self._averaging = _averaging(model, ddp, average)
        self._epochs = 1 if epochs is None and orders is None else epochs
        self._seed = seed
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._update = Update(optimizer, scheduler, scaler, clip_norm, self._policy)
        parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "pace": self._update.pace}
        parts |= {"scheduler": scheduler} if scheduler is not None else {}
        parts |= {"scaler": scaler} if scaler is not None else {}
        self._state = TrainingState(parts)
        device = self._parameters[0].device if self._parameters else torch.device("cpu")
        streams = not self._averaging.needs_batch
        self._crew = (
            MemberGroup(orders, self._state, self._joined, streams=streams, device=device)
            if orders
            else SingleProcess(self._state, self._joined)
        )
        self._leaving = False
        self._share: Share | None = None  # of the step that is under way
        self._piece: MicroBatch | None = None  # that the script works on
        self._ahead: Iterator[Any] | None = None

    # what a script may ask

    @property
    def model(self) -> torch.nn.Module:
        """What to call in the forward pass: the model, with `ddp` wrapped."""
        return self._averaging.model

    @property
    def rank(self) -> int:
        """This node's number among those that share the samples right now."""
        place = self._crew.place
        return self._crew.group.rank if place is None else place

    @property
    def size(self) -> int:
        """The number of nodes that share the samples right now."""
        return self._crew.size

    @property
    def generation(self) -> int:
        return self._crew.group.generation

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
        return self._piece is not None and not self._piece.last

    def report(self, metrics: Mapping[str, float] | None = None, /, **more: float) -> None:
        """Report figures such as accuracy; the last of each name is what `bftrainer show` shows.

        Rank 0's count, with the step and the samples after which they are said.
        """
        self._crew.report(_figures(metrics, more), now=True)

    # the loop

    def __iter__(self) -> Iterator[Any]:
        try:
            self._crew.enter()
            while self._leaving or not (self._complete(self._state.position) and self._crew.finish()):
                if self._leaving:
                    raise Leave
                yield from self._one_step()
        except Leave:
            self._crew.leave()
        except GeneratorExit:  # the script broke out of its loop: its own end
            self._crew.broke_off()
            raise
        finally:
            self._ahead = None
            self._crew.let_go()

    def backward(self, loss: torch.Tensor) -> None:
        """`loss.backward()` for the mean loss of the present batch, scaled by the scaler, and weighed as
        one of its step's micro-batches.

        Raises:
            RuntimeError: called outside of the loop, or earlier micro-batches' gradients have been thrown
                away.
        """
        piece = self._working("backward(loss)")
        if not piece.first and all(p.grad is None for p in self._parameters):
            raise RuntimeError(
                "gradients were set to zero between micro-batches: leave zero_grad() to the run"
            )
        piece.went_backward = True
        self._update.scaled(loss * piece.weight if piece.weight != 1.0 else loss).backward()  # type: ignore[no-untyped-call]

    def step(self, metrics: Mapping[str, float] | None = None, /, **more: float) -> bool:
        """Average the gradients over all nodes and step the optimiser; to be called once per batch.

        Returns whether the step was taken: False after a micro-batch that others follow, and where a
        node was lost during the step. Nothing was changed then, and the loop yields the same samples
        again, shared out anew. `metrics` go to `bftrainer show` as those of `report` do, with the next
        progress that is told.

        Raises:
            RuntimeError: called outside of the loop or twice for one batch.
        """
        piece, self._piece = self._working("step()"), None
        if not (piece.first and piece.last) and not piece.went_backward:
            raise RuntimeError("with several micro-batches a step, say run.backward(loss): it weighs them")
        self._crew.report(_figures(metrics, more), now=False)
        if not piece.last and self._crew.group.failure is None:
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
            if self._crew.group.size == 1 or not lost_peer(error):
                raise
            self._crew.group.fail(str(error))

    def _working(self, call: str) -> MicroBatch:
        if self._piece is None:
            raise RuntimeError(f"call {call} once per batch, inside `for batch in run`")
        return self._piece

    def _one_step(self) -> Iterator[Any]:
        """Yield this rank's micro-batches of the next step."""
        if not self._crew.begin_step():
            return
        mine = self._share = self._shared(self._state.position)
        self._update.clear()
        self._averaging.begin(self._crew.group, mine.weight)
        parts = self._parts(mine)
        if not parts:
            self._averaging.absent()
            self._close_step()
        for start, stop in parts:
            last = stop == parts[-1][1]
            piece = self._piece = MicroBatch(start == parts[0][0], last, (stop - start) / (mine.size or 1))
            with self._averaging.piece(last=last):
                yield self._batch(mine, start, stop)
            if self._piece is piece:
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
            return self._state.position is mine.after

    def _take_step(self, mine: Share) -> bool:
        before = self._state.position
        try:
            self._crew.group.check()
            self._averaging.finish()
            self._crew.settle()
        except GroupBroken as error:
            self._update.clear()
            self._crew.lost(error)
            return False
        self._update.take(before.step)
        self._state.position = mine.after
        self._crew.taken(before)
        return True

    def _joined(self) -> None:
        """The run goes on from its position with other members, or with more that share the samples."""
        step = self._state.position.step
        reseed(self._seed, step, self.rank)
        self._update.rescaled(self.size, step)
        fetches = self._source.ahead and self._crew.place is not None
        self._ahead = self._source.stream(self._coming()) if fetches else None

    # what there is to train on

    def _complete(self, position: Position) -> bool:
        budget = self._crew.budget
        return (budget is not None and position.samples >= budget) or (
            self._epochs is not None and position.epoch >= self._epochs
        )

    def _shared(self, position: Position) -> Share:
        place = self._crew.place
        found = share(
            position,
            rank=place or 0,
            size=self.size,
            batch=self._policy.total(self.size),
            length=self._source.length,
            budget=self._crew.budget,
        )
        return found if place is not None else replace(found, stop=found.start)

    def _parts(self, mine: Share) -> tuple[tuple[int, int], ...]:
        """The micro-batches of a share; where there must be one, the step's last sample stands in."""
        found = pieces(mine, self.size, self._source.batch_size)
        if not found and self._averaging.needs_batch:
            return ((mine.start - 1, mine.start),)
        return found

    def _batch(self, mine: Share, start: int, stop: int) -> Any:
        if self._ahead is not None:
            return next(self._ahead)
        return self._source.fetch(self._source.indices(self._state.position.epoch, start, stop))

    def _coming(self) -> Iterator[list[int]]:
        """The indices of all micro-batches from here on, as long as the members stay the same."""
        position = self._state.position
        while not self._complete(position):
            mine = self._shared(position)
            for start, stop in self._parts(mine):
                yield self._source.indices(position.epoch, start, stop)
            position = mine.after


class MicroBatch:
    """A micro-batch that the script works on; its mean counts `weight` in the mean of the share."""

    def __init__(self, first: bool, last: bool, weight: float) -> None:
        self.first, self.last, self.weight = first, last, weight
        self.went_backward = False


def _figures(metrics: Mapping[str, float] | None, more: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in {**(metrics or {}), **more}.items()}


def _policy(given: Policy | None, batch_size: int, accumulate: int | None, orders: Orders | None) -> Policy:
    if given is not None and accumulate is not None:
        raise ValueError("accumulate and policy: with a policy, micro-batches follow from batch_size")
    if accumulate is not None and accumulate < 1:
        raise ValueError(f"accumulate {accumulate}: at least 1 micro-batch per step")
    chosen = given or FixedPerNode(batch_size * (accumulate or 1))
    return overridden(chosen, orders.batch if orders else {})


def _averaging(model: torch.nn.Module, ddp: bool | Mapping[str, Any], average: bool) -> Averaging:
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise TypeError("give the model itself and ddp=True: the run wraps it, as run.model")
    if not average and ddp is not False:
        raise ValueError("ddp averages gradients: leave average=False out")
    if not average:
        return ByScript(model)
    if ddp is False:
        return Flat(model)
    return Overlapped(model, {} if ddp is True else ddp)
