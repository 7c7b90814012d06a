"""Handing the state to newcomers in chunks, while the members train on.

A newcomer enters the group as a *shadow*: it takes no samples, but takes part in every exchange of
gradients and takes every step of optimiser and scheduler with the members. Between two updates no rank
changes a parameter. Meanwhile a member sends one chunk of the state to the shadow: for a range of
elements, the values of the parameter and of the optimiser's tensors of the same shape. An optimiser that
treats every element by itself keeps received elements exact from then on. After the last chunk come the
small parts of the state, with a sample of the whole, which proves that the shadow has the same state.

With each step all ranks agree on the size of the next chunk, so all know how far the stream is. A
rank that has the state never waits until it has arrived elsewhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Queue

import torch

from bftrainer.elastic.members.group import Group
from bftrainer.elastic.state.chunks import Chunk, cut
from bftrainer.elastic.state.packing import from_bytes, to_bytes
from bftrainer.elastic.state.roll import Roll, links
from bftrainer.elastic.state.state import TrainingState

FIRST = 1024 * 1024
"""Bytes of the first chunk, and the least of any."""
DUTY = 0.25
"""The fraction of a step within which a chunk should arrive."""
GROWTH = 4
"""A chunk is at most so many times as large as the one before."""
ANY = 1 << 60
"""Offered by a rank that does not limit the next chunk."""


class Stream:
    """The hand-over in one group. Every rank has one, and all call its methods in the same order.

    `begin` once, then per step `advance` before the samples are shared out, `offer` into the step's
    exchange, whose lowest becomes `agreed`, and `settle` before the optimiser's step.
    """

    def __init__(self, group: Group, state: TrainingState, roll: Roll) -> None:
        self.working, self.shadows = roll.working, roll.lacking
        self.offset = self._end = roll.offset
        self.agreed = FIRST
        self.phase = "chunks"  # closing, verdict, done or failed
        self.bytes = 0
        self.is_complete = False
        """Whether a shadow has received all, and it is the same as the members' state."""
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
        """How many elements of the bulk this rank has received and kept exact."""
        return 0 if self._is_false else self.offset

    def begin(self) -> None:
        """Hand the small parts of the state over. A shadow then lacks only the bulk's values.

        Raises:
            GroupBroken: on a shadow, a member was lost.
        """
        if self._source is not None:
            self._state.restore_small(from_bytes(self._pass_blob(None)))
        elif self._sink is not None:
            blob = to_bytes(self._state.small(begins=True))
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
        """The bytes that the next chunk may have; 0 from a shadow whose state differs from the members'."""
        if self._source is not None:
            return 0 if self._is_false else ANY
        if self._sink is None:
            return ANY
        return max(FIRST, min(int(self._rate * DUTY * self._step_s), GROWTH * self.agreed))

    def settle(self) -> None:
        """Before parameters change: wait for the chunk under way, which has usually arrived by then.

        Raises:
            GroupBroken: on a shadow, a member was lost. A member goes on, and its next exchange fails.
        """
        self._jobs.join()
        if self._source is not None:
            self._group.check()
        self.offset = self._end
        if self._source is not None and self._closing is not None:
            closing, self._closing = from_bytes(self._closing), None
            self._state.restore_small(closing["small"])
            self._is_false = not torch.equal(closing["sample"], self._state.sample())
            self.is_complete = not self._is_false

    def close(self) -> None:
        """End the thread. Close a broken group before: nothing else ends the thread's operations."""
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
            except Exception as error:  # noqa: BLE001  whatever it is, all ranks have to learn of it
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
        """Receive `data` from the source, if there is one, and send it to the sink, if there is one."""
        if self._source is not None:
            self._group.receive(data, self._source)
        if self._sink is not None:
            self._group.send(data, self._sink)
        self.bytes += data.nbytes
        return data
