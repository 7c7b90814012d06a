"""One rank's place in the chain along which a state travels: from its source to its sink, in chunks.

A chunk is some of the messages into which the bulk is cut (`messages`), as many as its sender finds time
for. A message ends with a byte that says whether the next but one belongs to the same chunk, too. So a rank
always knows of `AHEAD` messages that come, and these are under way at once, while the sender can end a chunk
at any moment.

A large piece of a tensor travels by itself, from its own memory into its own memory: a copy on each side
costs more processor time than the connection. What is small travels with the last byte. Sizes alone say which
is which, so that all ranks agree. Where a tensor is on a GPU or not contiguous, that rank makes a copy.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from bftrainer.elastic.members.group import Group, GroupBroken, Pending, Waiter, attempt
from bftrainer.elastic.state.staging import Staging
from bftrainer.elastic.state.training_state import TrainingState

AHEAD = 2
"""Messages under way at once; a chunk has at least this number."""
GUESS = 1024 * 1024 * 1024
"""Bytes of the first chunk. With too much, small parts are packed in vain once; with too little, the newcomer
waits for another step."""


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
        """Bytes of the last chunk."""
        self._group, self._state, self._source, self._sink = group, state, source, sink
        self._total = sum(p.numel() for p in state.parameters())
        self._most = message_bytes(group, state)
        self._is_to_end = threading.Event()
        self._staging = Staging(state.parameters(), self._most + 1)
        self._waiter = Waiter(attempt)

    @property
    def is_over(self) -> bool:
        """True if all of the bulk is known here."""
        return self.offset == self._total

    def left_bytes(self) -> int:
        """Bytes of the bulk still to come."""
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
            GroupBroken: a member was lost. Nothing that was to come arrives any more.
        """
        before, under_way = self.bytes, deque[Parcel]()
        try:
            self._carry(under_way)
        except GroupBroken:
            if self._source is not None:
                self._let_end(under_way)
            raise
        self.chunk_bytes = self.bytes - before

    def _carry(self, under_way: deque[Parcel]) -> None:
        coming = messages(self._state, self.offset, self._most)
        begun, granted = 0, AHEAD
        passed_on: deque[Parcel] = deque()
        while True:
            while len(under_way) < AHEAD and begun < granted and (message := next(coming, None)):
                begun += 1
                under_way.append(message.parcel(self._staging.memory(message.nbytes + 1)))
                self._begin(under_way[-1])
            if not under_way:
                break
            self._wait(under_way[0])
            parcel = under_way.popleft()
            granted += int(parcel.memory[-1])
            self._take(parcel)
            if self._source is not None and self._sink is not None:
                self._send(parcel)
                passed_on.append(parcel)
            else:
                self._staging.give_back(parcel.memory)
            while len(passed_on) > AHEAD:
                self._passed_on(passed_on.popleft())
        while passed_on:
            self._passed_on(passed_on.popleft())

    def _wait(self, parcel: Parcel) -> None:
        for pending in parcel.pending:
            pending.wait_once(waiter=self._waiter)

    def _let_end(self, under_way: Iterable[Parcel]) -> None:
        """Have what was to be received end, which it does as the connections are cut. Where it came later, it
        would overwrite what the next group brings."""
        for pending in [pending for parcel in under_way for pending in parcel.pending]:
            with contextlib.suppress(GroupBroken):
                pending.wait_once(waiter=self._waiter)

    def _passed_on(self, parcel: Parcel) -> None:
        self._wait(parcel)
        self._staging.give_back(parcel.memory)

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

    def _begin(self, parcel: Parcel) -> None:
        if self._source is not None:
            for data in parcel.travels:
                parcel.pending.append(self._group.begin_receive(data, self._source))
            return
        with self._staging.copies():
            for piece, memory in parcel.copied:
                piece.read(memory)
        parcel.memory[-1] = not self._is_to_end.is_set()
        self._send(parcel)

    def _send(self, parcel: Parcel) -> None:
        assert self._sink is not None  # noqa: S101  see `links`
        parcel.pending = [self._group.begin_send(data, self._sink) for data in parcel.travels]

    def _take(self, parcel: Parcel) -> None:
        if self._source is not None:
            with self._staging.copies():
                for piece, memory in parcel.copied:
                    piece.write(memory)
        self.bytes += parcel.message.nbytes
        self.offset = parcel.message.end

    def _pass(self, data: torch.Tensor) -> torch.Tensor:
        """Receive `data` from the source, if there is one, and send it to the sink, if there is one."""
        if self._source is not None:
            self._group.begin_receive(data, self._source).wait_once(waiter=self._waiter)
        if self._sink is not None:
            self._group.begin_send(data, self._sink).wait_once(waiter=self._waiter)
        self.bytes += data.nbytes
        return data


MESSAGE = 1024 * 1024
"""The least bytes that travel at once, and the most: these also where gradients have another connection, as
with NCCL."""
LARGE_MESSAGE = 8 * MESSAGE
PER_MODEL = 50
"""Messages of the parameters on the gradients' own connection. Gradients are as large, and wait for
two or three of these: for a few hundredths of the time that they need themselves."""
APART = 64 * 1024
"""Bytes from which a piece travels by itself: below, an operation more costs more than a copy."""


def message_bytes(group: Group, state: TrainingState) -> int:
    """The most bytes of a message. All ranks find the same, also where a newcomer's optimiser is empty."""
    if group.accelerated is not None:
        return LARGE_MESSAGE
    return min(LARGE_MESSAGE, max(MESSAGE, sum(p.nbytes for p in state.parameters()) // PER_MODEL))


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

    def own_memory(self) -> torch.Tensor | None:
        """Its bytes, to be sent from and received into; None where they lie elsewhere or in another order."""
        whole = self.tensor.detach()
        if whole.device.type != "cpu" or not whole.is_contiguous():
            return None
        return whole.reshape(-1)[self.start : self.stop].view(torch.uint8)

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
    """A part of the state that travels at once."""

    pieces: tuple[Piece, ...]  # large ones first
    end: int  # the element of the bulk after the last

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return sum(piece.nbytes for piece in self.pieces)

    def parcel(self, memory: torch.Tensor) -> Parcel:
        """Packs it for travel, in memory that has room for all of it and a byte."""
        copied, travels, start, rest = [], [], 0, 0
        for piece in self.pieces:
            place = memory[start : start + piece.nbytes]
            own = piece.own_memory() if piece.nbytes >= APART else None
            start += piece.nbytes
            if own is None:
                copied.append((piece, place))
            if piece.nbytes >= APART:
                travels.append(place if own is None else own)
                rest = start
        return Parcel(self, memory, copied, [*travels, memory[rest:]])


@dataclass(slots=True, eq=False)  # as above
class Parcel:
    """A message on its way."""

    message: Message
    memory: torch.Tensor
    copied: list[tuple[Piece, torch.Tensor]]  # the pieces that have a place in `memory`, and that
    travels: list[torch.Tensor]  # in this order, each in an operation of its own
    pending: list[Pending] = field(default_factory=list)


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
                yield _message(pieces, at)
                pieces, room = [], most
            count = max(1, min(last - at, room // width))
            pieces += [Piece(t, at - first, at - first + count) for t in tensors]
            at, room = at + count, room - count * width
        first = last
    if pieces:
        yield _message(pieces, at)


def _message(pieces: list[Piece], end: int) -> Message:
    return Message(tuple(sorted(pieces, key=lambda piece: piece.nbytes < APART)), end)
