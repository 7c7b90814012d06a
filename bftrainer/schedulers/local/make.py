"""This machine as a cluster, as settings and log have it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from bftrainer.errors import BftrainerError
from bftrainer.messages.files.logs import NOTHING_HAPPENS
from bftrainer.messages.files.tables import NOTHING_THERE
from bftrainer.model.events import NodesChanged
from bftrainer.model.gpus import gpus_of, node_of
from bftrainer.schedulers.local.gpus import gpus_here, one_by_one, shared_out
from bftrainer.schedulers.local.main_jobs import MainJobsFile
from bftrainer.schedulers.local.scheduler import LocalScheduler, Playback
from bftrainer.schedulers.shared.context import Context, PlayedLog
from bftrainer.settings.values import Settings
from bftrainer.traces import intervals, logs
from bftrainer.traces.formats.options import LogOptions
from bftrainer.traces.synthetic import onoff

PLAYED = "local"
"""The store's key for which log is played, and since when."""


def make(context: Context) -> LocalScheduler:
    """The scheduler that plays the log. Log time keeps running while the daemon is stopped: a restart finds
    the log where it would be. A log that is over is played from its beginning again.

    Raises:
        BftrainerError: nothing happens in the log.
    """
    settings = context.settings
    each = gpus_shared(settings, context.log)
    names, begin, end, changes = read(context.log, each)
    return LocalScheduler(
        nodes=names,
        changes=changes,
        playback=_playback(context, begin, end),
        agents_at=context.agents_at,
        log_dir=settings.state_dir / "logs",
        orphan_s=settings.orphan_s,
        clock=context.clock,
        environ=_gpus(context, names, each),
        jobs=MainJobsFile(context.log.main_jobs, names) if context.log.main_jobs else None,
    )


def gpus_shared(settings: Settings, log: PlayedLog) -> int:
    """Return how many GPUs of each node are shared out one by one; 0: nodes are."""
    return (log.gpus or settings.gpus_per_node) if settings.share == "gpu" else 0


def read(log: PlayedLog, each: int) -> tuple[frozenset[str], float, float, Iterable[NodesChanged]]:
    """The names of the log's nodes, or of their GPUs where `each` of a node's are shared out; the log times
    of its begin and end, and what happens between.

    Raises:
        BftrainerError: it cannot be read, or nothing happens in it.
    """
    if log.path is None:
        nodes = onoff.names(log.nodes)
        changes: Iterable[NodesChanged] = onoff.changes(log.nodes, seed=log.seed)
        if log.main_jobs is not None:
            changes = [NodesChanged(time=0.0, joined=nodes)]
        if not each:
            return nodes, 0.0, float("inf"), changes
        return _by_gpu(nodes, each), 0.0, float("inf"), (_of_gpus(change, each) for change in changes)
    reading = LogOptions(share="gpu", gpus_per_node=each) if each else LogOptions()
    fragments = logs.load(log.path, reading).intervals
    if not fragments:
        said = NOTHING_THERE.say(what="intervals", some="times when nodes are idle")
        raise BftrainerError(f"{log.path}: {said}")
    chosen = intervals.first_nodes((f._replace(node=node_of(f.node)) for f in fragments), log.nodes)
    names = frozenset(f.node for f in fragments if node_of(f.node) in chosen)
    begin = min(f.start for f in fragments if f.node in names) if log.begin is None else log.begin
    found = intervals.changes(fragments, names, begin, float("inf"))
    end = found[-1].time
    if begin >= end:
        raise BftrainerError(f"{log.path}: {NOTHING_HAPPENS.say(nodes=', '.join(sorted(names)))}")
    return names, begin, end, found


def _by_gpu(nodes: Iterable[str], each: int) -> frozenset[str]:
    return frozenset(gpu for node in nodes for gpu in gpus_of(node, each))


def _of_gpus(change: NodesChanged, each: int) -> NodesChanged:
    """A node comes and goes with all its GPUs."""
    return replace(change, left=_by_gpu(change.left, each), joined=_by_gpu(change.joined, each))


def _gpus(context: Context, names: frozenset[str], shared: int) -> dict[str, dict[str, str]]:
    if shared:
        nodes = frozenset(map(node_of, names))
        return one_by_one(_of_nodes(context, nodes, shared), shared)
    return _of_nodes(context, names, context.log.gpus)


def _of_nodes(context: Context, names: frozenset[str], each: int) -> dict[str, dict[str, str]]:
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
    played = log.path or log.main_jobs
    what = json.dumps([str(played and played.resolve()), log.speed, log.nodes, log.seed, begin])
    remembered = _remembered(context.store.get(PLAYED) or "")
    origin = remembered[1] if remembered[0] == what else now
    if begin + (now - origin) * log.speed > end:
        context.say("the log is over: it is played from its beginning again")
        origin = now
    if [what, origin] != remembered:
        context.store.put(PLAYED, json.dumps([what, origin]))
    return Playback(begin=begin, origin=origin, speed=log.speed)


def _remembered(stored: str) -> list[Any]:
    """Return an earlier daemon's log and when it began; none, where the stored record is damaged."""
    try:
        match json.loads(stored):
            case [str(what), float(origin) | int(origin)]:
                return [what, origin]
    except (ValueError, RecursionError):
        pass
    return [None, 0.0]
