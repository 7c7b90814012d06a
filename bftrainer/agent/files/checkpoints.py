"""Writes a worker's snapshots to the disk, also those of a worker that has ended.

The snapshots lie in memory that the agent shares with the worker. A piece of it is the agent's from
"snapshot" to "written" (`elastic.snapshots.saver`), so that what is written here is always whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bftrainer.files import held
from bftrainer.model.reports import Message
from bftrainer.threads import in_thread

log = logging.getLogger(__name__)

SLOTS = 2
KEEP = 2
"""Number of checkpoints to keep."""
CHUNK = 8 * 1024 * 1024
FLUSH = 64 * 1024 * 1024
"""Bytes between flushes to the disk: giving up, and ending, stay quick."""
CHECK_S = 0.1
HANGS_S = 1.0
"""Seconds beyond the deadline for one part after which a disk is given up."""
_NAME = re.compile(r"g\d{8}-s\d{12}\.pt")


@dataclass(frozen=True, slots=True)
class _Taken:
    """A whole snapshot: the first `nbytes` of a piece of memory, of a state after `step` steps."""

    slot: int
    nbytes: int
    file: str
    step: int


class CheckpointWriter:
    """Writes the snapshots of one worker into `folder`, one after the other. Calls `written` for each.

    `own`: the folder must be this user's alone. `deadline`: until when it may write, by `time.monotonic`;
    what is not whole then is given up.
    """

    def __init__(self, folder: Path, written: Callable[[Message], None], *, own: bool = False) -> None:
        self._folder, self._written, self._own = folder, written, own
        self.slots = _shared_memory()
        """Descriptors of the memory, for the worker."""
        self.deadline = math.inf
        self.saved: int | None = None
        """The step of the last checkpoint that is whole on the disk."""
        self.error = ""
        self._next: _Taken | None = None
        self._now: Writing | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    @property
    def is_busy(self) -> bool:
        """True if a snapshot is not on the disk yet."""
        return self._task is not None

    def take(self, message: Message) -> None:
        """Take over a snapshot from the worker. One before it that waits, or has hardly begun, is given up.

        Raises:
            ValueError, KeyError: the worker's message is nonsense.
        """
        snapshot = _Taken(*(message[name] for name in ("slot", "bytes", "file", "step")))
        kinds = [type(value) for value in (snapshot.slot, snapshot.nbytes, snapshot.file, snapshot.step)]
        if kinds != [int, int, str, int] or snapshot.slot not in range(len(self.slots)):
            raise ValueError("a snapshot is a piece of memory, a size, a name and a step")
        room = os.fstat(self.slots[snapshot.slot]).st_size
        if not _NAME.fullmatch(snapshot.file) or not 0 < snapshot.nbytes <= room:
            raise ValueError("a snapshot has the name of a checkpoint, and the size of its memory at most")
        if self._next is not None:
            self._tell(self._next, saved=False)
        self._next = snapshot
        if self._now is not None and self._now.gives_way(snapshot.nbytes, self.deadline - time.monotonic()):
            self._now.is_wanted = False
        if self._task is None:
            self._task = asyncio.create_task(self._write_all())

    async def finish(self) -> None:
        """Wait until nothing is left to write, or the deadline has passed."""
        while self._task is not None and time.monotonic() < self.deadline + HANGS_S:
            await asyncio.wait([self._task], timeout=CHECK_S)

    def close(self) -> None:
        """The worker has ended: let go of the memory as soon as nothing is left to write."""
        self._is_closing = True
        if self._task is None:
            for slot in self.slots:
                os.close(slot)
            self.slots = ()

    async def _write_all(self) -> None:
        while (snapshot := self._next) is not None:
            self._next = None
            path = self._folder / snapshot.file
            memory = self.slots[snapshot.slot]
            self._now = Writing(memory, snapshot.nbytes, path, lambda: self.deadline, own=self._own)
            saved = False
            try:
                saved = await in_thread("checkpoint", self._now.write)
                self.error = ""
            except (OSError, RuntimeError) as error:  # the disk is full, or there is no thread
                self.error = f"checkpoint {path}: {error}"
                log.error("%s", self.error)
            if saved:
                self.saved = max(snapshot.step, self.saved or 0)
            self._tell(snapshot, saved=saved)
        self._now = self._task = None
        if self._is_closing:
            self.close()

    def _tell(self, snapshot: _Taken, *, saved: bool) -> None:
        about = {"slot": snapshot.slot, "step": snapshot.step}
        self._written({"type": "written", **about, "saved": saved, "error": self.error})


class Writing:
    """One snapshot on its way to the disk: to a file of another name, which is flushed and then renamed."""

    def __init__(
        self, memory: int, nbytes: int, path: Path, deadline: Callable[[], float], *, own: bool = False
    ) -> None:
        self._memory, self._nbytes, self._path, self._deadline = memory, nbytes, path, deadline
        self._own = own
        self._done, self._began_at = 0, time.monotonic()
        self.is_wanted = True

    def gives_way(self, nbytes: int, left_s: float) -> bool:
        """True if this snapshot should be given up for a later one of `nbytes` bytes: not if half of it is
        written, nor if no time would be left for the later one."""
        took_s = time.monotonic() - self._began_at
        fits = not self._done or nbytes * took_s <= left_s * self._done
        return fits and self._done < self._nbytes / 2

    def write(self) -> bool:
        """Write it. Returns False if it was given up.

        Raises:
            OSError: it cannot be written.
        """
        with held(self._path.parent, own=self._own) as folder:
            partial = folder / f".{self._path.name}.{os.getpid()}"
            try:
                partial.unlink(missing_ok=True)
                # a new file: others may write to a folder that a spec names, and have put a link there
                with partial.open("xb", buffering=0) as file:
                    if not self._wrote_all(file.fileno()):
                        return False
                partial.replace(folder / self._path.name)
                _prune(folder)
                return True
            finally:
                with contextlib.suppress(OSError):
                    partial.unlink(missing_ok=True)

    def _wrote_all(self, file: int) -> bool:
        """Write it all to a file, unless it is given up."""
        while self._done < self._nbytes:
            if not self._goes_on():
                return False
            size = write_chunk(file, self._memory, self._done, self._nbytes)
            if self._done // FLUSH < (self._done + size) // FLUSH:
                os.fdatasync(file)
            self._done += size
        os.fsync(file)
        return True

    def _goes_on(self) -> bool:
        return self.is_wanted and time.monotonic() < self._deadline()


def _prune(folder: Path) -> None:
    """Remove all but the newest checkpoints of a folder."""
    names = sorted(path.name for path in folder.iterdir() if _NAME.fullmatch(path.name))
    for name in names[:-KEEP]:
        (folder / name).unlink(missing_ok=True)


def write_chunk(file: int, memory: int, start: int, stop: int) -> int:
    """Write the next bytes of a piece of memory to a file, and return how many."""
    return os.write(file, os.pread(memory, min(CHUNK, stop - start), start))


def _shared_memory() -> tuple[int, ...]:
    try:
        return tuple(os.memfd_create(f"bftrainer-snapshot-{number}") for number in range(SLOTS))
    except OSError as error:  # its workers write their state themselves
        log.warning("no memory can be shared with workers: %s", error)
        return ()
