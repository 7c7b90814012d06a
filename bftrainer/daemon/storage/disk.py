"""Watches the disk of the state directory: says that it gets full before it is, and that it hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from bftrainer.settings.live import LiveSettings
from bftrainer.state_dir.room import DiskSpace, room_of
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.threads import in_thread

CHECK_S = 5.0
"""Seconds between two checks of the disk."""
HUNG_S = 10.0
"""Seconds without an answer after which a disk counts as hanging."""


class Disk:
    """Keeps the register of what is wrong up to date about one folder's disk, for as long as the daemon runs.

    A thread of its own asks the disk: one that hangs keeps nothing else waiting, and no end of the daemon.
    """

    def __init__(
        self,
        folder: Path,
        settings: LiveSettings,
        telemetry: Telemetry,
        measure: Callable[[Path], DiskSpace] = room_of,
    ) -> None:
        self._folder, self._settings, self._telemetry, self._measure = folder, settings, telemetry, measure
        self._asked_at: float | None = None  # since when a question is open

    async def run(self) -> None:
        """Ask again and again, for ever."""
        while True:
            if self._asked_at is None:
                self._asked_at = time.monotonic()
                in_thread("disk", self._lacking).add_done_callback(self._answered)
            elif time.monotonic() - self._asked_at > HUNG_S:
                self._note(f"it has not answered for {time.monotonic() - self._asked_at:.0f} s")
            await asyncio.sleep(CHECK_S)

    def _lacking(self) -> str:
        settings = self._settings.current
        try:
            return self._measure(self._folder).lacks(settings.min_free_mb)
        except OSError as error:
            return f"it cannot be asked how full it is: {error.strerror}"

    def _answered(self, answer: asyncio.Future[str]) -> None:
        lacking = answer.result()
        self._asked_at = None
        self._note(lacking)

    def _note(self, lacking: str) -> None:
        reason = f"the disk of state_dir: {lacking}" if lacking else ""
        self._telemetry.condition("disk", reason, f"{self._folder}; make room there" if lacking else "")
