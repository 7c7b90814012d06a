"""Reads the files that a scenario names: the log's span, and the events of the chosen nodes in it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from bftrainer.messages.files.logs import FEWER_NODES, NEVER_IDLE, TELLS_NOTHING
from bftrainer.messages.files.places import UNREADABLE
from bftrainer.model.events import NodesChanged
from bftrainer.model.gpus import node_of
from bftrainer.replay.scenario import Scenario
from bftrainer.traces import intervals, logs
from bftrainer.traces.intervals import LogError
from bftrainer.traces.logs import Log, LogOptions, iso, outside

SLACK_S = 3600.0
"""Seconds that a replay may exceed the log's last entry: the last state is assumed to stay."""


def load_log(scenario: Scenario) -> Log:
    """The scenario's log. Replays of the same log in one process read it once.

    Raises:
        LogError: unreadable, or without any interval.
    """
    return _log(scenario.log, scenario.reading, stamp(scenario.log))


def load_changes(scenario: Scenario, begin: float, end: float) -> list[NodesChanged]:
    """Changes of the scenario's nodes in [begin, end) (Unix seconds).

    Raises:
        LogError: unreadable, fewer nodes than are asked for, or none of them is ever idle.
    """
    found = _changes(
        scenario.log, scenario.reading, stamp(scenario.log), scenario.nodes, scenario.pick, begin, end
    )
    if not any(change.joined for change in found):
        said = NEVER_IDLE.say(begin=iso(begin), end=iso(end))
        raise LogError(f"{scenario.log}: {said}")
    return found


def span(scenario: Scenario, log: Log) -> tuple[float, float]:
    """Begin and end of the replay (Unix seconds).

    Raises:
        LogError: outside of the log's span.
    """
    begin = log.begin if scenario.begin is None else scenario.begin
    end = log.end if scenario.hours is None else begin + scenario.hours * 3600
    if not (log.begin <= begin < log.end) or end <= begin:
        raise LogError(f"{scenario.log}: {outside(log, f'--from {iso(begin)}')}")
    if end > log.end + SLACK_S:
        asked = f"--from {iso(begin)} --hours {scenario.hours:g}"
        raise LogError(f"{scenario.log}: {outside(log, asked)}")
    return begin, end


def chosen(names: Sequence[str], nodes: int | None, pick: int | None) -> frozenset[str]:
    """Selects `nodes` of them, all their GPUs where these are named: the first by name, or chosen at random
    by the seed `pick`; None: all.

    Raises:
        LogError: there are fewer nodes.
    """
    if nodes is None:
        return frozenset(names)
    ordered = sorted(set(map(node_of, names)))
    if nodes > len(ordered):
        raise LogError(FEWER_NODES.say(asked=nodes, there=len(ordered)))
    first = ordered[:nodes] if pick is None else random.Random(pick).sample(ordered, nodes)  # noqa: S311
    own = frozenset(first)
    return frozenset(name for name in names if node_of(name) in own)


def stamp(path: Path) -> tuple[int, int]:
    """A file's size and time of modification (ns): changes when the file does.

    Raises:
        LogError: there is no such file.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise LogError(UNREADABLE.say(path=path, why=error.strerror)) from error
    return found.st_size, found.st_mtime_ns


@lru_cache(maxsize=1)
def _log(path: Path, reading: LogOptions, stamp: tuple[int, int]) -> Log:
    log = logs.load(path, reading)
    if not log.intervals:
        said = TELLS_NOTHING.say(why="no node is idle in it")
        raise LogError(f"{path}: {said}")
    return log


@lru_cache(maxsize=1)
def _changes(
    path: Path,
    reading: LogOptions,
    stamp: tuple[int, int],
    nodes: int | None,
    pick: int | None,
    begin: float,
    end: float,
) -> list[NodesChanged]:
    """Cached, as a sweep replays the same nodes and hours many times."""
    log = _log(path, reading, stamp)
    return intervals.changes(log.intervals, chosen(sorted(log.nodes), nodes, pick), begin, end)
