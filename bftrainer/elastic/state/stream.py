"""Handing the state to newcomers in chunks, while the members train on.

A newcomer enters the group as a *shadow*: it takes no samples, but takes part in every exchange of
gradients and takes every step of optimiser and scheduler with the members. Between two updates no rank
changes a parameter. Meanwhile a member sends a chunk of the state to the shadow: for a range of
elements, the values of the parameter and of the optimiser's tensors of the same shape. An optimiser that
treats every element by itself keeps received elements exact from then on. After the last chunk come the
small parts of the state, with a sample of the whole, which proves that the shadow has the same state.

How long a chunk is, its sender decides while it sends (`chain.py`). With each step all ranks learn whether
all shadows have the state. A rank that has it never waits until it has arrived elsewhere.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from queue import Queue

import torch
import torch.distributed as dist

from bftrainer.elastic.members.group import Group, GroupBroken, Pending
from bftrainer.elastic.process.background import calling, start
from bftrainer.elastic.state.chain import Passage
from bftrainer.elastic.state.packing import from_bytes, to_bytes
from bftrainer.elastic.state.training_state import TrainingState


@dataclass(frozen=True, slots=True)
class Roll:
    """Ranks that have the state when a group is entered."""

    latest: int | None  # the count of the latest state; None: no rank has a state
    working: tuple[int, ...]  # the ranks that have it
    lacking: tuple[int, ...]  # the ranks that lack it, or part of it
    offset: int  # elements of the bulk that all lacking ranks have already
    is_stopped: bool = False  # a rank knows that the run ends
    waited_s: float = 0.0  # how long the last rank with a state to come had stood still
    at: float = 0.0  # when all were there, by `time.monotonic()`


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A rank's report on itself: the count of steps of its state (None: it has none), (count, elements) of an
    incomplete one, whether it knows that the run ends, and for how long it has stood still (s)."""

    state: int | None
    partial: tuple[int, int] = (0, 0)
    is_stopped: bool = False
    waited_s: float = 0.0


def call_roll(group: Group, said: Said) -> Roll:
    """Exchange what each rank has, and compare.

    Raises:
        GroupBroken: a member was lost meanwhile.
    """
    table = torch.zeros(group.size, 5, dtype=torch.int64)
    count = 0 if said.state is None else said.state + 1
    waited_us = int(said.waited_s * 1e6)
    mine = [count, said.partial[0] + 1, said.partial[1], int(said.is_stopped), waited_us]
    table[group.rank] = torch.tensor(mine)
    group.all_reduce(table)
    return replace(read_roll(table.tolist()), at=time.monotonic())


def read_roll(table: Sequence[Sequence[int]]) -> Roll:
    """The roll from one row per rank: count + 1 (0: no state), count + 1 of an incomplete state, elements in
    that, whether the run ends, and the microseconds for which it has stood still.

    A member waits for the others; what the last one did before it came is no part of the change of members.
    """
    is_stopped = any(row[3] for row in table)
    latest = max(row[0] for row in table)
    if latest == 0:
        return Roll(None, (), tuple(range(len(table))), 0, is_stopped)
    lacking = tuple(rank for rank, row in enumerate(table) if row[0] < latest)
    known = [table[rank][2] if table[rank][1] == latest else 0 for rank in lacking]
    working = tuple(rank for rank, row in enumerate(table) if row[0] == latest)
    waited_s = min(row[4] for row in table if row[0]) / 1e6
    return Roll(latest - 1, working, lacking, min(known, default=0), is_stopped, waited_s)


def links(working: Sequence[int], shadows: Sequence[int], rank: int) -> tuple[int | None, int | None]:
    """The rank from which `rank` receives, and the one to which it sends; None for neither.

    Every rank that has the state heads a chain of shadows.
    """
    source = sink = None
    for i, head in enumerate(working):
        for before, after in pairwise([head, *shadows[i :: len(working)]]):
            source = before if after == rank else source
            sink = after if before == rank else sink
    return source, sink


LIKELY = 4.0
"""Multiple of the last chunk: if no more is left, the next is prepared to be the last."""
FALSE, LACKS, COMPLETE = -1, 0, 1
"""Verdicts of a rank on its shadow's state; the lowest of all ranks counts."""


class Stream:
    """The hand-over in one group. Every rank has one, and all call its methods in the same order.

    `begin` once, then per step `advance` before the samples are shared out and `settle` before the
    optimiser's step.
    """

    def __init__(self, group: Group, state: TrainingState, roll: Roll) -> None:
        self.working, self.shadows = roll.working, roll.lacking
        self.is_complete = False
        """True if a shadow has received all, and it is the same as the members' state."""
        self._group, self._state = group, state
        self._source, self._sink = links(roll.working, roll.lacking, group.rank)
        self._passage = Passage(group, state, self._source, self._sink, roll.offset)
        self._closing: torch.Tensor | None = None  # what came with the last chunk
        self._is_closed = False  # it has come, or it was sent
        self._is_false = False
        self._verdict: tuple[torch.Tensor, Pending] | None = None
        self._jobs: Queue[Callable[[], object] | None] = Queue()
        start(self._work, "bftrainer-stream")

    @property
    def known(self) -> int:
        """Number of elements of the bulk that this rank has received and kept exact."""
        return 0 if self._is_false else self._passage.offset

    @property
    def bytes(self) -> int:
        """Bytes that this rank has passed on or received."""
        return self._passage.bytes

    def begin(self) -> None:
        """Hand the small parts of the state over. A shadow then lacks only the bulk's values.

        Raises:
            GroupBroken: on a shadow, a member was lost.
        """
        if self._source is not None:
            blob = self._passage.blob(None)
            assert blob is not None  # noqa: S101  a member has sent one
            self._state.restore_small(from_bytes(blob))
        elif self._sink is not None:
            small = to_bytes(self._state.small(begins=True))
            self._jobs.put(lambda: self._passage.blob(small))

    def outcome(self) -> int:
        """Verdict of all ranks in the step before: `COMPLETE`, or a shadow lacks something, or `FALSE`.

        Raises:
            GroupBroken: a member was lost.
        """
        if self._verdict is None:
            return LACKS
        (verdict, pending), self._verdict = self._verdict, None
        pending.wait()
        return int(verdict)

    def advance(self) -> None:
        """Between two steps: start the next chunk."""
        if self._source is None and self._sink is None:
            return
        closing = None
        if self._source is None and not self._is_closed and self._may_be_last():
            closing = to_bytes({"small": self._state.small(), "sample": self._state.sample()})
        self._passage.open()

        def carry() -> None:
            self._passage.chunk()
            if self._passage.is_over:
                self._closing = self._passage.blob(closing)
                self._is_closed |= self._closing is not None

        self._jobs.put(carry)

    def _may_be_last(self) -> bool:
        return self._passage.left_bytes() <= LIKELY * self._passage.chunk_bytes

    def settle(self) -> None:
        """The gradients are exchanged, and parameters are about to change: end the chunk under way. All
        ranks begin to exchange whether a shadow still lacks something.

        Raises:
            GroupBroken: on a shadow, a member was lost. A member goes on, and its next exchange fails.
        """
        self._passage.end()
        self._jobs.join()
        found = COMPLETE
        if self._source is not None:
            self._group.check()
            found = self._received()
        verdict = torch.tensor([found])
        with contextlib.suppress(GroupBroken):
            self._verdict = (verdict, self._group.begin_all_reduce(verdict, dist.ReduceOp.MIN))

    def _received(self) -> int:
        """Verdict on this shadow's state, now that a chunk has arrived."""
        if self._closing is None:
            return COMPLETE if self.is_complete else LACKS
        closing, self._closing = from_bytes(self._closing), None
        self._state.restore_small(closing["small"])
        self._is_false = not torch.equal(closing["sample"], self._state.sample())
        self.is_complete = not self._is_false
        return FALSE if self._is_false else COMPLETE

    def close(self) -> None:
        """End the thread. Close a broken group before: nothing else ends the thread's operations."""
        self._passage.end()
        self._jobs.put(None)
        self._jobs.join()
        self._passage.close()

    # in the background

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                if job is None:
                    return
                if self._group.failure is None:
                    with calling():
                        job()
            except Exception as error:  # noqa: BLE001  whatever it is, all ranks must learn of it
                self._group.fail(repr(error))
            finally:
                self._jobs.task_done()
