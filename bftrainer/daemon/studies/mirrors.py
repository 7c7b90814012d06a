"""The helper process that keeps storages of Optuna like the studies that name them.

It asks the daemon as any client does, and writes as the daemon's user. So nothing here waits for a storage:
one that is on a dead file system, or a server that does not answer, holds up its own study's copy alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bftrainer.ports import Clock
from bftrainer.search.optuna.storage import shown
from bftrainer.settings.live import LiveSettings

log = logging.getLogger(__name__)

AGAIN_S = 10.0
"""Seconds until a helper that has ended is restarted."""
NOT_OURS = (
    "the daemon here writes into no storage of yours; keep it up to date: bftrainer study mirror {name}"
)
END_S = 2.0
"""Seconds that the helper has to end by itself."""


def command(socket: Path) -> tuple[str, ...]:
    """The helper of the daemon at this socket."""
    return (sys.executable, "-P", "-m", "bftrainer", "study", "mirrors", str(socket))


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A storage at the last attempt to write it: at `at`, under a name, and what failed."""

    at: float
    name: str
    error: str
    since: float


class Mirrors:
    """The helper, and what it says of each study's storage. Belongs to the event loop."""

    def __init__(self, settings: LiveSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._wanted = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._said: dict[int, Copied] = {}

    def want(self) -> None:
        """Have the helper started: a study has a storage."""
        if self._settings.current.mode != "site":  # there it would write into files of users as the daemon
            self._wanted.set()

    def view(self, study: int, name: str, url: str | None) -> Mapping[str, Any] | None:
        """Return the view of a study's storage; None: it has none."""
        if url is None:
            return None
        said = self._said.get(study)
        own = {"url": shown(url), "name": "", "at": None, "since": None, "error": ""}
        if self._settings.current.mode == "site":
            return own | {"error": NOT_OURS.format(name=name)}
        return (
            own
            if said is None
            else own | {"name": said.name, "at": said.at, "since": said.since, "error": said.error}
        )

    async def run(self) -> None:
        """Keep the helper alive once it is wanted, for ever."""
        await self._wanted.wait()
        settings = self._settings.current
        while True:
            try:
                self._process = process = await asyncio.create_subprocess_exec(
                    *command(settings.socket),
                    stdin=asyncio.subprocess.PIPE,  # it ends with us, however we end
                    stdout=asyncio.subprocess.PIPE,
                )
            except OSError as error:
                log.error("cannot start the helper that writes storages of studies: %s", error)
            else:
                await self._listen(process)
                log.error("the helper that writes storages of studies ended with %s", await process.wait())
            await asyncio.sleep(AGAIN_S)

    async def close(self) -> None:
        """Have the helper end, within `END_S`. What it has not written is written after the next start."""
        process = self._process
        if process is None or process.returncode is not None or process.stdin is None:
            return
        process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), END_S)
            return
        process.kill()
        await process.wait()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None  # noqa: S101
        async for line in process.stdout:
            said, now = json.loads(line), self._clock.now()
            before = self._said.get(said["study"])
            as_before = before is not None and before.error == said["error"]
            since = before.since if before is not None and as_before else now
            self._said[said["study"]] = Copied(at=now, name=said["name"], error=said["error"], since=since)
