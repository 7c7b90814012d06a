"""Takes down while a replay runs what its report needs."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bftrainer.engine.state import State, Step
from bftrainer.model.events import Event
from bftrainer.model.policy import EngineSettings
from bftrainer.replay.record import windows
from bftrainer.replay.record.data import Decisions, Moments, ReportData, Stays, TrainerRow
from bftrainer.replay.record.windows import Border, RunningTotals
from bftrainer.replay.tally import ByClass, Result, Tally, by_class, changed, plus
from bftrainer.replay.trainers.launcher import SimulatedLauncher
from bftrainer.replay.trainers.simulated import SimulatedTrainer
from bftrainer.replay.workload import Submission


@dataclass(slots=True)
class Recorder:
    """Observes the replay of [begin, end) (see `loop.Observer`); `report_data` gives what it saw."""

    begin: float
    end: float
    _now: float = field(init=False)
    _pool: ByClass = field(default_factory=dict)
    _node_s: ByClass = field(default_factory=dict)
    _ended: set[int] = field(default_factory=set)
    _ended_totals: RunningTotals = field(default_factory=RunningTotals)
    _moments: list[tuple[float, ...]] = field(default_factory=list)
    _nodes: dict[str, int] = field(default_factory=dict)
    _since: dict[tuple[str, int], float] = field(default_factory=dict)  # (node, trainer) -> when it came
    _stays: array[float] = field(default_factory=lambda: array("d"))
    _borders: list[Border] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._now = self.begin

    def wait(self, until: float, launcher: SimulatedLauncher) -> None:
        """Nothing changes before `until`: take down the borders of windows that lie before."""
        while (border := self._next_border()) <= until:
            running = {id_: t for id_, t in launcher.trainers.items() if t.ended_at is None}
            self._borders.append(
                Border(
                    border,
                    plus(self._node_s, self._pool, border - self._now),
                    self._totals(border, launcher),
                    {id_: trainer.samples_at(border) for id_, trainer in running.items()},
                    frozenset(self._ended),
                )
            )
        self._node_s = plus(self._node_s, self._pool, until - self._now)
        self._now = until

    def note(self, event: Event, before: State, step: Step, launcher: SimulatedLauncher) -> None:
        """Take down what an event changed."""
        now, state = event.time, step.state
        if before.pool is not state.pool:
            self._pool = by_class(state)
            self._follow(0, before.pool, state.pool, now)
        for old, trainer in changed(before, state):
            self._follow(trainer.id, old.nodes if old else frozenset(), trainer.nodes, now)
        if step.ended is not None:
            id_ = step.ended.trainer
            if id_ in before.active:
                self._follow(id_, before.active[id_].nodes, frozenset(), now)
            self._ended.add(id_)
            self._ended_totals = self._ended_totals.plus(launcher.trainers[id_], now)
        if self._moments and self._moments[-1][0] == now:
            self._moments.pop()
        self._moments.append((now, len(state.pool), state.held, *self._totals(now, launcher)))

    def report_data(
        self,
        name: str,
        parameters: Mapping[str, Any],
        figures: Mapping[str, Any],
        result: Result,
        workload: Sequence[Submission],
        settings: EngineSettings,
    ) -> ReportData:
        """The recorded data, once the replay is over."""
        moments = np.array(self._moments, dtype=float).reshape(-1, len(Moments._fields))
        moments[:, 0] -= self.begin
        return ReportData(
            name=name,
            begin=self.begin,
            end=self.end,
            parameters=parameters,
            figures=figures,
            nodes=tuple(self._nodes),
            moments=Moments(*moments.T),
            decisions=self._decisions(result.tally),
            stays=self._all_stays(),
            trainers=tuple(
                self._row(id_, trainer, workload[id_ - 1].model) for id_, trainer in result.trainers.items()
            ),
            windows=tuple(
                windows.between(first, last, workload, settings, self.begin)
                for first, last in zip(self._borders[:-1], self._borders[1:], strict=True)
            ),
        )

    def _next_border(self) -> float:
        """Time at which the next window begins or the last one ends; infinity if none is left."""
        if not self._borders:
            return self.begin
        last = self._borders[-1].time
        if last >= self.end:
            return math.inf
        border = self.begin + len(self._borders) * windows.window_s(self.end - self.begin)
        return border if border < self.end - 1e-3 else self.end  # no last window of a rounding error

    def _totals(self, now: float, launcher: SimulatedLauncher) -> RunningTotals:
        """Those of all trainers up to `now`."""
        totals = self._ended_totals
        for trainer in launcher.busy:
            totals = totals.plus(trainer, now)
        return totals

    def _follow(self, trainer: int, old: frozenset[str], new: frozenset[str], now: float) -> None:
        """Nodes come to a trainer or leave it; trainer 0 is the pool."""
        for node in sorted(old - new):
            since = self._since.pop((node, trainer))
            if since < now:
                self._stays.extend((self._nodes[node], trainer, since, now))
        for node in sorted(new - old):
            self._nodes.setdefault(node, len(self._nodes))
            self._since[node, trainer] = now

    def _decisions(self, tally: Tally) -> Decisions:
        times, spans = np.array(tally.decisions, dtype=float).reshape(-1, 2).T
        return Decisions(times - self.begin, spans, tally.refuted.astype(float))

    def _all_stays(self) -> Stays:
        """Those that are over, and those that the end of the replay cuts, by begin, node and trainer."""
        for (node, trainer), since in self._since.items():
            self._stays.extend((self._nodes[node], trainer, since, self.end))
        self._since.clear()
        stays = np.array(self._stays).reshape(-1, len(Stays._fields))
        stays[:, 2:] -= self.begin
        stays = stays[np.lexsort((stays[:, 1], stays[:, 0], stays[:, 2]))]
        return Stays(*stays.T)

    def _row(self, id_: int, trainer: SimulatedTrainer, model: str) -> TrainerRow:
        return TrainerRow(
            id=id_,
            name=trainer.spec.name,
            model=model,
            submitted=trainer.submitted_at - self.begin,
            started=None if trainer.first_node_at is None else trainer.first_node_at - self.begin,
            ended=None if trainer.ended_at is None else trainer.ended_at - self.begin,
            completed=trainer.completed,
            samples=trainer.samples,
            node_s=trainer.node_s,
        )
