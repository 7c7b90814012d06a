"""Bounds for a process that anybody on the network may talk to, so that it harms no other process."""

from __future__ import annotations

import contextlib
import os
import re
import resource
from pathlib import Path

MB = 1 << 20
NICE = 5
"""Niceness of such a process, which yields to others that want to compute."""
LOG_BYTES = 4 * MB
"""No file that it writes, its log, grows beyond this."""


def confine(*, memory_mb: int, descriptors: int) -> None:
    """Bound this process: its memory to `memory_mb` more than it has now, its open files and connections, and
    the size of its log. If the machine runs out of memory, the kernel ends it before others.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    with contextlib.suppress(OSError):
        os.nice(NICE)
    _at_most(resource.RLIMIT_DATA, _data_bytes() + memory_mb * MB)
    _at_most(resource.RLIMIT_NOFILE, descriptors)
    _at_most(resource.RLIMIT_FSIZE, LOG_BYTES)
    _at_most(resource.RLIMIT_CORE, 0)


def is_full(memory_mb: int) -> bool:
    """True if a process that `confine` has bound has used nine tenths of its memory or its descriptors: soon
    it can serve nobody, and what fills it may be anybody's."""
    memory, _ = resource.getrlimit(resource.RLIMIT_DATA)
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        in_use = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  names are enough, and there may be thousands
        return _data_bytes() > memory - memory_mb * MB // 10 or in_use > descriptors * 9 // 10
    except OSError:  # to find out takes a descriptor, too
        return True


def _at_most(kind: int, most: int) -> None:
    """Lower a limit; one that is lower already stays."""
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def _data_bytes() -> int:
    """Bytes that count for RLIMIT_DATA now."""
    found = re.search(r"^VmData:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
