"""`LauncherWorld` on a virtual clock: the real engine and a real store, the replay's simulated launcher.

What the simulated launcher leaves out is here: workers that die, hang or end, and a daemon that is not
there for a while.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from bftrainer.allocate import decide
from bftrainer.daemon.recovery import missed
from bftrainer.engine.restore import restore
from bftrainer.engine.state import State
from bftrainer.engine.step import step
from bftrainer.model.actions import Action, Regroup, StartWorker, StopWorker
from bftrainer.model.events import (
    Drain,
    Event,
    NodesChanged,
    TrainerCancelled,
    TrainerEnded,
    TrainerSubmitted,
    WorkerLost,
    WorkersReady,
)
from bftrainer.model.policy import EngineSettings
from bftrainer.model.reports import Pause, Progress
from bftrainer.model.trainer import Cost, RescaleCosts, TrainerSpec
from bftrainer.replay.loop import VirtualClock
from bftrainer.replay.trainers.launcher import SimulatedLauncher
from bftrainer.store.sql import SqlStore
from bftrainer.testing.launcher_world import Moment, ShownTrainer

TICK_S = 0.02
PATIENCE_S = 300.0
BATCH = 16
HUNG_S = 2.0  # after so long, an agent ends a worker that is stopped
BACK_S = 0.2  # so long after its agent's death, a node joins again
OURS, RIVAL = 1, 2
COSTS = RescaleCosts(up=Cost(stall_s=0.1, init_s=1.0), down=Cost(stall_s=0.1))


@dataclass(slots=True)
class Worker:
    """A worker as an agent would tell of it."""

    generation: int
    phase: str = "starting"
    joined: int = 0


class SimulatedWorld:
    keeps_steps = True

    def __init__(self, root: Path) -> None:
        self._store = SqlStore(root / "store.db")
        self._settings = EngineSettings(t_fwd_s=60.0, objective="efficiency")
        self._state = State(settings=self._settings)
        self._clock = VirtualClock(1000.0)
        self._launcher = SimulatedLauncher(self._later, self._clock)
        self._numbers = count()
        self._agenda: list[tuple[float, int, int, Any]] = []  # an event, or what to do, at its time
        self._idle: frozenset[str] = frozenset()
        self._workers: dict[int, dict[str, Worker]] = {OURS: {}, RIVAL: {}}
        self._held: set[tuple[str, Moment]] = set()
        self._waiting: dict[str, WorkersReady] = {}  # what held workers will say
        self._kinds: dict[int, str] = {}
        self._daemon = True

    @property
    def _now(self) -> float:
        """The virtual time."""
        return self._clock.time

    # the user

    def submit(self) -> None:
        self._submit(
            OURS,
            TrainerSpec(
                name="ours",
                command=(),
                n_min=1,
                n_max=4,
                samples=12_000,
                curve=((1, 320.0), (4, 1280.0)),
                costs=COSTS,
            ),
        )

    def cancel(self) -> None:
        self._take(TrainerCancelled(time=self._now, trainer=OURS))

    def finish(self) -> None:
        """Virtual time costs nothing."""

    def rival(self, size: int) -> None:
        curve = ((size, 320.0 * size),)
        self._submit(
            RIVAL,
            TrainerSpec(
                name="rival",
                command=(),
                n_min=size,
                n_max=size,
                weight=1000.0,
                curve=curve,
                costs=COSTS,
            ),
        )

    def rival_ends(self) -> None:
        published = self._state.active[RIVAL].published
        self._launcher.forget(RIVAL)
        self._take(TrainerEnded(time=self._now, trainer=RIVAL, generation=published))

    def _submit(self, trainer: int, spec: TrainerSpec) -> None:
        assert self._store.submit(spec, self._now) == trainer
        self._launcher.add(trainer, spec)
        self._take(TrainerSubmitted(time=self._now, trainer=trainer, spec=spec))

    # the main scheduler

    def change(self, *, give: Collection[str] = (), take: Collection[str] = ()) -> None:
        joined, left = frozenset(give), frozenset(take)
        self._idle = (self._idle - left) | joined
        self._forget(left)
        self._take(NodesChanged(time=self._now, joined=joined, left=left, reason="poll"))

    def _forget(self, nodes: frozenset[str]) -> None:
        """All that runs on these nodes is gone."""
        self._launcher.lose(nodes)
        for workers in self._workers.values():
            for node in nodes & workers.keys():
                del workers[node]
                self._waiting.pop(node, None)

    # faults

    def kill_worker(self, *nodes: str) -> None:
        for node in nodes:
            self._die(node, "killed by signal 9", blame=False)

    def kill_agent(self, node: str) -> None:
        self._forget(frozenset({node}))
        self._take(NodesChanged(time=self._now, left=frozenset({node}), reason="its agent is gone"))
        self._later(NodesChanged(time=self._now + BACK_S, joined=frozenset({node})))

    def freeze(self, node: str) -> None:
        worker, run = self._workers[OURS][node], self._launcher.trainers[OURS]
        if worker.phase == "member":  # the others wait for it
            self._launcher.lose(frozenset(run.members))

        def end() -> None:
            if self._workers[OURS].get(node) is worker:
                self._die(node, "stopped, and ended by its agent", blame=False)

        self._do(self._now + HUNG_S, end)

    def end_early(self, *nodes: str) -> None:
        for node in nodes:
            self._die(node, "the program ended by itself", blame=True)

    def _die(self, node: str, reason: str, *, blame: bool) -> None:
        worker = self._workers[OURS][node]
        self._forget(frozenset({node}))
        if self._daemon:
            self._take(
                WorkerLost(
                    time=self._now,
                    trainer=OURS,
                    node=node,
                    generation=worker.generation,
                    reason=reason,
                    blame=blame,
                    samples=self._samples(),
                )
            )

    def kill_daemon(self) -> None:
        self._daemon = False

    def start_daemon(self) -> None:
        self._daemon = True
        stored = [t for t in self._store.trainers() if not t.status.final]
        recorded = frozenset(node for t in stored for node in t.engine.nodes)
        self._state = restore(self._settings, recorded | self._idle, [t.engine for t in stored], self._now)
        gone = recorded - self._idle
        if gone:
            self._take(NodesChanged(time=self._now, left=gone, reason="gone after a restart"))
        for event in missed(self._state, self._workers.__getitem__, self._idle, self._now):
            self._take(event)

    # moments

    def hold(self, node: str, moment: Moment) -> None:
        self._held.add((node, moment))

    def held(self, node: str, moment: Moment) -> bool:
        worker = self._workers[OURS].get(node)
        phase = {"start": "starting", "step": "member"}[moment]
        return worker is not None and worker.phase == phase and (node, moment) in self._held

    def release(self, node: str, moment: Moment) -> None:
        self._held.discard((node, moment))
        if moment == "start" and node in self._waiting:
            self._ready(self._waiting.pop(node))

    def until(self, condition: Callable[[], object], what: str, *, at_once: bool = False) -> None:
        deadline = self._now + PATIENCE_S
        while not condition():
            assert self._now < deadline, f"not within {PATIENCE_S} s: {what}\n{self.trainer()}"
            self._pass(TICK_S)

    def _pass(self, seconds: float) -> None:
        end = self._now + seconds
        while self._agenda and self._agenda[0][0] <= end:
            self._clock.time, _, _, due = heapq.heappop(self._agenda)
            if isinstance(due, TrainerEnded):
                if self._launcher.is_due(due):
                    self._launcher.forget(due.trainer)
                    self._take(due)
            elif isinstance(due, WorkersReady):
                self._ready(due)
            elif isinstance(due, Event):
                self._take(due)
            else:
                due()
        self._clock.time = end

    # what there is to see

    def trainer(self) -> ShownTrainer:
        stored = self._store.trainers()[0]
        live = self._state.trainers.get(OURS)
        return ShownTrainer(
            status=live.status if live else stored.status,
            samples=int(self._samples()),
            work=stored.spec.samples or 0,
            members=live.members if live else (),
            workers={node: worker.phase for node, worker in self._workers[OURS].items()},
            ended=stored.ended_at is not None,
        )

    def events(self) -> list[dict[str, Any]]:
        return self._store.rows("events", None)

    def pauses(self) -> list[dict[str, Any]]:
        return self._store.rows("pauses", None, OURS)

    def audit(self) -> None:
        """The store alone: simulated workers take no notes."""
        assert self._store.trainers()[0].samples == self.trainer().work

    def stop(self) -> None:
        self._take(Drain(time=self._now))

    def processes(self) -> list[str]:
        return [node for workers in self._workers.values() for node in workers]

    def close(self) -> None:
        self._store.close()

    # the daemon's part

    def _later(self, event: Event) -> None:
        heapq.heappush(self._agenda, (event.time, event.priority, next(self._numbers), event))

    def _do(self, time: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (time, 0, next(self._numbers), what))

    def _take(self, event: Event) -> None:
        """Decide, write down, act, as the daemon does."""
        if not self._daemon:
            return
        before = self._state
        outcome = step(before, event, lambda problem: decide(problem, self._settings))
        self._state = outcome.state
        changed = [t for t in outcome.state.active.values() if before.active.get(t.id) is not t]
        ids = self._store.record(
            event, changed, outcome.plan, outcome.actions, outcome.ended, outcome.state.pool
        )
        if outcome.ended is not None:
            self._launcher.forget(outcome.ended.trainer)
            self._report(outcome.ended.trainer)
        for action in outcome.actions:
            self._perform(action)
        self._launcher.perform(outcome.actions)
        for action in outcome.actions:
            if isinstance(action, Regroup) and action.members:
                self._expect(action)
        self._store.performed(ids, self._now)

    def _perform(self, action: Action) -> None:
        workers = self._workers[action.trainer]
        match action:
            case StartWorker():
                workers[action.node] = Worker(action.generation)
            case StopWorker():
                workers.pop(action.node, None)
                self._waiting.pop(action.node, None)
            case Regroup():
                for node in action.leaving:
                    workers.pop(node, None)

    def _ready(self, event: WorkersReady) -> None:
        """Workers report one by one; one that is held, or has been replaced, does not."""
        for node in sorted(event.nodes):
            worker = self._workers[event.trainer].get(node)
            if worker is None or worker.generation != event.generation:
                continue
            mine = WorkersReady(
                time=self._now,
                trainer=event.trainer,
                generation=event.generation,
                nodes=frozenset({node}),
            )
            if (node, "start") in self._held:
                self._waiting[node] = mine
            else:
                worker.phase = "ready"
                self._take(mine)

    def _expect(self, action: Regroup) -> None:
        """The members have joined when the trainer's stall is over, if all of them still live."""
        workers, run = self._workers[action.trainer], self._launcher.trainers[action.trainer]
        new = [n for n in action.members if n in workers and not workers[n].joined]
        kind = "leave" if action.leaving else "loss"
        if new:
            kind = "join" if len(new) < len(action.members) else "restart"
        pause_s = run.stalled_until - self._now

        def join() -> None:
            if run.published != action.generation or set(run.members) != set(action.members):
                return
            for node in action.members:
                survivor = bool(workers[node].joined)
                workers[node].phase, workers[node].joined = "member", action.generation
                if survivor or kind == "restart":
                    self._pause(action, node, kind, pause_s)
            self._report(action.trainer)

        self._do(run.stalled_until, join)

    def _pause(self, action: Regroup, node: str, kind: str, pause_s: float) -> None:
        self._store.pause(
            Pause(
                time=self._now,
                trainer=action.trainer,
                generation=action.generation,
                node=node,
                kind=kind,
                size=len(action.members),
                step=int(self._samples()) // BATCH,
                pause_s=pause_s,
                lost_steps=0,
            )
        )

    def _samples(self) -> float:
        return self._launcher.trainers[OURS].samples_at(self._now) if OURS in self._launcher.trainers else 0.0

    def _report(self, trainer: int) -> None:
        run = self._launcher.trainers[trainer]
        samples = int(run.samples_at(self._now))
        self._store.progress(
            [
                Progress(
                    time=self._now,
                    trainer=trainer,
                    generation=run.published,
                    size=len(run.members),
                    step=samples // BATCH,
                    samples=samples,
                    epoch=0,
                    rate=run.rate,
                    metrics={},
                )
            ]
        )
