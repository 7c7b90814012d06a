"""The log of Philly, Microsoft's cluster for training, as Pollux's authors publish it: a job a line.

The CSV has timestamp (when the job came), duration (s), num_gpus, gpu_time and cluster. Each cluster that the
log names is a machine of its own, in which jobs wait for their turn. The log does not say how large it is:
the nodes of `machine_nodes` are shared out by the clusters' GPU time, each having as many as its largest job
needs; by default each cluster has as many as its jobs would have used at once if none had waited.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping

from bftrainer.messages.files.logs import LACKS_COLUMNS, MACHINE_NODES
from bftrainer.model.gpus import gpus_of
from bftrainer.traces.formats.gpu_jobs import GpuRequest, most_at_once, queued
from bftrainer.traces.formats.jobs import LoggedJob, idle, span
from bftrainer.traces.formats.lines import (
    MOST_NODES,
    BrokenLineError,
    Lines,
    ReadIntervals,
    moment,
    number,
    shown,
)
from bftrainer.traces.formats.options import FITS, LogOptions
from bftrainer.traces.intervals import Interval, LogError
from bftrainer.traces.synthetic.onoff import names

COLUMNS = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")


def recognises(line: str) -> bool:
    """True if this is the header of such a log."""
    return tuple(line.split(",")) == COLUMNS


def read(lines: Lines, options: LogOptions) -> ReadIntervals:
    """The times in which no job used a GPU, for the GPUs of all clusters.

    Raises:
        LogError: no job ever ran.
    """
    if (header := next(iter(lines), "")).split(",") != list(COLUMNS):
        said = LACKS_COLUMNS.say(
            found=shown(header), kind="a log of Philly", needed=",".join(COLUMNS), how=""
        )
        raise LogError(f":1: {said}")
    clusters: dict[str, list[GpuRequest]] = {}
    for cluster, request in lines.each(_parse):
        clusters.setdefault(cluster, []).append(request)
    begin, end = span(LoggedJob(r.start, r.start, ()) for own in clusters.values() for r in own)
    sizes = _sizes(clusters, options)
    intervals: list[Interval] = []
    gpus: set[str] = set()
    for cluster, own in sorted(clusters.items()):
        own.sort()
        nodes = [f"{cluster}-{name}" for name in names(sizes[cluster])]
        there = [gpu for node in nodes for gpu in gpus_of(node, options.gpus_per_node)]
        gpus.update(there)
        jobs = queued(own, nodes, options.gpus_per_node, options.gpu_jobs or FITS[0])
        intervals += idle((job for job in jobs if job.start < end), there, begin, end)
    return ReadIntervals(intervals, frozenset(gpus), begin, end)


def _sizes(clusters: Mapping[str, list[GpuRequest]], options: LogOptions) -> dict[str, int]:
    """Number of nodes of each cluster. Raises `LogError` if the machine is too small for its largest jobs."""
    each, machine = options.gpus_per_node, options.machine_nodes
    if machine is None:
        return {name: math.ceil(most_at_once(own) / each) for name, own in clusters.items()}
    least = {name: math.ceil(max(r.size for r in own) / each) for name, own in clusters.items()}
    if machine < (fewest := sum(least.values())):
        why = f"the largest jobs of the clusters need {fewest} with {each} GPUs (--gpus-per-node)"
        raise LogError(MACHINE_NODES.say(given=machine, why=why, least=fewest, most=MOST_NODES))
    used = {name: sum((r.end - r.start) * r.size for r in own) for name, own in clusters.items()}
    found = dict(least)
    for _ in range(machine - sum(least.values())):  # one by one, to the cluster with most use for a node
        found[max(found, key=lambda name: used[name] / found[name])] += 1
    return found


def _parse(line: str) -> tuple[str, GpuRequest] | None:
    cells = next(csv.reader([line]), [])
    if len(cells) != len(COLUMNS):
        raise BrokenLineError(f"{shown(line)} has {len(cells)} cells; a job has {len(COLUMNS)}")
    start, run, size = moment(cells[0]), number(cells[1]), number(cells[2])
    if size < 1 or size != int(size):
        raise BrokenLineError(f"{shown(line)}: {cells[2]} GPUs; a job has 1 or more")
    return (cells[4], GpuRequest(start, start + run, int(size), cells[0])) if run > 0 else None
