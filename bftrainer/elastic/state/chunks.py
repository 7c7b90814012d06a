"""Cutting the bulk of a state into messages that travel between two steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from bftrainer.elastic.state.state import TrainingState

MESSAGE = 1024 * 1024
"""Bytes that travel at once: gradients on the same connection wait for a few times as many at most."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The elements [start, stop) of a tensor, counted in its flat form."""

    tensor: torch.Tensor
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return (self.stop - self.start) * self.tensor.element_size()

    def read(self) -> torch.Tensor:
        """Its bytes on the CPU; of a tensor that is there already, the memory itself."""
        return self.tensor.detach().reshape(-1)[self.start : self.stop].cpu().view(torch.uint8)

    def write(self, data: torch.Tensor) -> None:
        """Overwrite the elements with bytes that `read` has returned on another rank."""
        whole = self.tensor.detach()
        flat = whole.reshape(-1)  # a copy where the tensor is not contiguous
        flat[self.start : self.stop].view(torch.uint8).copy_(data)
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


def bytes_from(state: TrainingState, start: int) -> int:
    """The size of the bulk from element `start` on."""
    size, first = 0, 0
    for parameter in state.parameters():
        last = first + parameter.numel()
        if start < last:
            size += (last - max(first, start)) * sum(t.element_size() for t in state.bulk(parameter))
        first = last
    return size


def messages(state: TrainingState, start: int) -> Iterator[Message]:
    """The bulk from element `start` on, to its end: the same messages on all ranks, until the next update.

    Elements are counted through all parameters. A parameter's element and the optimiser's elements that
    belong to it are in the same message. A message has at most `MESSAGE` bytes.
    """
    pieces: list[Piece] = []
    room, at, first = MESSAGE, start, 0
    for parameter in state.parameters():
        last = first + parameter.numel()
        if at < last:
            tensors = state.bulk(parameter)
            width = sum(t.element_size() for t in tensors)
        while at < last:
            if room < width and pieces:
                yield Message(tuple(pieces), at)
                pieces, room = [], MESSAGE
            count = max(1, min(last - at, room // width))
            pieces += [Piece(t, at - first, at - first + count) for t in tensors]
            at, room = at + count, room - count * width
        first = last
    if pieces:
        yield Message(tuple(pieces), at)
