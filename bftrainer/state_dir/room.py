"""How much room the disk of a folder has left."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Room:
    """What an ordinary user may still use: megabytes, and files (None where none are counted)."""

    mb: float
    files: int | None

    def lacks(self, mb: float, files: int) -> str:
        """What there is too little of, if less is left than these bounds; else empty."""
        if self.mb < mb:
            return f"{self.mb:.0f} MB are free, less than min_free_mb {mb:.0f}"
        if self.files is not None and self.files < files:
            return f"{self.files} more files (inodes) are possible, less than min_free_files {files}"
        return ""


def room_of(folder: Path) -> Room:
    """Ask the file system, which may take as long as a hung one likes.

    Raises:
        OSError: it cannot be asked.
    """
    found = os.statvfs(folder)
    return Room(found.f_bavail * found.f_frsize / MB, found.f_favail if found.f_files else None)
