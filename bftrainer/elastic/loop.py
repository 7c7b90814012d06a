"""The elastic training loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.utils.data import default_collate

from bftrainer.elastic.channel import Orders
from bftrainer.elastic.checkpoint import Checkpoints
from bftrainer.elastic.group import Group, GroupBroken
from bftrainer.elastic.membership import Leave, Membership
from bftrainer.elastic.sampler import Position, Share, share
from bftrainer.elastic.state import Stateful, TrainingState

REPORT_EVERY_S = 0.5


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
        dataset: map-style, with a length. All nodes must see the same data in the same order.
        batch_size: samples per node and step; the global batch grows with the nodes.
        epochs: end after so many passes; None to go on until the spec's samples are done.
        seed: of the epochs' permutations.
        scheduler: a learning-rate scheduler, stepped after every step.
        collate: makes a batch from a list of samples, as for a DataLoader.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: Any,
        *,
        batch_size: int,
        epochs: int | None = None,
        seed: int = 0,
        scheduler: Any = None,
        collate: Callable[[list[Any]], Any] = default_collate,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size {batch_size}: at least 1")
        if len(dataset) < 1:
            raise ValueError("the data set is empty")
        self._orders = Orders.from_environment()
        self._budget = self._orders.samples if self._orders else None
        if epochs is None and self._orders is None:
            epochs = 1
        self._optimizer, self._scheduler, self._dataset = optimizer, scheduler, dataset
        self._batch, self._epochs, self._seed, self._collate = batch_size, epochs, seed, collate
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        parts: dict[str, Stateful] = {"model": model, "optimizer": optimizer}
        if scheduler is not None:
            parts["scheduler"] = scheduler
        self._state = TrainingState(parts)
        self._has_state = False
        self._membership = Membership(self._orders) if self._orders else None
        self._checkpoints = Checkpoints(self._orders.checkpoint_dir) if self._orders else None
        self._group = Group(0, 0, 1)
        self._is_broken = False
        self._leaving = False
        self._share: Share | None = None
        self._flag: Any = None
        self._permutation: tuple[int, torch.Tensor] = (-1, torch.empty(0))
        self._step_done_at = self._reported_at = self._saved_at = time.monotonic()
        self._reported: Position | None = None
        self._metrics: dict[str, float] = {}

    # what a script may ask

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def size(self) -> int:
        """The number of nodes right now."""
        return self._group.size

    @property
    def generation(self) -> int:
        return self._group.generation

    @property
    def position(self) -> Position:
        """Step, samples, epoch and place in it, all counted over all nodes."""
        return self._state.position

    def report(self, **metrics: float) -> None:
        """Report figures such as accuracy; the last of each name is what `bftrainer show` shows."""
        self._metrics |= {name: float(value) for name, value in metrics.items()}
        if self._membership is not None and self._group.rank == 0:
            self._membership.channel.send("metrics", generation=self.generation, metrics=self._metrics)

    # the loop

    def __iter__(self) -> Iterator[Any]:
        try:
            self._enter()
            while self._leaving or not (self._complete() and self._finish()):
                if self._leaving:
                    raise Leave
                yield from self._one_step()
        except Leave:
            self._leave()
        except GeneratorExit:  # the script broke out of its loop: its own end
            if self._membership is not None and self._budget is None:
                self._save_now()
                self._say("finished")
            raise

    def step(self, **metrics: float) -> bool:
        """Average the gradients over all nodes and step the optimiser.

        `metrics` are shown in `bftrainer show`; rank 0's count. Returns False where a node was lost
        during the step: nothing was changed then, and the loop yields the same samples again, shared
        out anew.

        Raises:
            RuntimeError: called outside of the loop or twice for one batch.
        """
        if self._share is None:
            raise RuntimeError("call step() once per batch, inside `for batch in run`")
        mine, self._share = self._share, None
        try:
            return self._take_step(mine, metrics)
        except Leave:  # let the script finish this turn of its loop first
            self._leaving = True
            return self._state.position is mine.after

    def _take_step(self, mine: Share, metrics: dict[str, float]) -> bool:
        try:
            self._average(mine)
        except GroupBroken as error:
            self._optimizer.zero_grad()
            self._broken(error)
            return False
        self._optimizer.step()
        if self._scheduler is not None:
            self._scheduler.step()
        committed, self._state.position = self._state.position, mine.after
        self._step_done_at = time.monotonic()
        self._metrics |= {name: float(value) for name, value in metrics.items()}
        self._housekeep(mine.after if self._group.size == 1 else committed)
        self._switch_if_agreed()
        return True

    def _one_step(self) -> Iterator[Any]:
        position = self._state.position
        mine = share(
            position,
            rank=self._group.rank,
            size=self._group.size,
            batch=self._batch,
            length=len(self._dataset),
            budget=self._budget,
        )
        self._share = mine
        self._begin_flag()
        if mine.size == 0:  # fewer samples left than nodes: help averaging, without a batch
            self._optimizer.zero_grad()
            self.step()
            return
        yield self._fetch(self._order(position.epoch)[mine.start : mine.stop])
        if self._share is not None:
            raise RuntimeError("the loop went on without run.step(); call it once per batch")

    def _complete(self) -> bool:
        position = self._state.position
        return (self._budget is not None and position.samples >= self._budget) or (
            self._epochs is not None and position.epoch >= self._epochs
        )

    def _order(self, epoch: int) -> torch.Tensor:
        if self._permutation[0] != epoch:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
            self._permutation = (epoch, torch.randperm(len(self._dataset), generator=generator))
        return self._permutation[1]

    def _fetch(self, indices: torch.Tensor) -> Any:
        if isinstance(self._dataset, torch.utils.data.TensorDataset):
            return self._dataset[indices]
        many = getattr(self._dataset, "__getitems__", None)
        chosen = indices.tolist()
        return self._collate(many(chosen) if many else [self._dataset[i] for i in chosen])

    # one step together

    def _begin_flag(self) -> None:
        """Start to exchange which generation everybody could switch to; overlaps with the step."""
        if self._membership is None:
            return
        offer = self._membership.offer(self._group.generation)
        flag = torch.tensor([offer, -offer], dtype=torch.int64)
        try:
            self._flag = (flag, self._group.begin_all_reduce(flag, dist.ReduceOp.MIN))
        except GroupBroken:
            self._flag = None  # the gradients' exchange will fail as well and be handled

    def _average(self, mine: Share) -> None:
        """Replace every gradient by its mean over the global batch.

        A parameter that has no gradient anywhere keeps none: a count per parameter travels along.
        """
        if self._group.size == 1:
            return
        weight = mine.size / mine.total
        double = any(p.dtype is torch.float64 for p in self._parameters)
        kind = torch.float64 if double else torch.float32
        parts = []
        for p in self._parameters:
            if p.grad is None:
                parts.append(torch.zeros(p.numel(), dtype=kind))
            else:
                parts.append(p.grad.detach().reshape(-1).to("cpu", kind) * weight)
        parts.append(torch.tensor([float(p.grad is not None) for p in self._parameters], dtype=kind))
        flat = torch.cat(parts)
        self._group.all_reduce(flat)
        present = flat[-len(self._parameters) :]
        start = 0
        for p, there in zip(self._parameters, present.tolist(), strict=True):
            mean = flat[start : start + p.numel()].view_as(p).to(p.device, p.dtype)
            start += p.numel()
            if there:
                p.grad = mean

    def _switch_if_agreed(self) -> None:
        """Change generation if all members offered the same newer one at the start of this step."""
        if self._membership is None or self._flag is None:
            return
        (flag, pending), self._flag = self._flag, None
        try:
            pending.wait()
            lowest, highest = int(flag[0]), -int(flag[1])
            if lowest == highest > self._group.generation:
                self._join(self._membership.switch(lowest))
        except GroupBroken as error:
            self._broken(error)

    # changing membership

    def _enter(self) -> None:
        """Report ready and wait to become a member; alone and by hand, there is nobody to ask."""
        if self._membership is None:
            self._has_state = True
            return
        self._membership.channel.start()
        self._membership.channel.send("ready")
        self._step_done_at = time.monotonic()
        self._rejoin()

    def _broken(self, error: GroupBroken) -> None:
        """The group is of no use any more: wait for the next one, however often it takes."""
        assert self._membership is not None  # noqa: S101  without agents there are no peers to lose
        self._flag = self._share = None
        self._is_broken = True
        generation = self._group.generation
        self._group.close()
        self._membership.channel.send("broken", generation=generation, reason=str(error)[:300])
        self._rejoin()

    def _rejoin(self) -> None:
        assert self._membership is not None  # noqa: S101
        seen = self._group.generation
        while True:
            group = self._membership.next(seen)
            seen = group.generation
            try:
                self._join(group)
                return
            except GroupBroken as error:
                group.close()
                self._membership.channel.send("broken", generation=seen, reason=str(error)[:300])

    def _join(self, group: Group) -> None:
        """Enter a group: find out who has the latest state and hand it to whoever has not."""
        assert self._membership is not None  # noqa: S101
        survivor = self._has_state
        old, self._group = self._group, group
        old.close()
        steps = torch.zeros(group.size, dtype=torch.int64)
        steps[group.rank] = self._state.position.step + 1 if self._has_state else 0
        group.all_reduce(steps)
        latest, source = int(steps.max()), int(steps.argmax())
        if latest == 0:  # nobody remembers: rank 0 reads the checkpoint, or starts anew
            source = 0
            if group.rank == 0:
                self._resume()
        lacking = int(steps[group.rank]) < latest or latest == 0
        if group.size > 1 and bool((steps < max(latest, 1)).any()):
            mine = group.rank == source
            self._has_state = self._has_state and not (lacking and not mine)
            self._state.transfer(group, source, receive=lacking and not mine)
        self._has_state, self._is_broken = True, False
        now = time.monotonic()
        self._membership.channel.send(
            "joined",
            generation=group.generation,
            step=self._state.position.step,
            size=group.size,
            survivor=survivor,
            pause_s=now - self._step_done_at,
        )
        self._step_done_at = self._reported_at = now
        self._reported = None

    def _resume(self) -> None:
        snapshot = self._checkpoints.load() if self._checkpoints else None
        if snapshot is not None:
            self._state.restore(snapshot)

    def _leave(self) -> NoReturn:
        """Not wanted any more. If nobody stays, rank 0 writes the state down; of a broken group, who is
        left, since rank 0 may be what broke it. The script ends here."""
        if self._membership is not None:
            last = self._membership.dissolved and self._has_state
            if last and (self._group.rank == 0 or self._is_broken):
                self._save_now()
            self._say("left")
        raise SystemExit(0)

    def _finish(self) -> bool:
        """The work is done: rank 0 writes the final state, and all agree that it is written."""
        if self._membership is None:
            return True
        if self._group.rank == 0:
            self._save_now()
        try:
            self._group.all_reduce(torch.zeros(1))
        except GroupBroken as error:
            self._broken(error)
            return False
        self._say("finished")
        return True

    # what goes on besides

    def _housekeep(self, committed: Position) -> None:
        """Rank 0 reports the last step that all members have taken, and writes checkpoints."""
        if self._membership is None or self._group.rank != 0:
            return
        now = self._step_done_at
        if now - self._reported_at >= REPORT_EVERY_S:
            self._report(committed, now)
        assert self._checkpoints is not None and self._orders is not None  # noqa: S101
        if now - self._saved_at >= self._orders.checkpoint_every_s and not self._checkpoints.busy:
            self._checkpoints.save_in_background(self._state.snapshot(), self._group.generation)
            self._saved_at = now

    def _report(self, committed: Position, now: float) -> None:
        assert self._membership is not None and self._checkpoints is not None  # noqa: S101
        rate = None
        if self._reported is not None:
            rate = (committed.samples - self._reported.samples) / (now - self._reported_at)
        self._membership.channel.send(
            "progress",
            generation=self._group.generation,
            size=self._group.size,
            step=committed.step,
            samples=committed.samples,
            epoch=committed.epoch,
            rate=rate,
            metrics=self._metrics,
            problem=self._checkpoints.error,
        )
        self._reported, self._reported_at = committed, now

    def _save_now(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.finish()
            self._checkpoints.save(self._state.snapshot(), self._group.generation)

    def _say(self, kind: str) -> None:
        """Tell the agent about an end, with where training stands."""
        assert self._membership is not None  # noqa: S101
        position = self._state.position
        self._membership.channel.send(
            kind,
            generation=self._group.generation,
            step=position.step,
            samples=position.samples,
            epoch=position.epoch,
            metrics=self._metrics,
        )
