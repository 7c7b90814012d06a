"""The simulated launcher: what trainers do between events, on a virtual clock.

A regrouped trainer stands still for `stall_s` of the direction of change: up where nodes join, down
where none does. A trainer regrouped while it still stands still adds the new stall to what is left
of the old. New nodes initialise for `init_s` while the members train on, then report ready. The
published model is init_s = 0: newcomers are ready at once and everybody waits R_up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from bftrainer.model.actions import Action, Regroup, StartWorker, StopWorker
from bftrainer.model.events import Event, Measured, TrainerEnded, WorkersReady
from bftrainer.model.trainer import ASSUMED_COSTS, RescaleCosts, TrainerSpec
from bftrainer.performance import curve
from bftrainer.performance.curve import Floats


@dataclass(slots=True)
class SimulatedTrainer:
    """One simulated trainer. `clock` is the moment up to which samples have been counted.

    `exit_s` is how long its nodes stay taken after its work is done, `repeated` counts samples that
    were lost with all nodes after they had been trained. `node_s` is the node-time that it held.

    What a rescale costs in samples is its stall times the speed before it: `preempted_samples` where
    nodes were taken from it, `rescaled_samples` where that was decided.
    """

    spec: TrainerSpec
    costs: RescaleCosts
    rates: Floats
    clock: float
    members: tuple[str, ...] = ()
    stalled_until: float = float("-inf")
    samples: float = 0.0
    stall_node_s: float = 0.0
    init_node_s: float = 0.0
    starting: dict[str, float] = field(default_factory=dict)  # node -> start of its initialisation
    due: float = float("inf")  # when it will have done its work
    ended_at: float | None = None
    published: int = 0
    exit_s: float = 0.0
    repeated: float = 0.0
    submitted_at: float = 0.0
    first_node_at: float | None = None
    node_s: float = 0.0
    rescaled_samples: float = 0.0
    preempted_samples: float = 0.0
    hit: float | None = None  # its speed before it lost nodes, until it goes on without them
    held: int = 0
    held_since: float = 0.0

    @property
    def rate(self) -> float:
        """Samples/s while it does not stand still; too few members cannot train."""
        enough = len(self.members) >= self.spec.n_min
        return float(self.rates[len(self.members)]) if enough else 0.0

    @property
    def completed(self) -> bool:
        """Whether it is over because its work is done."""
        return self.ended_at is not None and self.spec.samples == self.samples

    @property
    def runtime_h(self) -> float:
        """Hours from its first node to its end; NaN before."""
        if self.ended_at is None or self.first_node_at is None:
            return math.nan
        return (self.ended_at - self.first_node_at) / 3600

    @property
    def turnaround_h(self) -> float:
        """Hours from its submission to its end; NaN before."""
        return math.nan if self.ended_at is None else (self.ended_at - self.submitted_at) / 3600

    def linear_node_s(self, samples: float) -> float:
        """The node-time in which single nodes of its would process so many samples."""
        return samples / curve.rate(self.spec.curve or (), 1)

    def _stall(self, now: float) -> float:
        return max(0.0, min(self.stalled_until, now) - self.clock)

    def samples_at(self, now: float) -> float:
        """Its samples at `now`, if nothing happens to it before."""
        return self.samples + max(0.0, min(now, self.due) - self.clock - self._stall(now)) * self.rate

    def advance(self, now: float) -> None:
        """Count what happens up to `now`: first the rest of a stall, then training."""
        self.samples, stall = self.samples_at(now), self._stall(now)
        self.stall_node_s += stall * len(self.members)
        self.clock = now

    def hold(self, nodes: int, now: float) -> None:
        """It holds so many nodes from `now` on."""
        self.node_s += self.held * (now - self.held_since)
        self.held, self.held_since = nodes, now
        if nodes and self.first_node_at is None:
            self.first_node_at = now

    def expect(self) -> None:
        """Set `due` from what is left to do if nothing changes."""
        if self.rate > 0 and self.spec.samples is not None:
            left = max(0.0, self.spec.samples - self.samples)
            self.due = max(self.clock, self.stalled_until) + left / self.rate
        else:
            self.due = float("inf")


class SimulatedLauncher:
    """Performs actions by arithmetic. `emit` takes the events that follow, at their own times."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self.runs: dict[int, SimulatedTrainer] = {}
        self._busy: set[int] = set()  # trainers that have had nodes and are not over

    def submit(self, trainer: int, spec: TrainerSpec, now: float) -> None:
        """Make a trainer known before any action names it."""
        self.runs[trainer] = SimulatedTrainer(
            spec=spec,
            costs=spec.costs or ASSUMED_COSTS,
            rates=curve.table(spec.curve or (), spec.n_max),
            clock=now,
            submitted_at=now,
        )

    def perform(self, actions: tuple[Action, ...], now: float) -> None:
        """Perform `actions` at `now`; of workers that one batch starts, equally fast ones report together."""
        started: dict[tuple[int, int, float], set[str]] = {}
        for action in actions:
            run = self.runs[action.trainer]
            if run.ended_at is not None:
                continue
            self._busy.add(action.trainer)
            match action:
                case StartWorker():
                    run.starting[action.node] = now
                    ready = now + self.init_s(action, now)
                    started.setdefault((action.trainer, action.generation, ready), set()).add(action.node)
                case StopWorker():
                    self._initialised(run, action.node, now)
                case Regroup():
                    self._regroup(run, action, now)
        for (trainer, generation, ready), nodes in started.items():
            self._emit(
                WorkersReady(time=ready, trainer=trainer, generation=generation, nodes=frozenset(nodes))
            )

    def init_s(self, action: StartWorker, now: float) -> float:
        """How long a worker takes from `now` until it is ready."""
        return self.runs[action.trainer].costs.up.init_s

    def lose(self, nodes: frozenset[str], now: float) -> None:
        """Nodes are gone: whoever was initialising on them wasted the time.

        A trainer with too few members left stands still until the engine regroups it.
        """
        for id_ in sorted(self._busy):
            run = self.runs[id_]
            for node in nodes & run.starting.keys():
                self._initialised(run, node, now)
            if not nodes.isdisjoint(run.members):
                run.advance(now)
                run.hit = run.rate if run.hit is None else run.hit
                run.members = tuple(n for n in run.members if n not in nodes)
                run.due = float("inf")

    def over(self, event: TrainerEnded) -> bool:
        """Whether a predicted end is still true; what has happened since may have put it off."""
        run = self.runs[event.trainer]
        return run.ended_at is None and run.due + run.exit_s == event.time

    def told(self, event: Measured) -> Measured | None:
        """What the engine is told of a measurement. This one is from a record: as one of the membership
        that there is now."""
        return replace(event, generation=self.runs[event.trainer].published)

    def end(self, trainer: int, now: float) -> None:
        """A trainer is over; if its work is done, close its books at exactly that."""
        run = self.runs[trainer]
        run.advance(now)
        if run.spec.samples is not None and run.due <= now:
            run.samples = float(run.spec.samples)
        for node in list(run.starting):
            self._initialised(run, node, now)
        run.hold(0, now)
        run.members, run.ended_at = (), now
        self._busy.discard(trainer)

    def close(self, now: float) -> None:
        """The replay is over: count up to `now`."""
        for run in self.runs.values():
            if run.ended_at is None:
                run.advance(now)
                run.hold(run.held, now)
                for node in list(run.starting):
                    self._initialised(run, node, now)

    @property
    def busy(self) -> Iterator[SimulatedTrainer]:
        """Those that have had nodes and are not over: only theirs can grow."""
        return (self.runs[id_] for id_ in self._busy)

    def _regroup(self, run: SimulatedTrainer, action: Regroup, now: float) -> None:
        run.advance(now)
        newcomers = [node for node in action.members if node in run.starting]
        for node in newcomers:
            self._initialised(run, node, now)
        speed = run.rate
        run.members, run.published = action.members, action.generation
        if run.members:
            stall = run.costs.up.stall_s if newcomers else run.costs.down.stall_s
            run.stalled_until = max(run.stalled_until, now) + stall
            if run.hit is None:
                run.rescaled_samples += stall * speed
            else:
                run.preempted_samples += stall * run.hit
                run.hit = None
        run.expect()
        if run.due < float("inf"):
            self._emit(
                TrainerEnded(time=run.due + run.exit_s, trainer=action.trainer, generation=action.generation)
            )

    def _initialised(self, run: SimulatedTrainer, node: str, now: float) -> None:
        begun = run.starting.pop(node, None)
        if begun is not None:
            run.init_node_s += now - begun
