"""Takes the steps of a run: each begins with all members, and after it others may come or go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from bftrainer.elastic.loop.assembly import RunParts
from bftrainer.elastic.loop.member_group import begin_anew
from bftrainer.elastic.loop.turn import Turn
from bftrainer.elastic.members.group import GroupBroken, lost_peer
from bftrainer.elastic.process import warnings
from bftrainer.elastic.process.rng import reseed
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.elastic.train.update import follow
from bftrainer.messages.loop import (
    IN_EVALUATION,
    NO_STEP,
    OUTSIDE_LOOP,
    SEVERAL_IN_PARTS,
    STEPPED_AGAIN,
    UNWEIGHED,
    ZEROED,
)

LONG_BYTES = 8 << 20
"""The gradients of smaller models take hardly longer than an agreement, which then goes along with them."""


class StepTaker:
    """Takes the steps of a run, one turn of the script's loop each."""

    def __init__(self, parts: RunParts) -> None:
        self._parts = parts
        self._peers, self._observers = parts.peers, parts.observers
        self._trained, self._update, self._averaging = parts.trained, parts.update, parts.averaging
        self.turn: Turn | None = None
        """The step that is under way."""
        self.part: MicroBatch | None = None
        """The micro-batch that the script works on."""
        self.hooks: list[Callable[[], object]] = []
        """Called after every step that this rank's state has."""
        self.epoch_hooks: list[Callable[[], object]] = []
        """Called after those that end an epoch."""
        self._is_in_hook = False
        self._has_told_of_parts = False
        self._exchanges_little = parts.trained.nbytes < LONG_BYTES
        self._trains: dict[str, bool] = {}  # whether a model was in training mode when the loop began

    @property
    def rank(self) -> int:
        """This worker's number among those that share the samples."""
        place = self._peers.place
        return self._peers.group.rank if place is None else place

    def evaluating_ranks(self) -> Sequence[int]:
        """The group's ranks that run the same part of the script now."""
        if self.turn is None:  # before the loop, or after it: no other need be there
            return ()
        working = self._peers.working
        if self._is_in_hook or self._averaging.needs_batch:
            return working
        return working[: self.turn.share.ranks]  # the body runs where there are samples

    def backward(self, loss: torch.Tensor, which: str | None) -> None:
        """See `Run.backward`."""
        part = self._working("backward(loss)")
        name = self._trained.name(which)
        own = self._trained.among(name)
        if not part.first and all(p.grad is None for p in self._trained.parameters(name)):
            raise RuntimeError(ZEROED.say())
        with self._peers.failure_told:
            self._observers.before_backward(name, part, loss)
        part.went_backward = True
        weighed = self._update.scaled(loss * part.weight if part.weight != 1.0 else loss)
        weighed.backward(inputs=own)  # type: ignore[no-untyped-call]

    def step(self, which: str | None, metrics: Mapping[str, float]) -> bool:
        """See `Run.step`."""
        with self._peers.failure_told:
            return self._step(which, metrics)

    def _step(self, which: str | None, metrics: Mapping[str, float]) -> bool:
        part = self._working("step()")
        name = self._trained.name(which)
        if not (part.first and part.last) and not part.went_backward:
            raise RuntimeError(UNWEIGHED.say())
        self._observers.before_average(name, part)
        self._peers.report(metrics, now=False)
        if self._trained.is_several:
            return self._step_one_of_several(part, name)
        self.part = None
        if not part.last and self._peers.group.failure is None:
            return False
        return self._average_and_step(name) and self._advance([name])

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """See `Run.together`."""
        try:
            yield
        except RuntimeError as error:
            if self._peers.group.size == 1 or not lost_peer(error):
                raise
            self._peers.group.fail(str(error))
            if self.turn is None or self.turn.is_taken:
                step = self._parts.state.position.step
                begin_anew(f"a node was lost in together(), after step {step} was taken")

    def one_step(self) -> Iterator[Any]:
        """Yield this rank's micro-batches of the next step; then other members may come or go."""
        parts = self._parts
        parts.modes.begin()
        self._check_mode()
        if not self._peers.begin_step():
            return
        position = parts.state.position
        turn = self.turn = Turn(parts.batches.share(position), position)
        if parts.adapting is not None:
            parts.adapting.begins(turn.share, position.step)
        self._update.clear()
        if len(self._peers.working) == self._peers.group.size:
            parts.trainable.renew()
        self._observers.step_begins(turn.share)
        works = self._peers.place is not None  # others receive the state meanwhile, buffers included
        parts.kept_buffers.begin(may_be_lost=works and self._peers.group.size > 1)
        # with more than two ranks, a broadcast's tree would make it longer than a sum
        is_single = turn.share.ranks == 1 and self._peers.group.size == 2
        only = self._peers.working[0] if is_single else None
        self._averaging.begin(self._peers.group, turn.share.weight, only)
        is_whole = False
        try:
            yield from self._parts_of(turn)
            is_whole = True
        finally:
            self._observers.step_ends(is_whole=is_whole)
        self.turn = None
        if turn.broken is not None:
            parts.kept_buffers.restore()
            self._peers.lost(turn.broken)
        else:
            self._peers.taken(turn.before)

    def close_turn(self) -> None:
        """Take the step of a run with several optimisers once the script has stepped those it wants. If an
        error came up in one of its calls, that optimiser was not: then the samples come again."""
        part, turn, self.part = self.part, self.turn, None
        if part is None or not part.last or turn is None or turn.broken is not None:
            return
        stepped = self._parts.stepped
        if 0 < turn.calls <= len(stepped.names):
            names, stepped.names = stepped.names, []
            self._advance(names)

    def joined(self) -> None:
        """The run goes on from its position with other members, or with more that share the samples."""
        parts, position = self._parts, self._parts.state.position
        reseed(parts.seed, position.step, self.rank)
        parts.trainable.renew()
        self._observers.members_changed(self._peers.size)
        if parts.adapting is not None:
            parts.adapting.joined()
        self._update.rescaled(self._peers.size, position.step)
        parts.batches.enter(position, self._peers.place, self._peers.size)

    def _working(self, call: str) -> MicroBatch:
        if self.part is None:
            raise RuntimeError(OUTSIDE_LOOP.say(call=call))
        return self.part

    def _check_mode(self) -> None:
        """Refuse to train on in evaluation mode where the loop began in training mode, as newcomers do."""
        for name, model in self._trained.models.items():
            if self._trains.setdefault(name, model.training) and not model.training:
                raise RuntimeError(IN_EVALUATION.say())

    def _parts_of(self, turn: Turn) -> Iterator[Any]:
        batches = self._parts.batches
        parts = batches.parts(turn.share)
        if not parts:
            self._averaging.absent()
            name = self._trained.name(None)
            self._average_and_step(name) and self._advance([name])
        for part in parts:
            self.part, turn.asked = part, set()
            with self._averaging.micro_batch(last=part.last):
                batch = batches.fetch(self._parts.state.position.epoch, part)
                self._observers.before_compute()
                yield batch
            self._close_part(turn, part)
            if turn.is_taken or turn.broken is not None:
                return

    def _close_part(self, turn: Turn, part: MicroBatch) -> None:
        """The script has done with a micro-batch."""
        if self.part is part and not turn.asked:
            raise RuntimeError(NO_STEP.say())
        if not self._trained.is_several:
            return
        if part.last:
            self.close_turn()
        elif self._peers.group.failure is not None:
            turn.broken = GroupBroken(self._peers.group.failure)

    def _step_one_of_several(self, part: MicroBatch, name: str) -> bool:
        turn, stepped = self.turn, self._parts.stepped
        assert turn is not None  # noqa: S101  within a turn
        if not part.last and name in turn.asked:
            raise RuntimeError(STEPPED_AGAIN.say(name=name))
        turn.asked.add(name)
        if not part.last:
            if not self._has_told_of_parts:
                self._has_told_of_parts = True
                warnings.warn(SEVERAL_IN_PARTS.say())
            return False
        turn.calls += 1
        if turn.calls <= len(stepped.names):  # it was, before a node was lost in this very step
            self._update.clear(name)
            return False  # what the script does after a step, it has done, or a member has for it
        if not self._average_and_step(name):
            return False
        stepped.names.append(name)
        self._update.clear(name)
        self._observers.before_compute()
        return True

    def _average_and_step(self, name: str) -> bool:
        """Average the gradients of an optimiser's parameters over all nodes, and step it. False: a member was
        lost."""
        turn = self.turn
        assert turn is not None  # noqa: S101  within a turn
        try:
            if self._exchanges_little:
                self._peers.agree()
            self._averaging.finish(name)
            if turn.share.ranks < len(self._peers.working) and not self._averaging.needs_batch:
                group, first = self._peers.group, self._peers.working[0]
                follow(group, self._trained.optimizers[name], first)
                takes = self._peers.place is not None and not turn.share.size
                self._parts.kept_buffers.follow(group, first, takes=takes)
            self._peers.settle()
            self._peers.agree()  # what is published during a long exchange counts for this step, too
        except GroupBroken as error:
            self._update.clear()
            turn.broken = error
            return False
        self._observers.before_update(name)
        turn.is_torn = True
        self._update.take(name, turn.before.step)
        turn.is_torn = False
        self._observers.after_update(name)
        return True

    def _advance(self, stepped: list[str]) -> bool:
        """The step is taken: all of it that this rank's state has."""
        turn, peers = self.turn, self._peers
        assert turn is not None  # noqa: S101  within a turn
        turn.is_taken = True
        after, adapting, worth = turn.share.after, self._parts.adapting, 1
        if adapting is not None:
            after = replace(after, gained=after.gained + adapting.gain - 1.0)
            worth = int(after.progress) - int(turn.before.progress)
            adapting.taken(after)
        self._parts.state.position = after
        epoch_over = after.epoch > turn.before.epoch
        self._observers.before_schedule()
        self._update.done(stepped, epoch_over=epoch_over, worth=worth)
        self._observers.step_taken(has_state=peers.has_state)
        if peers.has_state:
            self._is_in_hook = True
            for hook in (*self.hooks, *(self.epoch_hooks if epoch_over else ())):
                hook()
            self._is_in_hook = False
        return True
