"""The output of `sacct --parsable2`: a header, then one job a line, cells between bars.

Columns are found by name: JobID (or JobIDRaw), Start, End and NodeList are needed, others ignored. Take jobs
without their steps (`-X`), or let the reader skip them; times in Unix seconds (SLURM_TIME_FORMAT=%s) or ISO.
With `gpus_per_node` the column AllocTRES says how many GPUs a job used (`gres/gpu=4`).
"""

from __future__ import annotations

import math
import re

from bftrainer.messages.files.logs import LACKS_COLUMNS
from bftrainer.model.gpus import gpus_of
from bftrainer.traces.formats.gpu_jobs import NodeUse, on_nodes
from bftrainer.traces.formats.jobs import NAMELESS, NEVER, LoggedJob, found, idle, span
from bftrainer.traces.formats.lines import BrokenLineError, Lines, ReadIntervals, moment, node_names, shown
from bftrainer.traces.formats.options import LogOptions
from bftrainer.traces.intervals import LogError

TRES = "AllocTRES"
GPUS = re.compile(r"(?:^|,)gres/gpu(?::[^=,]+)?=(\d+)")
IDS = ("JobID", "JobIDRaw")
COLUMNS = ("JobID", "Start", "End", "NodeList")
COMMAND = "sacct --parsable2 --allocations --allusers --format JobID,Start,End,NodeList,State"
UNKNOWN = ("", "Unknown", "None", "0")
NO_NODES = ("", "None assigned", "(null)")


def recognises(line: str) -> bool:
    """True if this is the header of such a list."""
    names = set(line.split("|"))
    return {"Start", "End"} <= names and not names.isdisjoint(IDS)


def read(lines: Lines, options: LogOptions) -> ReadIntervals:
    """The times in which no job used a node, for all nodes that any job used.

    Raises:
        LogError: the header lacks a column, or no job ever ran.
    """
    header = next(iter(lines), "").split("|")
    try:
        name = next(name for name in IDS if name in header or name == IDS[-1])
        job, start, end, nodes = map(header.index, (name, *COLUMNS[1:]))
    except ValueError:
        named, needed = "|".join(header), ", ".join(COLUMNS)
        said = LACKS_COLUMNS.say(found=named, kind="a log of sacct", needed=needed, how=f": {COMMAND}")
        raise LogError(f":1: {said}") from None

    def parse(line: str) -> LoggedJob | None:
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
        if job is None or job is NEVER or job is NAMELESS:
            return None
        named = GPUS.search(line.split("|")[tres])
        each = math.ceil(int(named[1]) / len(job.nodes)) if named else whole
        return NodeUse(job.start, job.end, job.nodes, each)

    return _by_gpu(sorted(lines.each(use_of)), options.gpus_per_node)


def _by_gpu(uses: list[NodeUse], gpus_per_node: int) -> ReadIntervals:
    """The times in which no job used a GPU, for those of all nodes that any job used."""
    begin, end = span(LoggedJob(use.start, use.end, ()) for use in uses)
    gpus = {gpu for use in uses for node in use.nodes for gpu in gpus_of(node, gpus_per_node)}
    jobs = on_nodes((use for use in uses if use.end > use.start), gpus_per_node)
    return ReadIntervals(list(idle(jobs, sorted(gpus), begin, end)), frozenset(gpus), begin, end)


def used(start: str, end: str, nodes: str) -> LoggedJob:
    """One job as Slurm writes it; NEVER if it did not start, NAMELESS if it ran on nobody knows which nodes.

    Raises:
        BrokenLineError: no times, no node list, or an end before the start.
    """
    if start in UNKNOWN or (nodes in NO_NODES and end in (*UNKNOWN, start)):
        return NEVER
    begin = moment(start)
    until = float("inf") if end in UNKNOWN else moment(end)
    if until < begin:
        raise BrokenLineError(f"the end {end} is before the start {start}")
    return NAMELESS if nodes in NO_NODES else LoggedJob(begin, until, node_names(nodes))
