"""One rank's place in the chain along which a state travels: from its source to its sink, in chunks.

A chunk is some of the messages into which the bulk is cut (`chunks.py`), as many as its sender finds time
for. A message ends with a byte that says whether the next but one belongs to the same chunk, too. So a rank
always knows of `AHEAD` messages that come, and these are under way at once, while the sender can end a chunk
at any moment.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from bftrainer.elastic.members.group import Group, Pending, Waiter, attempt
from bftrainer.elastic.state.staging import Staging
from bftrainer.elastic.state.training_state import TrainingState

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
        self._most = MESSAGE if group.accelerated is None else LARGE_MESSAGE
        self._is_to_end = threading.Event()
        self._staging = Staging(state.parameters(), self._most + 1)
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
        self._staging.follow()
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
        coming = messages(self._state, self.offset, self._most)
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
            else:
                self._staging.give_back(data)
            while len(passed_on) > AHEAD:
                self._passed_on(*passed_on.popleft())
        while passed_on:
            self._passed_on(*passed_on.popleft())
        self.chunk_bytes = self.bytes - before

    def _passed_on(self, data: torch.Tensor, pending: Pending) -> None:
        pending.wait_once(waiter=self._waiter)
        self._staging.give_back(data)

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
        data = self._staging.memory(message.nbytes + 1)
        if self._source is not None:
            return data, self._group.begin_receive(data, self._source)
        assert self._sink is not None  # noqa: S101  see `links`
        with self._staging.copies():
            for piece, memory in message.parts_of(data):
                piece.read(memory)
        data[-1] = not self._is_to_end.is_set()
        return data, self._group.begin_send(data, self._sink)

    def _take(self, message: Message, data: torch.Tensor) -> None:
        if self._source is not None:
            with self._staging.copies():
                for piece, memory in message.parts_of(data):
                    piece.write(memory)
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


MESSAGE = 1024 * 1024
"""Bytes that travel at once: gradients on the same connection wait for a few times as many at most."""
LARGE_MESSAGE = 8 * MESSAGE
"""The same where gradients have another connection, as with NCCL."""


@dataclass(frozen=True, slots=True, eq=False)  # tensors are compared value by value
class Piece:
    """The elements [start, stop) of a tensor, counted in its flat form."""

    tensor: torch.Tensor
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return (self.stop - self.start) * self.tensor.element_size()

    def read(self, memory: torch.Tensor) -> None:
        """Copy its bytes to memory of the CPU. See `Staging.copies` for when they are there."""
        piece = self.tensor.detach().reshape(-1)[self.start : self.stop]
        memory.copy_(piece.view(torch.uint8), non_blocking=True)

    def write(self, memory: torch.Tensor) -> None:
        """Overwrite the elements with bytes that `read` has given on another rank."""
        whole = self.tensor.detach()
        flat = whole.reshape(-1)  # a copy where the tensor is not contiguous
        flat[self.start : self.stop].view(torch.uint8).copy_(memory, non_blocking=True)
        if not whole.is_contiguous():
            whole.copy_(flat.view(whole.shape))


@dataclass(frozen=True, slots=True)
class Message:
    """What travels at once."""

    pieces: tuple[Piece, ...]
    end: int  # the element of the bulk after the last

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return sum(piece.nbytes for piece in self.pieces)

    def parts_of(self, memory: torch.Tensor) -> Iterator[tuple[Piece, torch.Tensor]]:
        """Each piece, and where its bytes are in the message's memory."""
        start = 0
        for piece in self.pieces:
            yield piece, memory[start : start + piece.nbytes]
            start += piece.nbytes


def bytes_from(state: TrainingState, start: int) -> int:
    """The size of the bulk from element `start` on."""
    size, first = 0, 0
    for parameter in state.parameters():
        last = first + parameter.numel()
        if start < last:
            size += (last - max(first, start)) * sum(t.element_size() for t in state.bulk(parameter))
        first = last
    return size


def messages(state: TrainingState, start: int, most: int | None = None) -> Iterator[Message]:
    """The bulk from element `start` on, to its end: the same messages on all ranks, until the next update.

    Elements are counted through all parameters. A parameter's element and the optimiser's elements that
    belong to it are in the same message. A message has at most `most` bytes, by default `MESSAGE`.
    """
    pieces: list[Piece] = []
    most = most or MESSAGE
    room, at, first = most, start, 0
    for parameter in state.parameters():
        last = first + parameter.numel()
        if at < last:
            tensors = state.bulk(parameter)
            width = sum(t.element_size() for t in tensors)
        while at < last:
            if room < width and pieces:
                yield Message(tuple(pieces), at)
                pieces, room = [], most
            count = max(1, min(last - at, room // width))
            pieces += [Piece(t, at - first, at - first + count) for t in tensors]
            at, room = at + count, room - count * width
        first = last
    if pieces:
        yield Message(tuple(pieces), at)
