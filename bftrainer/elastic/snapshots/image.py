"""The file of a checkpoint before its tensors are in it: all that `torch.save` writes around them.

So a snapshot is one copy of each tensor, to the place in shared memory that it has in the file. Whoever
writes that memory to the disk needs neither torch nor this process.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import IO, Any, cast

import torch

from bftrainer.elastic.state.packing import mapped, plain

RECORD = b"archive/data/"
"""So a tensor's name in the file begins; its number among all follows."""


@dataclass(frozen=True, slots=True)
class Image:
    """A file of `nbytes`. `around`: all but the tensors, each part with its place. `tensors`: those that have
    elements, each with the place of its first byte."""

    nbytes: int
    around: tuple[tuple[int, bytes], ...]
    tensors: tuple[tuple[int, torch.Tensor], ...]


class ImageError(RuntimeError):
    """This PyTorch writes its files in another way."""


def image_of(value: Any) -> Image:
    """The image of a state with tensors on any device. No element of a tensor is read.

    Raises:
        ImageError: see there.
        pickle.PicklingError: the state has something in it that no file can have.
    """
    tensors: list[torch.Tensor] = []

    def stand_in(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return plain(leaf)
        tensors.append(leaf)
        return torch.empty(leaf.shape, dtype=leaf.dtype)  # memory that is never touched, so it costs nothing

    file = _Around()
    with torch.serialization.skip_data():
        torch.save(mapped(value, stand_in), cast(IO[bytes], file))  # it uses no more of a file
    sizes = {number: size for number, _, size in file.gaps}
    if sizes != {n: size for n, t in enumerate(tensors) if (size := t.numel() * t.element_size())}:
        raise ImageError(f"torch.save left {len(sizes)} gaps that are not those of {len(tensors)} tensors")
    placed = tuple((place, tensors[number]) for number, place, _ in file.gaps)
    return Image(file.position, tuple(file.written), placed)


def check_readable(value: Any) -> None:
    """Check that a checkpoint of this state can be read by those who trust nobody.

    Raises:
        pickle.UnpicklingError: it has something in it that `weights_only` does not take.
    """
    file = io.BytesIO()
    torch.save(mapped(value, _emptied), file)
    torch.load(io.BytesIO(file.getvalue()), weights_only=True)


def _emptied(leaf: Any) -> Any:
    return torch.empty(0, dtype=leaf.dtype) if isinstance(leaf, torch.Tensor) else plain(leaf)


class _Around:
    """A file for `torch.save` that keeps what is written, and the gaps left for tensors."""

    def __init__(self) -> None:
        self.position = 0
        self.written: list[tuple[int, bytes]] = []
        self.gaps: list[tuple[int, int, int]] = []  # a tensor's number, its place, and its size

    def write(self, data: bytes | memoryview) -> int:
        self.written.append((self.position, bytes(data)))
        self.position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_CUR:
            raise ImageError("torch.save went back in its file")
        name = next(data for _, data in reversed(self.written) if data.startswith(RECORD))
        self.gaps.append((int(name.removeprefix(RECORD)), self.position, offset))
        self.position += offset
        return self.position

    def flush(self) -> None:
        pass
