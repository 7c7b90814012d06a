"""The steps of a run: each begins with all members, and after it others may come or go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from bftrainer.elastic import warned
from bftrainer.elastic.evaluation import Measure, evaluated, evaluating
from bftrainer.elastic.members.channel import Orders
from bftrainer.elastic.members.group import GroupBroken
from bftrainer.elastic.peers import SingleProcess
from bftrainer.elastic.state.state import TrainingState
from bftrainer.elastic.train.average import Averaging
from bftrainer.elastic.train.batches import Batches, MicroBatch
from bftrainer.elastic.train.data import Source
from bftrainer.elastic.train.hyperparameters import follow
from bftrainer.elastic.train.kept_buffers import KeptBuffers
from bftrainer.elastic.train.modes import Modes
from bftrainer.elastic.train.own_gradients import OwnGradients
from bftrainer.elastic.train.own_weights import OwnWeights
from bftrainer.elastic.train.rng import reseed
from bftrainer.elastic.train.trainable import Trainable
from bftrainer.elastic.train.trained import Trained
from bftrainer.elastic.train.turn import Stepped, Turn
from bftrainer.elastic.train.update import Update
from bftrainer.elastic.view import RunView

IN_EVALUATION = (
    "the model is in evaluation mode (model.eval()), and the loop began in training mode: dropout would be "
    "off here and on in nodes that come. Say model.train() where the evaluation ends, in the loop's body or "
    "in the function given to run.after_epoch; or evaluate by run.evaluate, which sees to it"
)

SEVERAL_IN_PARTS = (
    "a step has several micro-batches, and the run several optimisers: each is stepped with the last "
    "micro-batch, so that gradients of the earlier ones are of models before the step of another optimiser "
    "in the same turn. What comes out depends on the number of nodes. Give a batch_size that is as large as "
    "a node's share of the step, or fewer samples a step"
)


class Steps(RunView):
    """The part of a `Run` that takes its steps, between the calls of the script."""

    def __init__(
        self,
        averaging: Averaging,
        state: TrainingState,
        peers: SingleProcess,
        orders: Orders | None,
        *,
        trained: Trained,
        update: Update,
        stepped: Stepped,
        batches: Batches,
        trainable: Trainable,
        modes: Modes,
        own_gradients: OwnGradients,
        seed: int,
    ) -> None:
        super().__init__(averaging, state, peers, orders)
        self._trained, self._update, self._stepped = trained, update, stepped
        self._batches, self._trainable, self._seed = batches, trainable, seed
        self._modes = modes
        self._own_gradients, self._own_weights = own_gradients, OwnWeights(trained)
        own_gradients.on_made = self._own_weights.at_backward
        self._kept_buffers = KeptBuffers(trained)
        self._has_told_of_parts = False
        self._pauses = 0  # under way, one within the other
        self._trains: dict[str, bool] = {}  # whether a model was in training mode when the loop began

    def __len__(self) -> int:
        """The batches that the loop has yet to yield on this node, as long as there are as many nodes: of all
        epochs, from where training stands. It is another number after a change of nodes. Like asking for
        `position`, it has this process become a member.

        Raises:
            TypeError: that is not known: data is a stream, or nothing says when the run ends.
        """
        left = self._batches.left(self.position)
        if left is None:
            raise TypeError(
                "how many batches this run has is not known: give data with a length, and "
                "elastic.Run(epochs=...) or a spec with work"
            )
        return left

    def __bool__(self) -> bool:
        """True: a run is no container that may be empty."""
        return True

    @contextlib.contextmanager
    def pause(self, most_s: float = 3600.0) -> Iterator[None]:
        """Around what takes one node long, such as an evaluation by rank 0 alone: the others wait for it, for
        `most_s` at most, and the time does not count as slow training or as the cost of a rescale."""
        self._pauses += 1
        if self._pauses == 1:
            self._peers.busy(most_s)
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                self._peers.busy(0.0)

    def evaluate(
        self,
        data: Any,
        measure: Measure,
        *,
        batch_size: int | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        most_s: float = 3600.0,
    ) -> dict[str, float]:
        """The means over a data set of the figures that `measure(batch)` returns for each batch. Every node
        evaluates a part of it, and all get the same result.

        To be called on all nodes after the same step: in the loop's body after `step`, or in a function given
        to `after_step` or `after_epoch`. Before and after the loop, each node evaluates all by itself. Models
        are in evaluation mode meanwhile, and gradients are off.

        Args:
            data: as for the run; a DataLoader's batch size and collation are taken over.
            measure: figures by name, each the mean over the batch's samples.
            batch_size: at most so many samples at once; the run's own by default.
            collate: as for the run.
            most_s: longer, and the node is taken for hung.

        Raises:
            ValueError, TypeError: data that cannot be shared out.
        """
        own = isinstance(data, DataLoader)
        source = Source(data, None if own else batch_size or self._batches.batch_size, collate, self._seed)
        with self.pause(most_s), evaluating(list(self._trained.models.values())):
            return evaluated(source, measure, self._peers.group, self._evaluating_ranks(), most_s)

    def _evaluating_ranks(self) -> Sequence[int]:
        """The group's ranks that run the same part of the script now."""
        if self._turn is None:  # before the loop, or after it: no other need be there
            return ()
        working = self._peers.working
        if self._in_hook or self._averaging.needs_batch:
            return working
        return working[: self._turn.share.total]  # the body runs where there are samples

    def _step_one_of_several(self, part: MicroBatch, name: str) -> bool:
        turn = self._turn
        assert turn is not None  # noqa: S101  within a turn
        if not part.last and name in turn.asked:
            raise RuntimeError(f"with several micro-batches a step, call run.step({name!r}) once for each")
        turn.asked.add(name)
        if not part.last:
            if not self._has_told_of_parts:
                self._has_told_of_parts = True
                warned.warn(SEVERAL_IN_PARTS)
            return False
        turn.calls += 1
        if turn.calls <= len(self._stepped.names):  # it was, before a node was lost in this very step
            self._update.clear(name)
            return False  # what the script does after a step, it has done, or a member has for it
        if not self._average_and_step(name):
            return False
        self._stepped.names.append(name)
        self._update.clear(name)
        return True

    def _working(self, call: str) -> MicroBatch:
        if self._part is None:
            raise RuntimeError(f"call {call} once per batch, inside `for batch in run`")
        return self._part

    def _check_mode(self) -> None:
        """Refuse to train on in evaluation mode where the loop began in training mode, as newcomers do."""
        for name, model in self._trained.models.items():
            if self._trains.setdefault(name, model.training) and not model.training:
                raise RuntimeError(IN_EVALUATION)

    def _stepped_parameters(self) -> Iterator[torch.Tensor]:
        return (p for name in self._trained.optimizers for p in self._trained.parameters(name))

    def _is_over(self) -> bool:
        return self._peers.is_stopped or self._batches.complete(self.position)

    def _one_step(self) -> Iterator[Any]:
        """Yield this rank's micro-batches of the next step; then other members may come or go."""
        self._modes.begin()
        self._check_mode()
        if not self._peers.begin_step():
            return
        turn = self._turn = Turn(self._batches.share(self.position), self.position)
        self._update.clear()
        if len(self._peers.working) == self._peers.group.size:
            self._trainable.renew()
        self._own_gradients.begin(self._stepped_parameters())
        self._own_weights.begin()
        works = self._peers.place is not None  # others receive the state meanwhile, buffers included
        self._kept_buffers.begin(may_be_lost=works and self._peers.group.size > 1)
        self._averaging.begin(self._peers.group, turn.share.weight)
        with self._update.turn():
            yield from self._parts_of(turn)
        self._turn = None
        if turn.broken is not None:
            self._kept_buffers.restore()
            self._peers.lost(turn.broken)
        else:
            self._peers.taken(turn.before)

    def _parts_of(self, turn: Turn) -> Iterator[Any]:
        parts = self._batches.parts(turn.share)
        if not parts:
            self._averaging.absent()
            name = self._trained.name(None)
            self._average_and_step(name) and self._advance([name])
        for part in parts:
            self._part, turn.asked = part, set()
            with self._averaging.micro_batch(last=part.last):
                yield self._batches.fetch(self.position.epoch, part)
            self._close_part(turn, part)
            if turn.is_taken or turn.broken is not None:
                return

    def _close_part(self, turn: Turn, part: MicroBatch) -> None:
        """The script has done with a micro-batch."""
        if self._part is part and not turn.asked:
            raise RuntimeError(
                "the loop went on without run.step(); call it once per batch, on all nodes. To leave a bad "
                "batch out, take a loss of zero, such as 0.0 * sum(p.sum() for p in model.parameters()); "
                "on all nodes, or what comes out depends on their number (docs/your-script.md, A bad batch)"
            )
        if not self._trained.is_several:
            return
        if part.last:
            self._close_turn()
        elif self._peers.group.failure is not None:
            turn.broken = GroupBroken(self._peers.group.failure)

    def _close_turn(self) -> None:
        """Where a run has several optimisers, its step is taken when the script has stepped what it wants. If
        an error came up in one of its calls, that optimiser was not: then the samples come again."""
        part, turn, self._part = self._part, self._turn, None
        if part is None or not part.last or turn is None or turn.broken is not None:
            return
        if 0 < turn.calls <= len(self._stepped.names):
            names, self._stepped.names = self._stepped.names, []
            self._advance(names)

    def _average_and_step(self, name: str) -> bool:
        """Average the gradients of an optimiser's parameters over all nodes, and step it. False: a member was
        lost."""
        turn = self._turn
        assert turn is not None  # noqa: S101  within a turn
        try:
            self._peers.group.check()
            self._peers.agree()
            self._averaging.finish(name)
            if turn.share.total < len(self._peers.working) and not self._averaging.needs_batch:
                group, first = self._peers.group, self._peers.working[0]
                follow(group, self._trained.optimizers[name], first)
                takes = self._peers.place is not None and not turn.share.size
                self._kept_buffers.follow(group, first, takes=takes)
            self._peers.settle()
        except GroupBroken as error:
            self._update.clear()
            turn.broken = error
            return False
        turn.is_torn = True
        self._update.take(name, turn.before.step)
        turn.is_torn = False
        self._own_weights.stepped(name)
        return True

    def _advance(self, stepped: list[str]) -> bool:
        """The step is taken: all of it that this rank's state has."""
        assert self._turn is not None  # noqa: S101  within a turn
        self._turn.is_taken = True
        self._state.position = self._turn.share.after
        epoch_over = self._turn.share.after.epoch > self._turn.before.epoch
        self._update.done(stepped, epoch_over=epoch_over)
        self._after_step(epoch_over=epoch_over)
        return True

    def _joined(self) -> None:
        """The run goes on from its position with other members, or with more that share the samples."""
        step = self._state.position.step
        reseed(self._seed, step, self._rank)
        self._trainable.renew()
        self._update.rescaled(self._peers.size, step)
        self._batches.enter(self._state.position, self._peers.place, self._peers.size)
