"""The free space of a folder's disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MB = 1_000_000
FILES = 1000
"""Files (inodes) that a disk must have room for: each trial has a folder."""


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Space left to an ordinary user: megabytes, and files (None where none are counted)."""

    mb: float
    files: int | None

    def lacks(self, mb: float) -> str:
        """Names the space that is short, if less than `mb` is left or fewer than `FILES`; else empty. With 0
        MB nothing is."""
        if self.mb < mb:
            return f"{self.mb:.0f} MB are free, less than min_free_mb {mb:.0f}"
        if mb and self.files is not None and self.files < FILES:
            return f"{self.files} more files (inodes) are possible, fewer than {FILES:,}"
        return ""


def room_of(folder: Path) -> DiskSpace:
    """Ask the file system, which may take as long as a hung one likes.

    Raises:
        OSError: it cannot be asked.
    """
    found = os.statvfs(folder)
    return DiskSpace(found.f_bavail * found.f_frsize / MB, found.f_favail if found.f_files else None)
