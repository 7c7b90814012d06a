"""Memory of the CPU through which a state on GPUs travels: pinned, kept, and copied on streams of its own.

A copy into ordinary memory is made in small parts by the driver, and on the default stream it waits for all
kernels that are queued there, also those that have nothing to do with it. Here it waits for those alone that
were queued before `follow`. With a state on the CPU all of this does nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch


class Staging:
    """Copies of one state, in pieces of `size` bytes at most. `follow` is for the training's thread, all else
    for one other.
    """

    def __init__(self, tensors: Iterable[torch.Tensor], size: int = 0) -> None:
        devices = {tensor.device for tensor in tensors if tensor.is_cuda}
        self._streams: list[Any] = [
            torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            for device in sorted(devices, key=str)
        ]
        self._size = size
        self._free: list[torch.Tensor] = []
        self._lent: dict[int, torch.Tensor] = {}

    @property
    def is_pinned(self) -> bool:
        """True if the memory is pinned: a part of the state is on a GPU."""
        return bool(self._streams)

    def memory(self, nbytes: int) -> torch.Tensor:
        """Memory for `nbytes` bytes, reused if possible."""
        if not self._free:
            self._free.append(torch.empty(self._size, dtype=torch.uint8, pin_memory=self.is_pinned))
        whole = self._free.pop()
        self._lent[whole.data_ptr()] = whole
        return whole[:nbytes]

    def give_back(self, memory: torch.Tensor) -> None:
        """Nothing is under way any more that reads or writes this memory."""
        self._free.append(self._lent.pop(memory.data_ptr()))

    def follow(self) -> None:
        """Order all further copies after the work that the training has queued so far."""
        for stream in self._streams:
            stream.wait_stream(torch.cuda.current_stream(stream.device))

    @contextlib.contextmanager
    def copies(self) -> Iterator[None]:
        """Around copies, which are done when it ends."""
        with contextlib.ExitStack() as stack:
            for stream in self._streams:
                stack.enter_context(torch.cuda.stream(stream))
            yield
        for stream in self._streams:
            stream.synchronize()
