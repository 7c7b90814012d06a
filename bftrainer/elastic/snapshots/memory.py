"""The memory of one snapshot: a file without a name, which this process maps and its agent reads."""

from __future__ import annotations

import contextlib
import mmap
import os
from pathlib import Path
from typing import Any

import torch

SPARE = 256 * 1024 * 1024
"""Bytes left to the script: snapshots take only memory that is free beyond them."""
ROUND = 1024 * 1024
"""Bytes by which the memory grows, at least: the next snapshot may be a little larger."""
PORTABLE = 1
"""Flag of `cudaHostRegister`: all GPUs of the process may use the memory."""
STEP = 64 * 1024 * 1024
"""Bytes to make ready at once, in the background."""


class SharedMemory:
    """One snapshot's, which grows on demand and is kept. `fd`: the descriptor that the agent has given."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._bytes = torch.empty(0, dtype=torch.uint8)
        self._is_pinned = False

    def has_room(self, nbytes: int) -> bool:
        """True if the memory is there already, or the machine and the pilot have it free."""
        return nbytes <= len(self._bytes) or nbytes - len(self._bytes) + SPARE <= free_bytes()

    def prepare(self, nbytes: int, *, pinned: bool) -> None:
        """Take `nbytes` now: the first use of a page costs as much as the copy. For the background."""
        grown = self.of(nbytes)
        for start in range(0, nbytes, STEP):
            grown[start : start + STEP].zero_()
        if pinned and not self._is_pinned:  # where that fails, copies from the GPU only take longer
            start, size = self._bytes.data_ptr(), len(self._bytes)
            self._is_pinned = int(_cuda().cudaHostRegister(start, size, PORTABLE)) == 0

    def of(self, nbytes: int) -> torch.Tensor:
        """The first bytes of it, to be written. Where it has to grow, what was in it is still there."""
        if nbytes > len(self._bytes):
            if self._is_pinned:
                _cuda().cudaHostUnregister(self._bytes.data_ptr())
                self._is_pinned = False
            whole = (nbytes // ROUND + 2) * ROUND
            os.ftruncate(self._fd, whole)
            self._bytes = torch.frombuffer(mmap.mmap(self._fd, whole), dtype=torch.uint8)
        return self._bytes[:nbytes]


def _cuda() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


def free_bytes(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """The memory that this process can still have, as the machine and its control groups say; much, if they
    do not."""
    found = [1 << 60]
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = (proc / "meminfo").read_text().splitlines()
        found.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with contextlib.suppress(OSError):
        for line in (proc / "self/cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if not kinds:
                found += _of_group(cgroups, path, "memory.max", "memory.current")
            elif "memory" in kinds.split(","):
                found += _of_group(cgroups / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes")
    return max(0, min(found))


def _of_group(root: Path, path: str, limit: str, usage: str) -> list[int]:
    """Bytes left in a control group and those above it. Pages of files that can be dropped count as free."""
    found = []
    group = root / path.lstrip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(root):
            break
        with contextlib.suppress(OSError, ValueError):
            left = int((folder / limit).read_text()) - int((folder / usage).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            found.append(left + int(stat.get("total_inactive_file", stat.get("inactive_file", 0))))
    return found
