"""Adapts a run's batch between two steps: what the first rank has measured and decided, all take over."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import torch

from bftrainer.elastic.adaptive.batch import NUMBERS, Agreed, LiveBatch, Timed, TimedSize, merged
from bftrainer.elastic.adaptive.choice import Choice, chosen, modelled
from bftrainer.elastic.adaptive.measure import StepMeasurer
from bftrainer.elastic.loop.peers import SingleProcess
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.train.average import Averaging
from bftrainer.elastic.train.batches import Batches
from bftrainer.elastic.train.policy import Adaptive
from bftrainer.elastic.train.sampler import RankShare
from bftrainer.elastic.train.trained import Trained
from bftrainer.elastic.train.update import Update
from bftrainer.messages.arguments import ADAPTIVE_SEVERAL, BATCH_STAYS
from bftrainer.performance.goodput import BatchLimits, GoodputError, SystemModel

log = logging.getLogger(__name__)

EVERY = 16
"""Steps between exchanges of the ranks' measurements: to read these they wait for their devices."""
MOST_STEPS = 1000.0
"""Steps of a size that count in the mean of its times, at most."""
PART_OF_TIME = 0.005
"""Largest share of the time for decisions; one takes some 10 ms."""
CHANGED_RATE = 2.0
"""Factor by which a learning rate has changed much, up or down."""


class Adapting:
    """One rank's part in adapting the batch.

    Args:
        policy: the limits.
        trained: one optimiser, and its models.
        batch_size: what a worker computes at once where the policy does not say.

    Raises:
        ValueError: the run has several optimisers.
    """

    _update: Update
    _batches: Batches
    _averaging: Averaging
    _peers: SingleProcess
    _limits: BatchLimits

    def __init__(
        self, policy: Adaptive, trained: Trained, batch_size: int, scaler: torch.amp.GradScaler | None
    ) -> None:
        if trained.is_several:
            raise ValueError(ADAPTIVE_SEVERAL.say())
        self.live = LiveBatch(policy, policy.max_per_worker or batch_size)
        """The batch now, a part of the training state."""
        self.measured = StepMeasurer(trained, scaler, self.live)
        """The observer that measures steps."""
        ((name, self._optimizer),) = trained.optimizers.items()
        parameters = trained.parameters(name)
        self._device = parameters[0].device if parameters else torch.device("cpu")
        self._system: SystemModel | None = None
        self._is_new = True  # the membership
        self._exchanges = False
        self._due = 0.0
        self._rate = 0.0

    def connect(
        self, update: Update, batches: Batches, averaging: Averaging, peers: SingleProcess, least: int
    ) -> None:
        """The other parts of the run, which are made later. A rank has `least` samples of a step, or none."""
        self._update, self._batches, self._averaging, self._peers = update, batches, averaging, peers
        policy = self.live.policy
        self._limits = BatchLimits(
            initial=policy.initial, most=policy.max, local_least=least, local_most=self.live.most_at_once
        )
        batches.batch_size = self.live.at_once
        self.measured.watch(averaging)

    def joined(self) -> None:
        """The run goes on with other members, or with the state of others: before the next step."""
        self._is_new, self._due = True, 0.0
        self.live.begins(self.live.batch)
        self._batches.batch_size = self.live.at_once

    def begins(self, share: RankShare, step: int) -> None:
        """A step begins on all ranks, after `step` others. In the exchange of gradients the first rank says
        what it decides."""
        live = self.live
        live.begins(share.total)
        self._update.rescaled(self._peers.size, step)
        sums = torch.zeros(1 + NUMBERS, device=self._device)
        self._exchanges, self._is_new = self._is_new or step % EVERY == 0, False
        if self._exchanges and self._peers.place == 0:
            sums[1:] = torch.tensor(self._decided().numbers())
        self._averaging.sums = sums

    @property
    def gain(self) -> float:
        """Worth of the present step, in steps with the initial batch."""
        return self.live.gain

    def taken(self, position: Position) -> None:
        """The step is taken, and led to `position`: take over what the first rank has said in it."""
        if not self._exchanges or self._averaging.sums is None:
            return
        agreed = Agreed.of(self._averaging.sums[1:].tolist())
        changes = agreed is not None and self.live.take(agreed)
        if changes or self._peers.place != 0:
            self.measured.forget()
        if changes:
            self._batches.batch_size = self.live.at_once
            self._batches.enter(position, self._peers.place, self._peers.size)

    def _decided(self) -> Agreed:
        """This rank's message: its measurements since the last time, and the batch that follows."""
        live, size = self.live, self._size()
        estimates, times = self.measured.read()
        noise = live.noise
        if self._has_changed_rate():
            noise = noise.forgotten()
        for each in estimates:
            noise = noise.taken(each, live.policy.initial)
        phi = live.phi if noise.phi is None else noise.phi
        timed = None
        if times is not None:
            new = Timed(times.iteration_s, times.gradient_s or 0.0, float(times.steps))
            timed = merged(live.times.get(size), new, MOST_STEPS)
        batch, at_once = live.batch, live.at_once
        now = time.perf_counter()
        if phi is not None and now >= self._due:
            known: Mapping[TimedSize, Timed] = {**live.times, **({size: timed} if timed else {})}
            if (choice := self._choice(known, phi, size)) is not None:
                batch, at_once = choice.batch, choice.at_once
                self._report(choice, phi)
            ended = time.perf_counter()
            self._due = ended + (ended - now) / PART_OF_TIME
        return Agreed(noise=noise, phi=phi, batch=batch, at_once=at_once, size=size, timed=timed)

    def _choice(self, times: Mapping[TimedSize, Timed], phi: float, size: TimedSize) -> Choice | None:
        """Choose a batch; None: the times make no model, and the batch stays."""
        try:
            self._system = modelled(times, self._system)
            if self._system is None:
                return None
            return chosen(self._system, self._limits, phi, size, self.live.batch, self.live.at_once)
        except GoodputError as error:
            log.warning("%s", BATCH_STAYS.say(batch=self.live.batch, why=error))
            return None

    def _size(self) -> TimedSize:
        """Size to which a step's time belongs now."""
        live, workers = self.live, self._peers.size
        share = -(-live.batch // workers)
        passes = -(-share // live.at_once)
        return TimedSize(self._peers.nodes, workers, -(-share // passes), passes - 1)

    def _has_changed_rate(self) -> bool:
        rate = max((float(group.get("lr", 0.0)) for group in self._optimizer.param_groups), default=0.0)
        before, high, low = self._rate, self._rate * CHANGED_RATE, self._rate / CHANGED_RATE
        if before and low < rate < high:
            return False
        self._rate = rate
        return before > 0

    def _report(self, choice: Choice, phi: float) -> None:
        figures = {
            "goodput.batch": choice.batch,
            "goodput.at_once": choice.at_once,
            "goodput.initial": self.live.policy.initial,
            "goodput.max": self.live.policy.max,
            "goodput.max_per_worker": self.live.most_at_once,
            "goodput.workers": self._peers.size / self._peers.nodes,
            "goodput.noise": phi,
            "goodput.speed": choice.speed,
            "goodput.efficiency": choice.efficiency,
            "goodput": choice.goodput,
        }
        self._peers.report({name: float(value) for name, value in figures.items()}, now=False)
