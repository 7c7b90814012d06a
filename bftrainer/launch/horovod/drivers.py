"""The drivers of Horovod trainers: one process each, which outlives the daemon and is found again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from bftrainer.files import private_file
from bftrainer.model.reports import Message

log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_S = 0.05
UP_S = 60.0
"""Seconds after which a driver that does not listen never will."""
RETRY_S = 2.0
LINE_BYTES = 16 << 20
"""The longest line of a driver: the names of all workers of the largest membership."""
LOG_BYTES = 1 << 20
"""Bytes above which the next driver truncates a log; a driver itself bounds its output."""

LOGS = 50
"""Logs of drivers to keep, the last written."""


class Drivers(Protocol):
    """The trainers' drivers; `wire.messages.helpers` has their messages, both ways."""

    address: str
    """The machine at which nodes reach the drivers."""

    def open(self, trainer: int, heard: Callable[[Message], None]) -> None:
        """Have a driver for a trainer, if there is none; `heard` is called with everything that it says."""
        ...

    def tell(self, trainer: int, message: Message) -> None:
        """Send a message to a trainer's driver; nothing happens if it is not there."""
        ...

    def end(self, trainer: int) -> None:
        """End a trainer's driver: it has no workers to lead. Idempotent."""
        ...

    def close(self) -> None:
        """End all drivers."""
        ...


class DriverProcesses:
    """Implements `Drivers` with processes of `elastic.horovod.driver`.

    They listen on sockets in `folder`, named by trainer and start, and end by themselves when no daemon comes
    for `orphan_s`. `address`: this machine, as nodes reach it. `memory_mb` and `connections` bound each.
    """

    def __init__(
        self, address: str, folder: Path, *, orphan_s: float, memory_mb: int, connections: int
    ) -> None:
        self.address = address
        self._bounds = ("--memory-mb", str(memory_mb), "--connections", str(connections))
        self._folder, self._orphan_s = folder, orphan_s
        self._keepers: dict[int, asyncio.Task[None]] = {}
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._paths: dict[int, Path] = {}
        self._disk = ThreadPoolExecutor(1, "horovod-files")  # one, so that what is asked first is done first

    def open(self, trainer: int, heard: Callable[[Message], None]) -> None:
        """Find or start a driver, and keep it."""
        if trainer not in self._keepers:
            task = asyncio.get_running_loop().create_task(self._keep(trainer, heard))
            self._keepers[trainer] = task

    def tell(self, trainer: int, message: Message) -> None:
        """Send a message; nothing happens while the driver is not connected."""
        writer = self._writers.get(trainer)
        if writer is not None and not writer.is_closing():
            writer.write(json.dumps(message).encode() + b"\n")

    def end(self, trainer: int) -> None:
        """Tell a driver to end, and forget it. Idempotent."""
        self.tell(trainer, {"type": "end"})
        self._writers.pop(trainer, None)
        if trainer in self._paths:
            self._disk.submit(self._paths.pop(trainer).unlink, missing_ok=True)  # it is not found any more
        keeper = self._keepers.pop(trainer, None)
        if keeper is not None:
            keeper.cancel()

    def close(self) -> None:
        """End all drivers."""
        for trainer in tuple(self._keepers):
            self.end(trainer)
        self._disk.shutdown(wait=False)

    async def _on_disk(self, work: Callable[..., T], *args: Any) -> T:
        """Do something with files where a disk that hangs keeps nothing else waiting."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *args)

    async def _keep(self, trainer: int, heard: Callable[[Message], None]) -> None:
        """Find or start the driver and listen to it; once more whenever it is lost."""
        while True:
            try:
                reader, writer = await self._find(trainer) or await self._start(trainer)
            except OSError as error:
                log.error("trainer %d has no Horovod driver: %s", trainer, error)
                heard({"type": "failed", "reason": str(error)})
                await asyncio.sleep(RETRY_S)
                continue
            self._writers[trainer] = writer
            try:
                with contextlib.suppress(OSError, ValueError):  # strangers talk to it: it may say anything
                    async for line in reader:
                        heard(json.loads(line))
                heard({"type": "lost"})
            finally:
                writer.close()
            await asyncio.sleep(POLL_S)

    async def _find(self, trainer: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """A driver that an earlier daemon has started."""
        for path in await self._on_disk(lambda: sorted(self._folder.glob(f"{trainer}-*.sock"))):
            try:
                return await self._connect(trainer, path)
            except OSError:
                await self._on_disk(lambda path=path: path.unlink(missing_ok=True))  # it has ended
        return None

    async def _connect(self, trainer: int, path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = await asyncio.open_unix_connection(str(path), limit=LINE_BYTES)
        self._paths[trainer] = path
        return connection

    async def _start(self, trainer: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises `OSError` where it cannot be started."""
        path = self._folder / f"{trainer}-{time.time_ns()}.sock"
        log_path = self._folder / f"{trainer}.log"
        with await self._on_disk(_open_log, log_path) as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "bftrainer.elastic.horovod.driver"),
                *("--socket", str(path), "--orphan-s", str(self._orphan_s), "--address", self.address),
                *self._bounds,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            async with asyncio.timeout(UP_S):
                while process.returncode is None:
                    with contextlib.suppress(OSError):
                        return await self._connect(trainer, path)
                    await asyncio.sleep(POLL_S)
        except asyncio.CancelledError:
            process.kill()  # it is not wanted any more
            raise
        except TimeoutError:
            process.kill()
        said = await self._on_disk(lambda: log_path.read_text(errors="replace"))
        lines = said.splitlines()
        raise OSError(
            f"{lines[-1] if lines else 'it ended'}; is Horovod installed (make horovod)? See {log_path}"
        )


def _open_log(path: Path) -> IO[bytes]:
    """Open a driver's log, and remove the oldest of other trainers'."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    others = sorted((other.stat().st_mtime, other) for other in path.parent.glob("*.log") if other != path)
    for _, other in others[: max(0, len(others) + 1 - LOGS)]:
        other.unlink(missing_ok=True)
    log = os.fdopen(private_file(path), "ab")
    if log.tell() > LOG_BYTES:
        log.truncate(0)
    return log
