"""A daemon's own books as a replay: what it predicts is held against what really happened.

Taken over from the record: the settings, which nodes came and went when, which trainers were
submitted or cancelled, and what the engine was told of speeds and costs (it decides by that).

Fitted to it, see `fit`: every trainer's mean speed on each number of nodes, how long a rescale made
it stand still, how long workers took to start around that time, how long a trainer took to exit.

Predicted, by the engine and the simulated launcher: who gets which nodes when, hence for how long
every trainer trains on how many nodes, stands still or waits for workers; what it loses with all its
nodes at once, going back to its last checkpoint; when its work is done; and so how many samples are
processed. Not replayed: workers that die though their node stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bftrainer.errors import BftrainerError
from bftrainer.model.actions import Regroup, StartWorker
from bftrainer.model.events import Event, Measured, NodesChanged, TrainerCancelled
from bftrainer.model.machine import NodeInfo
from bftrainer.model.policy import EngineSettings
from bftrainer.model.reports import Row, StoredTrainer
from bftrainer.model.trainer import ASSUMED_COSTS, Cost, RescaleCosts, TrainerSpec, TrainerStatus
from bftrainer.ports import Store
from bftrainer.replay.calibrate.fit import Fitted, fit
from bftrainer.replay.loop import Progress, replay
from bftrainer.replay.tally import Result
from bftrainer.replay.trainers.launcher import SimulatedLauncher
from bftrainer.replay.trainers.simulated import SimulatedTrainer
from bftrainer.replay.workload import Submission
from bftrainer.settings.values import Settings
from bftrainer.store.sql import SqlStore

DATABASE = "bftrainer.db"
MAGIC = b"SQLite format 3\0"


class RecordError(BftrainerError, ValueError):
    """Journal that cannot be replayed. The message names the file and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A record, ready to be replayed over [begin, end) (Unix seconds).

    `changes` are what came from outside; its trainers are numbered from 1 in the order of
    `submissions`, and `fitted` has one entry for each of them. At `drains` the daemon stopped: every
    trainer wrote a checkpoint then.
    """

    begin: float
    end: float
    settings: EngineSettings
    changes: tuple[Event, ...]
    submissions: tuple[Submission, ...]
    fitted: tuple[Fitted, ...]
    drains: frozenset[float] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Samples processed, by one trainer or by all; with those that were trained twice."""

    name: str
    recorded: float
    predicted: float

    @property
    def difference(self) -> float | None:
        """Of the prediction, relative to the record; None where nothing was recorded."""
        return (self.predicted - self.recorded) / self.recorded if self.recorded else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A record beside its replay."""

    trainers: tuple[Line, ...]
    total: Line
    result: Result


def is_record(path: Path) -> bool:
    """Whether `path` is a daemon's state directory or database, by what it holds."""
    if path.is_dir():
        return (path / DATABASE).exists()
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def load(path: Path) -> History:
    """The record in a state directory or database. The daemon may be running.

    Raises:
        RecordError: no such file, or nothing in it that could be replayed.
        StoreError: no database of ours.
    """
    path = path / DATABASE if path.is_dir() else path
    if not path.is_file():
        raise RecordError(f"{path}: no such file; give a daemon's --state-dir, or the database in it")
    store = SqlStore(path)
    try:
        return _read(store)
    except ValueError as error:
        raise RecordError(f"{path}: {error}") from error
    finally:
        store.close()


def compare(recorded: History, progress: Progress = lambda now: None) -> Comparison:
    """Replay the record and put what it predicts beside it. `progress` takes the virtual time."""
    result = replay(
        recorded.changes,
        recorded.submissions,
        recorded.settings,
        recorded.begin,
        recorded.end,
        progress,
        simulate=lambda emit: RecordedLauncher(emit, recorded),
    )
    lines = tuple(
        Line(
            name=submission.spec.name,
            recorded=fitted.processed,
            predicted=result.trainers[id_].samples + result.trainers[id_].repeated,
        )
        for id_, (submission, fitted) in enumerate(
            zip(recorded.submissions, recorded.fitted, strict=True), start=1
        )
    )
    total = Line(
        name="all trainers",
        recorded=sum(line.recorded for line in lines),
        predicted=sum(line.predicted for line in lines),
    )
    return Comparison(trainers=lines, total=total, result=result)


# --- from rows to a record -----------------------------------------------------------------------


def _read(store: Store) -> History:
    runs = json.loads(store.get("runs") or "[]")
    events = store.rows("events", None)
    reports = store.rows("reports", None)
    trainers = store.trainers()
    if not runs or not events or not trainers:
        raise ValueError("no run of a daemon with trainers is recorded in it; submit some and try again")
    begins = [float(run["begin"]) for run in runs]
    drains = frozenset(row["time"] for row in events if row["kind"] == "Drain")
    last = max(row["time"] for row in (*events, *reports))
    end = max(drains) if drains and max(drains) > begins[-1] else last
    numbers = {trainer.id: number for number, trainer in enumerate(trainers, start=1)}
    return History(
        begin=events[0]["time"],
        end=end,
        settings=Settings.model_validate(runs[-1]["settings"]).engine,
        changes=(*_changes(events, begins, numbers), *_ends(trainers, numbers)),
        submissions=tuple(Submission(trainer.submitted_at, trainer.spec) for trainer in trainers),
        fitted=tuple(fit(trainers, events, store.rows("pauses", None), reports, end)),
        drains=drains,
    )


def _changes(events: Sequence[Row], begins: Sequence[float], numbers: dict[int, int]) -> Iterator[Event]:
    """What came from outside. A daemon that stops or is drained gives its nodes up, whatever it still hears
    of them."""
    pool = frozenset[str]()
    begins = [*begins, *(row["time"] for row in events if row["kind"] == "Resume")]
    resumes = float("-inf")
    for row in events:
        time, data = row["time"], row["data"]
        if time < resumes:
            continue
        match row["kind"]:
            case "NodesChanged":
                change = NodesChanged(
                    time=time,
                    left=frozenset(data["left"]),
                    joined=frozenset(data["joined"]),
                    vacated=frozenset(data.get("vacated", ())),
                    reason=data["reason"],
                    facts={node: NodeInfo(**known) for node, known in data.get("facts", {}).items()},
                )
                pool = (pool - change.left) | change.joined
                yield change
            case "Drain":
                yield NodesChanged(time=time, left=pool, reason="drained")
                pool = frozenset()
                resumes = min((begin for begin in begins if begin > time), default=float("inf"))
            case "Measured":
                point = data["point"]
                yield Measured(
                    time=time,
                    trainer=numbers[row["trainer"]],
                    generation=0,
                    point=None if point is None else (point[0], point[1]),
                    up=_cost(data["up"]),
                    down=_cost(data["down"]),
                )


def _cost(plain: dict[str, Any] | None) -> Cost | None:
    return None if plain is None else Cost(**plain)


def _ends(trainers: Sequence[StoredTrainer], numbers: dict[int, int]) -> Iterator[TrainerCancelled]:
    """The ends that no replay can foresee: all but those by work that was known beforehand."""
    for trainer in trainers:
        foreseen = trainer.status is TrainerStatus.COMPLETED and trainer.spec.samples is not None
        if trainer.ended_at is not None and not foreseen:
            yield TrainerCancelled(time=trainer.ended_at, trainer=numbers[trainer.id])


# --- trainers as they were -----------------------------------------------------------------------


@dataclass(slots=True)
class _Saved:
    """A trainer's checkpoints: one every so often since `since`, when `node` became its rank 0.

    `samples` says how far it was at which times since then.
    """

    node: str
    since: float
    times: list[float]
    samples: list[float]

    def at(self, now: float, every_s: float) -> float:
        """The samples in the last checkpoint before `now`."""
        last = self.since + (now - self.since) // every_s * every_s
        return float(np.interp(last, self.times, self.samples))


class RecordedLauncher(SimulatedLauncher):
    """Simulates trainers as they were measured to be, whatever their specs say.

    As in life, rank 0 writes a checkpoint every `checkpoint_every_s`, and a trainer that loses all its
    nodes at once goes on from the last one.
    """

    def __init__(self, emit: Callable[[Event], None], recorded: History) -> None:
        super().__init__(emit)
        self._recorded = recorded
        self._saved: dict[int, _Saved] = {}

    def submit(self, trainer: int, spec: TrainerSpec, now: float) -> None:
        fitted = self._recorded.fitted[trainer - 1]
        super().submit(trainer, replace(spec, curve=fitted.curve or spec.curve), now)
        run = self.trainers[trainer]
        run.exit_s = fitted.exit_s
        run.costs = RescaleCosts(up=Cost(stall_s=fitted.stall_up_s), down=Cost(stall_s=fitted.stall_down_s))

    def init_s(self, action: StartWorker, now: float) -> float:
        """As long as the start nearest in time took, if possible of that very node."""
        starts = self._recorded.fitted[action.trainer - 1].starts
        if not starts:
            return ASSUMED_COSTS.up.init_s
        return min(starts, key=lambda start: (abs(start[0] - now), start[1] != action.node))[2]

    def lose(self, nodes: frozenset[str], now: float) -> None:
        hit = [id_ for id_, run in self.trainers.items() if not nodes.isdisjoint(run.members)]
        super().lose(nodes, now)
        for id_ in hit:
            run, saved = self.trainers[id_], self._saved[id_]
            saved.times.append(now)
            saved.samples.append(run.samples)
            if not run.members and now not in self._recorded.drains:
                kept = saved.at(now, run.spec.checkpoint_every_s)
                run.repeated += run.samples - kept
                run.samples = kept
                del self._saved[id_]

    def regroup(self, trainer: SimulatedTrainer, action: Regroup, now: float) -> None:
        super().regroup(trainer, action, now)
        if not trainer.members:
            return
        saved = self._saved.get(action.trainer)
        if saved is None or saved.node != trainer.members[0]:
            saved = self._saved[action.trainer] = _Saved(trainer.members[0], now, [], [])
        saved.times.append(now)
        saved.samples.append(trainer.samples)
