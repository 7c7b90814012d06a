"""Jobs that use some of the GPUs of nodes, where the log says how many, and not which.

A job that fits on a node gets its GPUs on one: on the first by name that has enough (`first-fit`), or on the
one that has fewest of those with enough (`best-fit`). Any other takes nodes that are wholly free, and what is
missing as the others do. Which GPUs of a node does not matter: those of the lowest numbers.

Where the log says when a job started (`assign`), it starts then, with what is free if that is too little.
Where it says when a job came (`queued`), jobs wait for their turn, first come first served. Where it says on
which nodes a job was (`on_nodes`), it gets GPUs of these.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bftrainer.model.gpus import gpus_of
from bftrainer.model.machine import Slot
from bftrainer.traces.formats.jobs import LoggedJob
from bftrainer.traces.formats.shortage import JobShortage


class GpuRequest(NamedTuple):
    """A job that ran for `end - start` on `size` GPUs; `label` is its number in the log."""

    start: float
    end: float
    size: int
    label: str


class GpuMachine:
    """Nodes with equally many GPUs, some of them in use."""

    def __init__(self, nodes: Sequence[str], gpus_per_node: int, fit: str) -> None:
        self._names = [gpus_of(node, gpus_per_node) for node in nodes]
        self._free = [list(range(gpus_per_node)) for _ in nodes]  # heaps
        self._levels: list[list[int]] = [
            [] for _ in range(gpus_per_node + 1)
        ]  # heaps of nodes, some outdated
        self._levels[gpus_per_node] = list(range(len(nodes)))
        self._whole, self._first = gpus_per_node, fit == "first-fit"

    def take(self, size: int) -> list[str]:
        """Take `size` GPUs, or all that are free."""
        taken: list[str] = []
        while len(taken) < size:
            need = size - len(taken)
            node = self._node(min(need, self._whole))
            if node is None:  # none has enough: from those that have most
                most = range(self._whole - 1, 0, -1)
                node = next((top for level in most if (top := self._top(level)) is not None), None)
            if node is None:
                break
            taken += self._from(node, need)
        return taken

    def has_room(self, size: int) -> bool:
        """True if a job of `size` GPUs fits on one node, or on nodes that are wholly free."""
        whole, rest = divmod(size, self._whole)
        free = sum(len(own) == self._whole for own in self._free) if whole else 0
        return free >= whole and (not rest or free > whole or self._beside(rest, whole))

    def _beside(self, rest: int, whole: int) -> bool:
        """True if a node has `rest` free GPUs after `whole` nodes that are all free are taken."""
        levels = range(rest, self._whole + (0 if whole else 1))
        return any(self._top(level) is not None for level in levels)

    def give_back(self, gpus: Iterable[str], index: dict[str, int]) -> None:
        """These GPUs are free again; `index` has each node's number."""
        for gpu in gpus:
            slot = Slot.of(gpu)
            node = index[slot.node]
            heapq.heappush(self._free[node], slot.gpu or 0)  # all are single GPUs
            heapq.heappush(self._levels[len(self._free[node])], node)

    def _node(self, need: int) -> int | None:
        """A node with `need` free GPUs."""
        tops = (top for level in range(need, self._whole + 1) if (top := self._top(level)) is not None)
        return min(tops, default=None) if self._first else next(tops, None)

    def _top(self, level: int) -> int | None:
        heap = self._levels[level]
        while heap and len(self._free[heap[0]]) != level:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def _from(self, node: int, need: int) -> list[str]:
        own = self._free[node]
        taken = [self._names[node][heapq.heappop(own)] for _ in range(min(need, len(own)))]
        heapq.heappush(self._levels[len(own)], node)
        return taken


def assign(
    requests: Iterable[GpuRequest], nodes: Sequence[str], gpus_per_node: int, fit: str, shortage: JobShortage
) -> Iterator[LoggedJob]:
    """Each request, in order of start, with its GPUs as a job. GPUs of a job that ends just then are free."""
    machine = GpuMachine(nodes, gpus_per_node, fit)
    index = {node: i for i, node in enumerate(nodes)}
    running: list[tuple[float, int, list[str]]] = []
    for number, (start, end, size, label) in enumerate(requests):
        while running and running[0][0] <= start:
            machine.give_back(heapq.heappop(running)[2], index)
        taken = machine.take(size)
        shortage.note(label, size, len(taken), "GPUs")
        if taken:
            heapq.heappush(running, (end, number, taken))
            yield LoggedJob(start, end, taken)


def queued(
    requests: Iterable[GpuRequest], nodes: Sequence[str], gpus_per_node: int, fit: str
) -> Iterator[LoggedJob]:
    """Each request, in order of arrival (`start`), as a job: it starts when it fits and others have."""
    machine = GpuMachine(nodes, gpus_per_node, fit)
    index = {node: i for i, node in enumerate(nodes)}
    running: list[tuple[float, int, list[str]]] = []
    now = float("-inf")
    for number, (come, end, size, _) in enumerate(requests):
        now = max(now, come)
        while running and (running[0][0] <= now or not machine.has_room(size)):
            ended, _, gpus = heapq.heappop(running)
            machine.give_back(gpus, index)
            now = max(now, ended)
        taken = machine.take(size)
        heapq.heappush(running, (now + end - come, number, taken))
        yield LoggedJob(now, now + end - come, taken)


class NodeUse(NamedTuple):
    """A job that ran on `nodes`, with `each` GPUs of every one of them."""

    start: float
    end: float
    nodes: Sequence[str]
    each: int


def on_nodes(uses: Iterable[NodeUse], gpus_per_node: int) -> Iterator[LoggedJob]:
    """Each of these, in order of start, as a job with GPUs; with all of a node's where it wants more than are
    free."""
    free: dict[str, list[int]] = {}
    running: list[tuple[float, int, list[tuple[str, int]]]] = []
    for number, use in enumerate(uses):
        while running and running[0][0] <= use.start:
            for node, gpu in heapq.heappop(running)[2]:
                heapq.heappush(free[node], gpu)
        taken = []
        for node in use.nodes:
            there = free.setdefault(node, list(range(gpus_per_node)))
            taken += [(node, heapq.heappop(there)) for _ in range(min(use.each, len(there)))]
        heapq.heappush(running, (use.end, number, taken))
        yield LoggedJob(use.start, use.end, [str(Slot(node, gpu)) for node, gpu in taken])


def most_at_once(requests: Iterable[GpuRequest]) -> int:
    """Most GPUs that all jobs together used."""
    changes = sorted(change for r in requests for change in ((r.end, -r.size), (r.start, r.size)))
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most
