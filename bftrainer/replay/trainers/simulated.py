"""One simulated trainer: how it trains, stalls and waits as virtual time passes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from bftrainer.model.gpus import node_of
from bftrainer.model.trainer import ASSUMED_COSTS, Points, RescaleCosts, TrainerSpec
from bftrainer.performance import curve
from bftrainer.performance.curve import Floats

HOUR_S = 3600.0


def one_class(node: str) -> str:
    """The class of a node where all are alike."""
    return ""


@dataclass(slots=True)
class SimulatedTrainer:
    """The state of one simulated trainer. Times are in seconds of the virtual clock.

    Attributes:
        spec: What the simulation takes as the truth about the trainer.
        costs: Stall and initialisation of a rescale.
        class_of: The class of a node.
        rates: Samples/s on 0..n_max nodes of a class without a curve of its own.
        clock: The moment up to which samples have been counted.
        members: The nodes that train together.
        stalled_until: When the current or last stall ends.
        samples: Samples processed up to `clock`, without those that were lost.
        linear_s: Node-time that these take if every node trains on its own.
        stall_node_s: Node-time in which its members stood still for a rescale.
        init_node_s: Node-time in which new nodes initialised.
        starting: Node -> when its initialisation began.
        due: When its work will be done if nothing changes; infinity if it makes no progress.
        ended_at: When it ended; None while it has not.
        published: The generation of the membership that was published last.
        exit_s: How long its nodes stay occupied after its work is done.
        repeated: Samples that were trained, lost together with all nodes, and must be trained again.
        submitted_at: When it was submitted, or the begin of the replay if that is later.
        first_node_at: When it held a node for the first time.
        node_s: Node-time that it held.
        rescaled_samples: What decided rescales cost: their stalls times the speed before them.
        preempted_samples: The same for rescales that became necessary because nodes left the pool.
        speed_before_loss: Its speed before nodes were taken from it, until a new membership is published.
        held: How many nodes it holds.
        held_since: Since when it holds that many.
    """

    spec: TrainerSpec
    costs: RescaleCosts
    class_of: Callable[[str], str]
    rates: Floats
    clock: float
    members: tuple[str, ...] = ()
    stalled_until: float = -math.inf
    samples: float = 0.0
    linear_s: float = 0.0
    stall_node_s: float = 0.0
    init_node_s: float = 0.0
    starting: dict[str, float] = field(default_factory=dict)
    due: float = math.inf
    ended_at: float | None = None
    published: int = 0
    exit_s: float = 0.0
    repeated: float = 0.0
    submitted_at: float = 0.0
    first_node_at: float | None = None
    node_s: float = 0.0
    rescaled_samples: float = 0.0
    preempted_samples: float = 0.0
    speed_before_loss: float | None = None
    held: int = 0
    held_since: float = 0.0

    @classmethod
    def submitted(cls, spec: TrainerSpec, now: float, class_of: Callable[[str], str] = one_class) -> Self:
        """A trainer that was submitted at `now`; costs that its spec leaves open are the assumed ones."""
        return cls(
            spec=spec,
            costs=spec.costs or ASSUMED_COSTS,
            class_of=class_of,
            rates=curve.table(spec.curve or (), spec.n_max),
            clock=now,
            submitted_at=now,
        )

    @property
    def rate(self) -> float:
        """Samples/s while it does not stand still; 0 with a number of members that its spec forbids."""
        if not self.spec.allows(len(self.members)):
            return 0.0
        if self.spec.across and len(set(map(node_of, self.members))) > 1:
            return curve.rate(self.spec.across, len(self.members))
        if self.spec.curves:
            return curve.rate(self._curve, len(self.members))
        return float(self.rates[len(self.members)])

    @property
    def _curve(self) -> Points:
        """Its speeds on nodes of its members' class; no trainer mixes classes."""
        own = dict(self.spec.curves) if self.members else {}
        return own.get(self.class_of(self.members[0]) if own else "") or self.spec.curve or ()

    @property
    def completed(self) -> bool:
        """True if it ended because its work was done."""
        return self.ended_at is not None and self.spec.samples == self.samples

    @property
    def runtime_h(self) -> float:
        """Hours from its first node to its end; NaN if it has not ended or never held a node."""
        if self.ended_at is None or self.first_node_at is None:
            return math.nan
        return (self.ended_at - self.first_node_at) / HOUR_S

    @property
    def turnaround_h(self) -> float:
        """Hours from its submission to its end; NaN if it has not ended."""
        return math.nan if self.ended_at is None else (self.ended_at - self.submitted_at) / HOUR_S

    def linear_node_s(self, now: float) -> float:
        """The node-time (s) that its samples at `now` take if every node trains on its own."""
        return self.linear_s + (self.samples_at(now) - self.samples) / curve.rate(self._curve, 1)

    def samples_at(self, now: float) -> float:
        """Its samples at `now`, if nothing happens to it before."""
        return self.samples + max(0.0, min(now, self.due) - self.clock - self._stall(now)) * self.rate

    def advance(self, now: float) -> None:
        """Count what happens from `clock` to `now`: first the rest of a stall, then training."""
        self.linear_s = self.linear_node_s(now)
        self.samples, stall = self.samples_at(now), self._stall(now)
        self.stall_node_s += stall * len(self.members)
        self.clock = now

    def go_back(self, samples: float) -> None:
        """Its work beyond `samples` is lost."""
        self.repeated += self.samples - samples
        self.linear_s *= samples / self.samples if self.samples else 1.0
        self.samples = samples

    def hold(self, nodes: int, now: float) -> None:
        """Make it hold this many nodes from `now` on."""
        self.node_s += self.held * (now - self.held_since)
        self.held, self.held_since = nodes, now
        if nodes and self.first_node_at is None:
            self.first_node_at = now

    def lose(self, nodes: frozenset[str], now: float) -> None:
        """Nodes are gone: initialisation on them was in vain, and members among them are lost.

        Members that remain train on if they are enough; the engine publishes a new membership next.
        """
        for node in sorted(nodes & self.starting.keys()):
            self.stop_initialising(node, now)
        if not nodes.isdisjoint(self.members):
            self.advance(now)
            if self.speed_before_loss is None:
                self.speed_before_loss = self.rate
            self.members = tuple(n for n in self.members if n not in nodes)
            self.due = math.inf

    def regroup(self, members: tuple[str, ...], generation: int, now: float) -> None:
        """Train with these members from `now` on, after the stall of growing or shrinking.

        A trainer that still stands still adds the new stall to what is left of the old one.
        """
        self.advance(now)
        newcomers = [node for node in members if node in self.starting]
        for node in newcomers:
            self.stop_initialising(node, now)
        speed = self.rate
        self.members, self.published = members, generation
        if members:
            stall = self.costs.up.stall_s if newcomers else self.costs.down.stall_s
            self.stalled_until = max(self.stalled_until, now) + stall
            if self.speed_before_loss is None:
                self.rescaled_samples += stall * speed
            else:
                self.preempted_samples += stall * self.speed_before_loss
                self.speed_before_loss = None
        self.expect()

    def expect(self) -> None:
        """Set `due` from what is left to do."""
        if self.rate > 0 and self.spec.samples is not None:
            left = max(0.0, self.spec.samples - self.samples)
            self.due = max(self.clock, self.stalled_until) + left / self.rate
        else:
            self.due = math.inf

    def end(self, now: float) -> None:
        """It is over. If its work is done, it has processed exactly the samples of its spec."""
        self.advance(now)
        if self.spec.samples is not None and self.due <= now:
            self.samples = float(self.spec.samples)
        self.stop_all_initialising(now)
        self.hold(0, now)
        self.members, self.ended_at = (), now

    def close(self, now: float) -> None:
        """The replay ends at `now`, and this trainer has not: count up to then."""
        self.advance(now)
        self.hold(self.held, now)
        self.stop_all_initialising(now)

    def stop_initialising(self, node: str, now: float) -> None:
        """A worker that initialised on `node` no longer does; no effect if there is none."""
        begun = self.starting.pop(node, None)
        if begun is not None:
            self.init_node_s += now - begun

    def stop_all_initialising(self, now: float) -> None:
        """No worker initialises any more."""
        for node in list(self.starting):
            self.stop_initialising(node, now)

    def _stall(self, now: float) -> float:
        """Seconds that it stands still between `clock` and `now`."""
        return max(0.0, min(self.stalled_until, now) - self.clock)
