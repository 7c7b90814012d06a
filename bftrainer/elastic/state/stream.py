"""Handing the state to newcomers in chunks, while the members train on.

A newcomer enters the group as a *shadow*: it takes no samples, but takes part in every exchange of
gradients and takes every step of optimiser and scheduler with the members. Between two updates nobody
changes a parameter; meanwhile one chunk of the state is copied from a member to the shadow: for a
range of elements, the parameter's values and those of the optimiser's tensors of its shape. An
optimiser that treats every element by itself keeps from then on exact what has been received. After
the last chunk comes what is small, with a sample of the whole to prove that the shadow is in step.

Everybody knows from the same numbers where the stream stands: with each step all agree on the size of
the next chunk. Nobody who has the state ever waits for it to arrive somewhere else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from queue import Queue

import torch

from bftrainer.elastic.members.group import Group
from bftrainer.elastic.state.state import TrainingState, from_bytes, to_bytes

MESSAGE = 1024 * 1024
"""Bytes that travel at once: gradients on the same connection wait for no more than these."""
FIRST = 1024 * 1024
"""Bytes of the first chunk, and of any at least."""
DUTY = 0.25
"""The part of a step in which a chunk should have arrived."""
GROWTH = 4
ANY = 1 << 60
"""Offered by whoever does not care how large the next chunk is."""


@dataclass(frozen=True, slots=True)
class Roll:
    """Who has what when a group is entered: `latest` steps (None: nobody has a state), the ranks that
    have them, and those that lack something; `offset` elements of the bulk are known to all of these."""

    latest: int | None
    working: tuple[int, ...]
    lacking: tuple[int, ...]
    offset: int


def call_roll(group: Group, *, state: int | None, partial: tuple[int, int]) -> Roll:
    """Exchange who has the state after which step, or (step, elements) of an incomplete one."""
    table = torch.zeros(group.size, 3, dtype=torch.int64)
    table[group.rank] = torch.tensor([0 if state is None else state + 1, partial[0] + 1, partial[1]])
    group.all_reduce(table)
    return read_roll(table.tolist())


def read_roll(table: Sequence[Sequence[int]]) -> Roll:
    """From rows of a rank's steps + 1 (0: no state), steps of an incomplete state + 1, elements in that."""
    latest = max(row[0] for row in table)
    if latest == 0:
        return Roll(None, (), tuple(range(len(table))), 0)
    lacking = tuple(rank for rank, row in enumerate(table) if row[0] < latest)
    known = [table[rank][2] if table[rank][1] == latest else 0 for rank in lacking]
    working = tuple(rank for rank, row in enumerate(table) if row[0] == latest)
    return Roll(latest - 1, working, lacking, min(known, default=0))


def links(working: Sequence[int], shadows: Sequence[int], rank: int) -> tuple[int | None, int | None]:
    """From whom `rank` receives, and to whom it sends: every member heads a chain of shadows."""
    source = sink = None
    for i, head in enumerate(working):
        for before, after in pairwise([head, *shadows[i :: len(working)]]):
            source = before if after == rank else source
            sink = after if before == rank else sink
    return source, sink


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some elements of a tensor."""

    tensor: torch.Tensor
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return (self.stop - self.start) * self.tensor.element_size()

    def read(self) -> torch.Tensor:
        return self.tensor.detach().reshape(-1)[self.start : self.stop].cpu().view(torch.uint8)

    def write(self, data: torch.Tensor) -> None:
        whole = self.tensor.detach()
        flat = whole.reshape(-1)  # a copy where the tensor is not contiguous
        flat[self.start : self.stop].view(torch.uint8).copy_(data)
        if not whole.is_contiguous():
            whole.copy_(flat.view(whole.shape))


def cut(state: TrainingState, start: int, budget: int) -> tuple[list[list[Chunk]], int]:
    """Messages with the bulk from element `start` on, of about `budget` bytes together, and the end.

    Elements are counted through all parameters; all that belongs to an element is in one message.
    """
    messages: list[list[Chunk]] = [[]]
    room, at, first = MESSAGE, start, 0
    for parameter in state.parameters():
        last = first + parameter.numel()
        if at < last and budget > 0:
            tensors = state.bulk(parameter)
            width = sum(t.element_size() for t in tensors)
            while at < last and budget > 0:
                if room < width:
                    messages.append([])
                    room = MESSAGE
                count = max(1, min(last - at, min(room, budget) // width))
                messages[-1] += [Chunk(t, at - first, at - first + count) for t in tensors]
                at, room, budget = at + count, room - count * width, budget - count * width
        first = last
    return [message for message in messages if message], at


class Stream:
    """The hand-over in one group. Every rank has one and calls it in the same order.

    `begin` once, then per step `advance` before the samples are shared out, `offer` into the step's
    exchange, whose lowest becomes `agreed`, and `settle` before the optimiser's step.
    """

    def __init__(self, group: Group, state: TrainingState, roll: Roll) -> None:
        self.working, self.shadows = roll.working, roll.lacking
        self.offset = self._end = roll.offset
        self.agreed = FIRST
        self.phase = "chunks"  # closing, verdict, done or failed
        self.bytes = 0
        self._group, self._state = group, state
        self._source, self._sink = links(roll.working, roll.lacking, group.rank)
        self._total = sum(p.numel() for p in state.parameters())
        self._closing: torch.Tensor | None = None
        self._is_false = False
        self._rate = self._step_s = 0.0
        self._stepped = time.monotonic()
        self._jobs: Queue[Callable[[], object] | None] = Queue()
        threading.Thread(target=self._work, name="bftrainer-stream", daemon=True).start()

    @property
    def known(self) -> int:
        """How many elements of the bulk this rank has and keeps in step."""
        return 0 if self._is_false else self.offset

    def begin(self) -> None:
        """Hand over what is small; a shadow has everything in place then, but for the bulk's values.

        Raises:
            GroupBroken: on a shadow.
        """
        if self._source is not None:
            self._state.restore_small(from_bytes(self._pass_blob(None)))
        elif self._sink is not None:
            blob = to_bytes(self._state.small())
            self._jobs.put(partial(self._pass_blob, blob))

    def advance(self) -> None:
        """Between two steps: start the next chunk, or go on to the next phase."""
        now = time.monotonic()
        self._step_s, self._stepped = now - self._stepped, now
        if self.phase == "verdict":
            self.phase = "done" if self.agreed else "failed"
        elif self.phase == "closing":
            self.phase = "verdict"  # the exchange of the step that begins says what all shadows found
        else:
            messages, self._end = cut(self._state, self.offset, self.agreed)
            if self._end == self._total:
                self.phase = "closing"
            self._start(messages, closes=self.phase == "closing")

    def offer(self) -> int:
        """The bytes that the next chunk may have; 0 for a shadow that is out of step."""
        if self._source is not None:
            return 0 if self._is_false else ANY
        if self._sink is None:
            return ANY
        return max(FIRST, min(int(self._rate * DUTY * self._step_s), GROWTH * self.agreed))

    def settle(self) -> None:
        """Before the parameters change: wait for the chunk under way, which is hardly ever still there.

        Raises:
            GroupBroken: on a shadow; a member goes on, its next exchange will tell.
        """
        self._jobs.join()
        if self._source is not None:
            self._group.check()
        self.offset = self._end
        if self._source is not None and self._closing is not None:
            closing, self._closing = from_bytes(self._closing), None
            self._state.restore_small(closing["small"])
            self._is_false = not torch.equal(closing["sample"], self._state.sample())

    def close(self) -> None:
        """End the thread. Of a group that broke, close that first: nothing else calls the thread back."""
        self._jobs.put(None)
        self._jobs.join()

    # in the background

    def _start(self, messages: list[list[Chunk]], *, closes: bool) -> None:
        if self._source is None and self._sink is None:
            return
        blob = None
        if closes and self._source is None:
            blob = to_bytes({"small": self._state.small(), "sample": self._state.sample()})

        def carry() -> None:
            began, before = time.monotonic(), self.bytes
            for message in messages:
                self._pass_pieces(message)
            self._rate = (self.bytes - before) / max(time.monotonic() - began, 1e-6)
            if closes:
                self._closing = self._pass_blob(blob)

        self._jobs.put(carry)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                if job is None:
                    return
                if self._group.failure is None:
                    job()
            except Exception as error:  # noqa: BLE001  whatever it is, all have to hear of it
                self._group.fail(repr(error))
            finally:
                self._jobs.task_done()

    def _pass_pieces(self, pieces: list[Chunk]) -> None:
        if self._source is None:
            self._pass(torch.cat([piece.read() for piece in pieces]))
            return
        data = self._pass(torch.empty(sum(piece.nbytes for piece in pieces), dtype=torch.uint8))
        start = 0
        for piece in pieces:
            piece.write(data[start : start + piece.nbytes])
            start += piece.nbytes

    def _pass_blob(self, blob: torch.Tensor | None) -> torch.Tensor:
        size = self._pass(torch.tensor([0 if blob is None else len(blob)]))
        return self._pass(torch.empty(int(size), dtype=torch.uint8) if blob is None else blob)

    def _pass(self, data: torch.Tensor) -> torch.Tensor:
        """Fill `data` from the source, if there is one, and send it on to the sink, if there is one."""
        if self._source is not None:
            self._group.receive(data, self._source)
        if self._sink is not None:
            self._group.send(data, self._sink)
        self.bytes += data.nbytes
        return data
