"""One rank's place in the chain along which a state travels: from its source to its sink, in chunks.

A chunk is some of the messages into which the bulk is cut (`chunks.py`), as many as its sender finds time
for. A message ends with a byte that says whether the next but one belongs to the same chunk, too. So a rank
always knows of `AHEAD` messages that come, and these are under way at once, while the sender can end a chunk
at any moment.
"""

from __future__ import annotations

import threading
from collections import deque

import torch

from bftrainer.elastic.members.group import Group, Pending, attempt
from bftrainer.elastic.members.waiter import Waiter
from bftrainer.elastic.state.chunks import Message, bytes_from, messages
from bftrainer.elastic.state.state import TrainingState

AHEAD = 2
"""So many messages are under way at once, and a chunk has at least so many."""
GUESS = 8 * 1024 * 1024
"""What a chunk has, as long as none has been sent: bytes."""


class Passage:
    """`offset`: the element of the bulk after the last that is known here. All methods but `open` and
    `end` are called in one thread, in the same order on all ranks of the chain.
    """

    def __init__(
        self, group: Group, state: TrainingState, source: int | None, sink: int | None, offset: int
    ) -> None:
        self.offset = offset
        self.bytes = 0
        self.chunk_bytes = GUESS
        """What the last chunk had."""
        self._group, self._state, self._source, self._sink = group, state, source, sink
        self._total = sum(p.numel() for p in state.parameters())
        self._is_to_end = threading.Event()
        self._waiter = Waiter(attempt)

    @property
    def is_over(self) -> bool:
        """Whether all of the bulk is known here."""
        return self.offset == self._total

    def left_bytes(self) -> int:
        """What is still to come of the bulk."""
        return bytes_from(self._state, self.offset)

    def open(self) -> None:
        """A chunk may be sent from now on, for as long as it is not to `end`."""
        self._is_to_end.clear()

    def end(self) -> None:
        """Have the chunk end, after the `AHEAD` messages of which the others know already."""
        self._is_to_end.set()

    def chunk(self) -> None:
        """Send, receive or pass on the next chunk.

        Raises:
            GroupBroken: a member was lost.
        """
        before, begun, granted = self.bytes, 0, AHEAD
        coming = messages(self._state, self.offset)
        under_way: deque[tuple[Message, torch.Tensor, Pending]] = deque()
        passed_on: deque[tuple[torch.Tensor, Pending]] = deque()
        while True:
            while len(under_way) < AHEAD and begun < granted and (message := next(coming, None)):
                begun += 1
                under_way.append((message, *self._begin(message)))
            if not under_way:
                break
            message, data, pending = under_way.popleft()
            pending.wait_once(waiter=self._waiter)
            granted += int(data[-1])
            self._take(message, data)
            if self._source is not None and self._sink is not None:
                passed_on.append((data, self._group.begin_send(data, self._sink)))
            while len(passed_on) > AHEAD:
                passed_on.popleft()[1].wait_once(waiter=self._waiter)
        for _, pending in passed_on:
            pending.wait_once(waiter=self._waiter)
        self.chunk_bytes = self.bytes - before

    def blob(self, blob: torch.Tensor | None) -> torch.Tensor | None:
        """Pass on bytes of whatever number; the chain's first rank gives them, or None if there are none.

        Raises:
            GroupBroken: a member was lost.
        """
        size = self._pass(torch.tensor([0 if blob is None else len(blob)]))
        if not size:
            return None
        return self._pass(torch.empty(int(size), dtype=torch.uint8) if blob is None else blob)

    def close(self) -> None:
        """No more comes."""
        self._waiter.close()

    def _begin(self, message: Message) -> tuple[torch.Tensor, Pending]:
        if self._source is not None:
            data = torch.empty(message.nbytes + 1, dtype=torch.uint8)
            return data, self._group.begin_receive(data, self._source)
        assert self._sink is not None  # noqa: S101  see `links`
        flag = torch.tensor([not self._is_to_end.is_set()], dtype=torch.uint8)
        data = torch.cat([*(piece.read() for piece in message.pieces), flag])
        return data, self._group.begin_send(data, self._sink)

    def _take(self, message: Message, data: torch.Tensor) -> None:
        if self._source is not None:
            start = 0
            for piece in message.pieces:
                piece.write(data[start : start + piece.nbytes])
                start += piece.nbytes
        self.bytes += message.nbytes
        self.offset = message.end

    def _pass(self, data: torch.Tensor) -> torch.Tensor:
        """Receive `data` from the source, if there is one, and send it to the sink, if there is one."""
        if self._source is not None:
            self._group.begin_receive(data, self._source).wait_once(waiter=self._waiter)
        if self._sink is not None:
            self._group.begin_send(data, self._sink).wait_once(waiter=self._waiter)
        self.bytes += data.nbytes
        return data
