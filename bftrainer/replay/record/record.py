"""What a replay leaves behind for its report: one gzipped JSON file, `*.json.gz`.

Long tables are stored by column. Times in tables are seconds since the beginning of the replay.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import zlib
from array import array
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bftrainer.engine.state import State, Step
from bftrainer.errors import BftrainerError
from bftrainer.model.events import Event
from bftrainer.model.policy import EngineSettings
from bftrainer.performance.curve import Floats
from bftrainer.replay.figures import dedicated_samples
from bftrainer.replay.tally import Result, changed
from bftrainer.replay.trainers.launcher import SimulatedLauncher
from bftrainer.replay.trainers.simulated import SimulatedTrainer
from bftrainer.replay.workload import Submission
from bftrainer.settings.values import NO_VALUE

FORMAT = "bftrainer replay 1"
SUFFIX = ".json.gz"
WINDOW_S = 6 * 3600.0
"""U and E are looked at per six hours, as in figure 10 of the paper."""
SHORT_S = 4 * WINDOW_S
"""Replays below have eight windows, so that there is a course to be seen."""


def window_s(span: float) -> float:
    """How long the windows of a replay of so many seconds are."""
    return WINDOW_S if span >= SHORT_S else span / 8


class ReplayRecordError(BftrainerError, ValueError):
    """A file that holds no record of a replay, or cannot be written. The message names it."""


class Moments(NamedTuple):
    """The state after all that happened at one moment, a row a moment, in order.

    `pool` and `used` count nodes, the others are totals since the beginning: samples processed, the
    node-time (s) in which single nodes would have processed them, and what rescales and preemptions cost
    (samples, see `SimulatedTrainer`).
    """

    time: Floats
    pool: Floats
    used: Floats
    samples: Floats
    linear_node_s: Floats
    rescale_samples: Floats
    preemption_samples: Floats


class Decisions(NamedTuple):
    """The decisions, in order. `preempted`: 1 where a trainer lost nodes within T_fwd after it, else 0."""

    time: Floats
    t_fwd_s: Floats
    preempted: Floats


class Stays(NamedTuple):
    """Stays of a node in the pool (trainer 0) and with a trainer; `node` is a place in `ReportData.nodes`."""

    node: Floats
    trainer: Floats
    begin: Floats
    end: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerRow:
    """One trainer; what it has not come to is None. `completed`: its work was done."""

    id: int
    name: str
    model: str
    submitted: float
    started: float | None
    ended: float | None
    completed: bool
    samples: float
    node_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Some hours of a replay. U and E are None where there was no node or no trainer.

    `nodes` is the pool's mean. U is what was processed over what the same trainers would have processed
    on as many dedicated nodes: with what was left to do of each when the window began, under the
    best static allocation, without rescale costs.
    """

    begin: float
    end: float
    nodes: float
    samples: float
    efficiency_u: float | None
    linear_efficiency: float | None
    rescale_samples: float
    preemption_samples: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """A finished replay. `begin` and `end` are Unix seconds."""

    name: str
    begin: float
    end: float
    parameters: Mapping[str, Any]
    figures: Mapping[str, Any]
    nodes: tuple[str, ...]
    moments: Moments
    decisions: Decisions
    stays: Stays
    trainers: tuple[TrainerRow, ...]
    windows: tuple[Window, ...]


# --- taking it down ------------------------------------------------------------------------------


class _Totals(NamedTuple):
    """The last four columns of `Moments`."""

    samples: float = 0.0
    linear_node_s: float = 0.0
    rescale_samples: float = 0.0
    preemption_samples: float = 0.0

    def plus(self, own: SimulatedTrainer, now: float) -> _Totals:
        samples = own.samples_at(now)
        return _Totals(
            self.samples + samples,
            self.linear_node_s + own.linear_node_s(samples),
            self.rescale_samples + own.rescaled_samples,
            self.preemption_samples + own.preempted_samples,
        )


NOTHING = _Totals()


class _Border(NamedTuple):
    """How far everything was between two windows; `samples` of every trainer that was not over."""

    time: float
    node_s: float
    totals: _Totals
    samples: dict[int, float]
    over: frozenset[int]


@dataclass(slots=True)
class Recorder:
    """Observes the replay of [begin, end); `record` gives what it saw."""

    begin: float
    end: float
    _now: float = field(init=False)
    _pool: int = 0
    _node_s: float = 0.0
    _over: set[int] = field(default_factory=set)  # trainers that are
    _over_totals: _Totals = NOTHING
    _moments: list[tuple[float, ...]] = field(default_factory=list)
    _nodes: dict[str, int] = field(default_factory=dict)
    _since: dict[tuple[str, int], float] = field(default_factory=dict)  # (node, trainer) -> when it came
    _stays: array[float] = field(default_factory=lambda: array("d"))
    _borders: list[_Border] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._now = self.begin

    def wait(self, until: float, launcher: SimulatedLauncher) -> None:
        while (border := self._next_border()) <= until:
            self._borders.append(
                _Border(
                    border,
                    self._node_s + self._pool * (border - self._now),
                    self._totals(border, launcher),
                    {id_: r.samples_at(border) for id_, r in launcher.trainers.items() if r.ended_at is None},
                    frozenset(self._over),
                )
            )
        self._node_s += self._pool * (until - self._now)
        self._now = until

    def note(self, event: Event, before: State, step: Step, launcher: SimulatedLauncher) -> None:
        now, state = event.time, step.state
        if before.pool is not state.pool:
            self._follow(0, before.pool, state.pool, now)
        for old, trainer in changed(before, state):
            self._follow(trainer.id, old.nodes if old else frozenset(), trainer.nodes, now)
        if step.ended is not None:
            id_ = step.ended.trainer
            if id_ in before.active:
                self._follow(id_, before.active[id_].nodes, frozenset(), now)
            self._over.add(id_)
            self._over_totals = self._over_totals.plus(launcher.trainers[id_], now)
        self._pool = len(state.pool)
        used = sum(len(t.nodes) for t in state.active.values())
        if self._moments and self._moments[-1][0] == now:
            self._moments.pop()
        self._moments.append((now, self._pool, used, *self._totals(now, launcher)))

    def record(
        self,
        name: str,
        parameters: Mapping[str, Any],
        figures: Mapping[str, Any],
        result: Result,
        workload: Sequence[Submission],
        settings: EngineSettings,
    ) -> ReportData:
        """What was seen, once the replay is over."""
        for (node, trainer), since in self._since.items():
            self._stays.extend((self._nodes[node], trainer, since, self.end))
        self._since.clear()
        moments = np.array(self._moments, dtype=float).reshape(-1, len(Moments._fields))
        moments[:, 0] -= self.begin
        stays = np.array(self._stays).reshape(-1, len(Stays._fields))
        stays[:, 2:] -= self.begin
        stays = stays[np.lexsort((stays[:, 1], stays[:, 0], stays[:, 2]))]  # by begin, node, trainer
        times, spans = np.array(result.tally.decisions, dtype=float).reshape(-1, 2).T
        decisions = Decisions(times - self.begin, spans, result.tally.refuted.astype(float))
        return ReportData(
            name=name,
            begin=self.begin,
            end=self.end,
            parameters=parameters,
            figures=figures,
            nodes=tuple(self._nodes),
            moments=Moments(*moments.T),
            decisions=decisions,
            stays=Stays(*stays.T),
            trainers=tuple(
                _row(id_, own, workload[id_ - 1].model, self.begin) for id_, own in result.trainers.items()
            ),
            windows=tuple(
                _window(one, two, workload, settings, self.begin)
                for one, two in zip(self._borders[:-1], self._borders[1:], strict=True)
            ),
        )

    def _next_border(self) -> float:
        """The windows' borders, from the begin to the end."""
        if not self._borders:
            return self.begin
        last = self._borders[-1].time
        if last >= self.end:
            return math.inf
        border = self.begin + len(self._borders) * window_s(self.end - self.begin)
        return border if border < self.end - 1e-3 else self.end  # no last window of a rounding error

    def _totals(self, now: float, launcher: SimulatedLauncher) -> _Totals:
        totals = self._over_totals
        for own in launcher.busy:
            totals = totals.plus(own, now)
        return totals

    def _follow(self, trainer: int, old: frozenset[str], new: frozenset[str], now: float) -> None:
        """Nodes come to a trainer or leave it; trainer 0 is the pool."""
        for node in old - new:
            since = self._since.pop((node, trainer))
            if since < now:
                self._stays.extend((self._nodes[node], trainer, since, now))
        for node in new - old:
            self._nodes.setdefault(node, len(self._nodes))
            self._since[node, trainer] = now


def _row(id_: int, own: SimulatedTrainer, model: str, begin: float) -> TrainerRow:
    return TrainerRow(
        id=id_,
        name=own.spec.name,
        model=model,
        submitted=own.submitted_at - begin,
        started=None if own.first_node_at is None else own.first_node_at - begin,
        ended=None if own.ended_at is None else own.ended_at - begin,
        completed=own.completed,
        samples=own.samples,
        node_s=own.node_s,
    )


def _window(
    one: _Border, two: _Border, workload: Sequence[Submission], settings: EngineSettings, begin: float
) -> Window:
    """The window between two borders."""
    node_s = two.node_s - one.node_s
    nodes = node_s / (two.time - one.time)
    left = [
        replace(s, spec=replace(s.spec, samples=_left(s.spec.samples, one.samples.get(id_, 0.0))))
        for id_, s in enumerate(workload, start=1)
        if id_ not in one.over and s.time < two.time
    ]
    static = dedicated_samples(left, settings, nodes, one.time, two.time) if left else 0.0
    done = _Totals(*(b - a for a, b in zip(one.totals, two.totals, strict=True)))
    return Window(
        begin=one.time - begin,
        end=two.time - begin,
        nodes=nodes,
        samples=done.samples,
        efficiency_u=done.samples / static if static else None,
        linear_efficiency=done.linear_node_s / node_s if node_s and left else None,
        rescale_samples=done.rescale_samples,
        preemption_samples=done.preemption_samples,
    )


def _left(samples: int | None, done: float) -> int | None:
    """What is left to do; somebody who is not over has something left."""
    return None if samples is None else max(1, round(samples - done))


# --- files ---------------------------------------------------------------------------------------


def write(record: ReportData, path: Path) -> None:
    """Write a record whole or not at all.

    Raises:
        ReplayRecordError: the file cannot be written.
    """
    plain = {
        "format": FORMAT,
        "name": record.name,
        "begin": record.begin,
        "end": record.end,
        "parameters": record.parameters,
        "figures": record.figures,
        "nodes": record.nodes,
        "trainers": [asdict(trainer) for trainer in record.trainers],
        "windows": [asdict(window) for window in record.windows],
        "moments": _columns(record.moments),
        "decisions": _columns(record.decisions),
        "stays": _columns(record.stays),
    }
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as file:
            file.write(json.dumps(plain, separators=(",", ":")).encode())
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise ReplayRecordError(f"{path}: {error.strerror or error}; choose another file") from error


def spoken(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The same, with the words for settings that are left open."""
    return {name: NO_VALUE.get(name) if value is None else value for name, value in parameters.items()}


def read(path: Path) -> ReportData:
    """The record in a file.

    Raises:
        ReplayRecordError: unreadable, or no record of a replay.
    """
    try:
        with gzip.open(path) as file:
            plain = json.load(file)
        if not isinstance(plain, dict) or plain.get("format") != FORMAT:
            raise ValueError("another format")
        return ReportData(
            nodes=tuple(plain["nodes"]),
            moments=Moments(**_arrays(plain["moments"])),
            decisions=Decisions(**_arrays(plain["decisions"])),
            stays=Stays(**_arrays(plain["stays"])),
            trainers=tuple(TrainerRow(**row) for row in plain["trainers"]),
            windows=tuple(Window(**row) for row in plain["windows"]),
            **{name: plain[name] for name in ("name", "begin", "end", "parameters", "figures")},
        )
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise ReplayRecordError(
            f"{path}: no record of a replay ({error}); write one with bftrainer replay --out NAME{SUFFIX}"
        ) from error


def _columns(table: NamedTuple) -> dict[str, list[float]]:
    """To the millisecond, or the sample; whole numbers without a point."""
    return {
        name: [int(x) if x.is_integer() else x for x in np.round(column, 3).tolist()]
        for name, column in zip(table._fields, table, strict=True)
    }


def _arrays(plain: Mapping[str, Sequence[float]]) -> dict[str, Floats]:
    return {name: np.array(column, dtype=float) for name, column in plain.items()}
