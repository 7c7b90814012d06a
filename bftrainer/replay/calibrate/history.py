"""A daemon's history as a replay: what its store says of a time in which it ran.

Taken over as it was: the settings, which nodes came and went when, which trainers were submitted or
cancelled, and the speeds and costs reported to the engine (it decides by that). What each trainer was
like is fitted, see `fit`. Not taken over: workers that died though their node stayed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer.errors import BftrainerError
from bftrainer.files import open_regular, strangers_beside
from bftrainer.messages.files.places import STRANGERS_DATABASE
from bftrainer.messages.files.replays import NO_HISTORY, ODD_HISTORY
from bftrainer.messages.files.tables import NO_FILE
from bftrainer.model.events import Event, Measured, NodesChanged, TrainerCancelled
from bftrainer.model.machine import NodeInfo
from bftrainer.model.policy import EngineSettings
from bftrainer.model.reports import Row, StoredTrainer
from bftrainer.model.trainer import Cost, TrainerStatus
from bftrainer.ports import Store
from bftrainer.replay.calibrate.fit import Fitted, fit
from bftrainer.replay.calibrate.pruned import pool_before, trainers_since
from bftrainer.replay.workload import Submission
from bftrainer.settings.values import Settings
from bftrainer.store.sql import SqlStore

DATABASE = "bftrainer.db"
MAGIC = b"SQLite format 3\0"
DAMAGED = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)
"""Errors raised by values that no daemon would have recorded."""
QUOTED = 200
MOST_S = 1e11
"""No moment is further from 1970."""


class HistoryError(BftrainerError, ValueError):
    """A history that cannot be replayed. The message names the file and what to do."""


class NothingToReplayError(Exception):
    """A record without anything to replay; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A daemon's history over [begin, end) (Unix seconds).

    Attributes:
        settings: By which the daemon decided; the last ones, if it ran several times.
        changes: What came from outside; trainers are numbered from 1 in the order of `submissions`.
        submissions: The trainers.
        fitted: What each of them was like, in the same order.
        drains: When the daemon stopped or was drained; every trainer wrote a checkpoint then.
    """

    begin: float
    end: float
    settings: EngineSettings
    changes: tuple[Event, ...]
    submissions: tuple[Submission, ...]
    fitted: tuple[Fitted, ...]
    drains: frozenset[float] = frozenset()


def is_history(path: Path) -> bool:
    """True if `path` is a daemon's state directory or database, by its content."""
    if path.is_dir():
        return (path / DATABASE).exists()
    try:
        with open_regular(path) as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def load(path: Path) -> History:
    """The history in a state directory or database. The daemon may be running.

    Raises:
        HistoryError: no such file, nothing in it that could be replayed, or strangers can put files beside
            it.
        StoreError: no database of bftrainer.
    """
    path = path / DATABASE if path.is_dir() else path
    if not path.is_file():
        raise HistoryError(
            NO_FILE.say(what=path, kind="file", which="a daemon's --state-dir, or the database in it")
        )
    real = path.resolve()
    if why := strangers_beside(real):
        raise HistoryError(STRANGERS_DATABASE.say(path=path, why=why))
    store = SqlStore(real)
    try:
        return _read(store)
    except NothingToReplayError as error:
        raise HistoryError(f"{path}: {error}") from error
    except DAMAGED as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:QUOTED]
        raise HistoryError(f"{path}: {ODD_HISTORY.say(said=said)}") from error
    finally:
        store.close()


def _read(store: Store) -> History:
    """The history in a store.

    Raises:
        NothingToReplayError: there is none.
        DAMAGED: it holds what no daemon would have recorded, such as impossible settings.
    """
    runs = json.loads(store.get("runs") or "[]")
    events = store.rows("events", None)
    reports = store.rows("reports", None)
    pruned = bool(events) and events[0]["id"] > 1
    every = store.trainers()
    trainers = trainers_since(events[0]["time"], every, reports) if pruned else every
    if not runs or not events or not trainers:
        raise NothingToReplayError(NO_HISTORY.say())
    pauses = store.rows("pauses", None)
    _check_times(*(row["time"] for row in (*events, *reports, *pauses)), *_times_of(trainers))
    begins = [float(run["begin"]) for run in runs]
    drains = frozenset(row["time"] for row in events if row["kind"] == "Drain")
    last = max(row["time"] for row in (*events, *reports))
    end = max(drains) if drains and max(drains) > begins[-1] else last
    if events[0]["time"] > end:
        raise ValueError("its end lies before its begin")
    numbers = {trainer.id: number for number, trainer in enumerate(trainers, start=1)}
    return History(
        begin=events[0]["time"],
        end=end,
        settings=Settings.model_validate(runs[-1]["settings"]).engine,
        changes=(*_changes(_after_submission(events, trainers), begins, numbers), *_ends(trainers, numbers)),
        submissions=tuple(Submission(trainer.submitted_at, trainer.spec) for trainer in trainers),
        fitted=tuple(fit(trainers, events, pauses, reports, end)),
        drains=drains,
    )


def _times_of(trainers: Sequence[StoredTrainer]) -> Iterator[float]:
    for trainer in trainers:
        yield trainer.submitted_at
        yield trainer.submitted_at if trainer.ended_at is None else trainer.ended_at


def _check_times(*times: float) -> None:
    """See that all are moments.

    Raises:
        ValueError: one is none.
    """
    for time in times:
        if not (isinstance(time, float | int) and abs(time) <= MOST_S):
            raise ValueError(f"{ascii(time)[:40]} is no time in seconds since 1970")


def _after_submission(events: Sequence[Row], trainers: Sequence[StoredTrainer]) -> list[Row]:
    """The events without measurements of trainers before their submission: the clock was put back."""
    since = {trainer.id: trainer.submitted_at for trainer in trainers}
    return [
        row
        for row in events
        if row["kind"] != "Measured" or row["time"] >= since.get(row["trainer"], math.inf)
    ]


def _changes(events: Sequence[Row], begins: Sequence[float], numbers: dict[int, int]) -> Iterator[Event]:
    """Events from outside.

    A daemon that stops or is drained gives its nodes up: what it still hears about them until it begins
    again, or is resumed, does not count.
    """
    pool = pool_before(events)
    if pool:
        yield NodesChanged(time=events[0]["time"], joined=pool)
    begins = [*begins, *(row["time"] for row in events if row["kind"] == "Resume")]
    resumes = float("-inf")
    for row in events:
        time = row["time"]
        if time < resumes:
            continue
        match row["kind"]:
            case "NodesChanged":
                change = _nodes_changed(row)
                pool = (pool - change.left) | change.joined
                yield change
            case "Drain":
                yield NodesChanged(time=time, left=pool, reason="drained")
                pool = frozenset()
                resumes = min((begin for begin in begins if begin > time), default=float("inf"))
            case "Measured" if row["trainer"] in numbers:
                yield _measured(row, numbers)


def _nodes_changed(row: Row) -> NodesChanged:
    data = row["data"]
    return NodesChanged(
        time=row["time"],
        left=frozenset(data["left"]),
        joined=frozenset(data["joined"]),
        vacated=frozenset(data.get("vacated", ())),
        reason=data["reason"],
        facts={node: NodeInfo(**known) for node, known in data.get("facts", {}).items()},
    )


def _measured(row: Row, numbers: dict[int, int]) -> Measured:
    """A measurement; the launcher puts it into the membership that it is of in the replay."""
    data, point = row["data"], row["data"]["point"]
    return Measured(
        time=row["time"],
        trainer=numbers[row["trainer"]],
        generation=0,
        point=None if point is None else (point[0], point[1]),
        up=_cost(data["up"]),
        down=_cost(data["down"]),
    )


def _cost(plain: dict[str, Any] | None) -> Cost | None:
    return None if plain is None else Cost(**plain)


def _ends(trainers: Sequence[StoredTrainer], numbers: dict[int, int]) -> Iterator[TrainerCancelled]:
    """The ends that no replay can predict: all but those by work that was known beforehand."""
    for trainer in trainers:
        predictable = trainer.status is TrainerStatus.COMPLETED and trainer.spec.samples is not None
        if trainer.ended_at is not None and not predictable:
            yield TrainerCancelled(time=trainer.ended_at, trainer=numbers[trainer.id])
