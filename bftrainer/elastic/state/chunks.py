"""Cutting the bulk of a state into chunks that travel between two steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bftrainer.elastic.state.state import TrainingState

MESSAGE = 1024 * 1024
"""Bytes that travel at once: gradients on the same connection wait for no more than these."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The elements [start, stop) of a tensor, counted in its flat form."""

    tensor: torch.Tensor
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return (self.stop - self.start) * self.tensor.element_size()

    def read(self) -> torch.Tensor:
        """A copy of its bytes on the CPU."""
        return self.tensor.detach().reshape(-1)[self.start : self.stop].cpu().view(torch.uint8)

    def write(self, data: torch.Tensor) -> None:
        """Overwrite the elements with bytes that `read` has returned on another rank."""
        whole = self.tensor.detach()
        flat = whole.reshape(-1)  # a copy where the tensor is not contiguous
        flat[self.start : self.stop].view(torch.uint8).copy_(data)
        if not whole.is_contiguous():
            whole.copy_(flat.view(whole.shape))


def cut(state: TrainingState, start: int, budget: int) -> tuple[list[list[Chunk]], int]:
    """Messages with the bulk from element `start` on, about `budget` bytes together, and the element after
    the last.

    Elements are counted through all parameters. A parameter's element and the optimiser's elements that
    belong to it are in the same message. A message has at most `MESSAGE` bytes.
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
