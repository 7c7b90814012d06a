"""This machine as a cluster, as settings and log have it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from bftrainer.errors import BftrainerError
from bftrainer.model.events import NodesChanged
from bftrainer.schedulers.local.gpus import gpus_here, shared_out
from bftrainer.schedulers.local.scheduler import LocalScheduler, Playback
from bftrainer.schedulers.shared.context import Context, Log
from bftrainer.traces import intervals, logs
from bftrainer.traces.synthetic import onoff

PLAYED = "local"
"""The store's key for which log is played, and since when."""


def make(context: Context) -> LocalScheduler:
    """The scheduler that plays the log. Log time keeps running while the daemon is stopped: a restart finds
    the log where it would be. A log that is over is played from its beginning again.

    Raises:
        BftrainerError: nothing happens in the log.
    """
    own = context.settings
    names, begin, end, changes = _read(context.log)
    return LocalScheduler(
        nodes=names,
        changes=changes,
        playback=_playback(context, begin, end),
        agents_at=context.agents_at,
        log_dir=own.state_dir / "logs",
        orphan_s=own.orphan_s,
        clock=context.clock,
        environ=_gpus(context, names),
    )


def _read(log: Log) -> tuple[frozenset[str], float, float, Iterable[NodesChanged]]:
    """The log's nodes, the log times of its begin and end, and what happens between."""
    if log.path is None:
        names = onoff.names(log.nodes)
        return names, 0.0, float("inf"), onoff.changes(log.nodes, seed=log.seed)
    fragments = logs.load(log.path).intervals
    if not fragments:
        raise BftrainerError(f"{log.path}: no intervals")
    names = intervals.first_nodes(fragments, log.nodes)
    begin = min(f.start for f in fragments if f.node in names) if log.begin is None else log.begin
    changes = intervals.changes(fragments, names, begin, float("inf"))
    end = changes[-1].time
    if begin >= end:
        raise BftrainerError(f"{log.path}: nothing happens to {', '.join(sorted(names))} after --from")
    return names, begin, end, changes


def _gpus(context: Context, names: frozenset[str]) -> dict[str, dict[str, str]]:
    each = context.log.gpus
    here = gpus_here(os.environ) if each else []
    if each and len(here) < each * len(names):
        there = (
            f"this machine has {len(here)} GPUs, and {len(names)} nodes with {each} need {each * len(names)}"
        )
        context.say(f"{there}: they are simulated, and workers compute on the CPU")
    return shared_out(names, each, here)


def _playback(context: Context, begin: float, end: float) -> Playback:
    """Since when this log is played: since an earlier daemon began with it, or from now on."""
    log, now = context.log, context.clock.now()
    what = json.dumps([str(log.path and log.path.resolve()), log.speed, log.nodes, log.seed, begin])
    remembered = _remembered(context.store.get(PLAYED) or "")
    origin = remembered[1] if remembered[0] == what else now
    if begin + (now - origin) * log.speed > end:
        context.say("the log is over: it is played from its beginning again")
        origin = now
    if [what, origin] != remembered:
        context.store.put(PLAYED, json.dumps([what, origin]))
    return Playback(begin=begin, origin=origin, speed=log.speed)


def _remembered(stored: str) -> list[Any]:
    """Which log an earlier daemon began with, and when; none, where what is stored is damaged."""
    try:
        match json.loads(stored):
            case [str(what), float(origin) | int(origin)]:
                return [what, origin]
    except (ValueError, RecursionError):
        pass
    return [None, 0.0]
