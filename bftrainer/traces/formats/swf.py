"""The Standard Workload Format of the Parallel Workloads Archive: one job a line, 18 numbers.

The format says how many processors a job had, not which. The reader assigns nodes: in order of their start
(submission + wait), jobs get the lowest-numbered nodes that are free then. The idle node-time does not
depend on this rule; how it falls into fragments does. With `gpu_jobs` processors are GPUs, see `gpu_jobs`.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bftrainer.messages.files.logs import CORES_OF_GPUS, MACHINE_NODES, TELLS_NOTHING
from bftrainer.model.gpus import gpus_of
from bftrainer.model.text import counted
from bftrainer.traces.formats import gpu_jobs
from bftrainer.traces.formats.gpu_jobs import GpuRequest
from bftrainer.traces.formats.jobs import LoggedJob, idle, span
from bftrainer.traces.formats.lines import (
    MOST_NODES,
    BrokenLineError,
    Lines,
    ReadIntervals,
    number,
    shown,
)
from bftrainer.traces.formats.options import LogOptions
from bftrainer.traces.formats.shortage import JobShortage
from bftrainer.traces.intervals import LogError
from bftrainer.traces.synthetic.onoff import names

FIELDS = 18
STATUS, COMPLETED = 10, "1"
HEADER = re.compile(r";\s*(UnixStartTime|MaxNodes|MaxProcs):\s*(\d+)\s*$")


class Request(NamedTuple):
    """A job that ran for `end - start` on `size` nodes; `label` is its number in the log.

    `submit` is when it was submitted, `limit_s` the time that it asked for (0: not said).
    """

    start: float
    end: float
    size: int
    label: str
    submit: float
    limit_s: float


@dataclass
class Parser:
    """Turns each line into a request, and keeps the numbers of the header.

    Attributes:
        never: Jobs that never ran.
        no_run, no_wait: Those of which nobody knows how long they ran, or waited: -1 stands for unknown.
    """

    cores_per_node: int
    header: dict[str, int] = field(default_factory=dict)
    never: int = 0
    no_run: int = 0
    no_wait: int = 0

    def __call__(self, line: str) -> Request | None:
        if line.startswith(";"):
            if match := HEADER.match(line):
                self.header[match[1]] = int(match[2])
            return None
        cells = line.split()
        if len(cells) < FIELDS:
            raise BrokenLineError(f"{shown(line)} has {len(cells)} fields; a job has {FIELDS}")
        submit, wait, run, used, asked, limit = (number(cells[i]) for i in (1, 2, 3, 4, 7, 8))
        if run <= 0:
            self.no_run += run < 0 and cells[STATUS] == COMPLETED
            self.never += not (run < 0 and cells[STATUS] == COMPLETED)
            return None
        if wait < 0:
            self.no_wait += 1
            wait = 0.0
        processors = used if used > 0 else asked
        if processors <= 0:
            known = "no processors" if 0 in (used, asked) else "an unknown number of processors"
            raise BrokenLineError(f"job {cells[0]} ran {run:g} s on {known}")
        submit += self.header.get("UnixStartTime", 0)
        size = math.ceil(processors / self.cores_per_node)
        return Request(submit + wait, submit + wait + run, size, cells[0], submit, max(limit, 0.0))


def recognises(line: str) -> bool:
    """True if this is a header comment or a line of 18 numbers."""
    cells = line.split()
    numbers = len(cells) >= FIELDS and all(re.fullmatch(r"-?\d+(\.\d+)?", cell) for cell in cells)
    return line.startswith(";") or numbers


def read(lines: Lines, options: LogOptions) -> ReadIntervals:
    """The times in which no job used a node, for as many nodes as the options or the header say.

    Raises:
        LogError: no size of the machine is given, or no job ever ran.
    """
    if options.gpu_jobs and options.cores_per_node != 1:
        raise LogError(CORES_OF_GPUS.say(given=options.cores_per_node, fit=options.gpu_jobs))
    parser = Parser(options.cores_per_node)
    requests = sorted(lines.each(parser), key=lambda request: request.start)
    if not requests and parser.no_run:
        raise LogError(TELLS_NOTHING.say(why="it has no run times (field 4 is -1)"))
    nodes = sorted(names(machine(options, parser.header)))
    begin, end = span(LoggedJob(r.start, r.end, ()) for r in requests)
    shortage = JobShortage()
    if options.gpu_jobs:
        each = options.gpus_per_node
        wanted = (GpuRequest(r.start, r.end, r.size, r.label) for r in requests)
        jobs = gpu_jobs.assign(wanted, nodes, each, options.gpu_jobs, shortage)
        nodes = [gpu for node in nodes for gpu in gpus_of(node, each)]
    else:
        jobs = assign(requests, nodes, shortage)
    intervals = list(idle(jobs, nodes, begin, end))
    return ReadIntervals(intervals, frozenset(nodes), begin, end, tuple(_notes(parser, shortage, options)))


def assign(requests: Iterable[Request], nodes: list[str], shortage: JobShortage) -> Iterator[LoggedJob]:
    """Give each request, in order of start, the first free ones of `nodes` (sorted by name).

    Nodes of a job that ends at the moment of a start are free. A request for more nodes than are free
    gets those, and `shortage` counts it.
    """
    free = list(nodes)
    running: list[tuple[float, list[str]]] = []
    for start, end, size, label, *_ in requests:
        freed = False
        while running and running[0][0] <= start:
            free += heapq.heappop(running)[1]
            freed = True
        if freed:
            free.sort()
        taken = free[:size]
        del free[:size]
        shortage.note(label, size, len(taken), "nodes")
        if taken:
            heapq.heappush(running, (end, taken))
            yield LoggedJob(start, end, taken)


def machine(options: LogOptions, header: Mapping[str, int]) -> int:
    """Number of nodes of the machine.

    Raises:
        LogError: neither the options nor the header say so.
    """
    size = options.machine_nodes
    if size is None:
        processors = header.get("MaxProcs", 0)
        each = options.gpus_per_node if options.gpu_jobs else options.cores_per_node
        size = math.ceil(processors / each) if processors else header.get("MaxNodes", 0)
    if not 0 < size <= MOST_NODES:
        why = "the header should give the size (MaxProcs, MaxNodes)"
        raise LogError(MACHINE_NODES.say(given=size, why=why, least=1, most=MOST_NODES))
    return size


def _notes(parser: Parser, shortage: JobShortage, options: LogOptions) -> Iterator[str]:
    nodes, processors = parser.header.get("MaxNodes", 0), parser.header.get("MaxProcs", 0)
    if options.cores_per_node == 1 and not options.gpu_jobs and 0 < nodes < processors:
        yield (
            f"every processor counts as a node: the header has {processors:,} processors on {nodes:,} "
            "nodes; --cores-per-node makes nodes of them"
        )
    if parser.never:
        yield counted(parser.never, "job") + " never ran; left out"
    if parser.no_run:
        yield counted(parser.no_run, "job") + " without a run time (field 4 is -1); left out"
    if parser.no_wait:
        yield (
            counted(parser.no_wait, "job") + " without a wait time (field 3 is -1): taken to start "
            "when submitted"
        )
    yield from shortage.notes()
