"""What `sacct --parsable2` prints: a header, then one job a line, cells between bars.

Columns are found by name: JobID, Start, End and NodeList are needed, others ignored. Take jobs without
their steps (`-X`), or let the reader skip them; times in Unix seconds (SLURM_TIME_FORMAT=%s) or ISO. With
`gpus_per_node` the column AllocTRES says how many GPUs a job used (`gres/gpu=4`).
"""

from __future__ import annotations

import math
import re

from bftrainer.model.gpus import gpus_of
from bftrainer.traces.formats.gpu_jobs import NodeUse, on_nodes
from bftrainer.traces.formats.jobs import NEVER, Job, found, idle, span
from bftrainer.traces.formats.lines import BrokenLineError, Found, Lines, moment, node_names, shown
from bftrainer.traces.formats.options import LogOptions
from bftrainer.traces.intervals import LogError

TRES = "AllocTRES"
GPUS = re.compile(r"(?:^|,)gres/gpu(?::[^=,]+)?=(\d+)")
COLUMNS = ("JobID", "Start", "End", "NodeList")
UNKNOWN = ("", "Unknown", "None", "0")
NO_NODES = ("", "None assigned", "(null)")


def recognises(line: str) -> bool:
    """Whether this is the header of such a list."""
    return {"JobID", "Start", "End"} <= set(line.split("|"))


def read(lines: Lines, options: LogOptions) -> Found:
    """The times in which no job used a node, for all nodes that any job used.

    Raises:
        LogError: the header lacks a column, or no job ever ran.
    """
    header = next(iter(lines), "").split("|")
    try:
        job, start, end, nodes = (header.index(column) for column in COLUMNS)
    except ValueError:
        raise LogError(
            f":1: columns {'|'.join(header)}; needed are {', '.join(COLUMNS)}: run "
            "sacct --parsable2 --allocations --allusers --format JobID,Start,End,NodeList,State"
        ) from None

    def parse(line: str) -> Job | None:
        cells = line.split("|")
        if len(cells) != len(header):
            raise BrokenLineError(f"{shown(line)} has {len(cells)} cells, the header {len(header)}")
        if "." in cells[job]:
            return None
        return used(cells[start], cells[end], cells[nodes])

    if TRES not in header or options.gpus_per_node == 1:
        return found(lines.each(parse))
    tres = header.index(TRES)
    whole = options.gpus_per_node if options.share == "node" else 0  # as nodes, jobs without GPUs use all

    def use_of(line: str) -> NodeUse | None:
        job = parse(line)
        if job is None or job is NEVER:
            return None
        named = GPUS.search(line.split("|")[tres])
        each = math.ceil(int(named[1]) / len(job.nodes)) if named else whole
        return NodeUse(job.start, job.end, job.nodes, each)

    return _by_gpu(sorted(lines.each(use_of)), options.gpus_per_node)


def _by_gpu(uses: list[NodeUse], gpus_per_node: int) -> Found:
    """The times in which no job used a GPU, for those of all nodes that any job used."""
    begin, end = span(Job(use.start, use.end, ()) for use in uses)
    gpus = {gpu for use in uses for node in use.nodes for gpu in gpus_of(node, gpus_per_node)}
    jobs = on_nodes((use for use in uses if use.end > use.start), gpus_per_node)
    return Found(list(idle(jobs, sorted(gpus), begin, end)), frozenset(gpus), begin, end)


def used(start: str, end: str, nodes: str) -> Job:
    """One job as Slurm writes it; NEVER if it did not start.

    Raises:
        BrokenLineError: no times, no node list, or an end before the start.
    """
    if start in UNKNOWN or nodes in NO_NODES:
        return NEVER
    begin = moment(start)
    until = float("inf") if end in UNKNOWN else moment(end)
    if until < begin:
        raise BrokenLineError(f"the end {end} is before the start {start}")
    return Job(begin, until, node_names(nodes))
