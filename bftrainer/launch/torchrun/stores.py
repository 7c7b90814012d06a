"""The stores at which a torchrun run's processes find each other.

One process hosts them all; it starts when it is first needed and ends with the daemon.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

RETRY_S = 1.0


class Stores(Protocol):
    """Where a run's processes find each other."""

    address: str
    """The machine at which nodes reach the stores."""

    def prepare(self) -> None:
        """Get ready: a store will be wanted soon."""
        ...

    def open(self, trainer: int, run: int, opened: Callable[[int], None]) -> None:
        """Make a store for a trainer's run; `opened` is called with its port, later."""
        ...

    def close(self) -> None:
        """End all stores."""
        ...


class StoreHost:
    """Implements `Stores` with a process of `elastic.programs.tcp_store`, started anew if it ends."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._asked: dict[int, tuple[int, Callable[[int], None]]] = {}  # trainer -> run, what to call
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Start the process, if it does not run."""
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    def open(self, trainer: int, run: int, opened: Callable[[int], None]) -> None:
        """Make a store for a trainer's run, in place of one that was asked for and is not there yet."""
        self._asked[trainer] = (run, opened)
        self.prepare()
        if self._process is not None:
            self._ask(trainer)

    def close(self) -> None:
        """Kill the process."""
        if self._keeper is not None:
            self._keeper.cancel()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _keep(self) -> None:
        """Keep the process alive: runs that have begun need it no more, those to come do."""
        while True:
            try:
                self._process = process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "bftrainer.elastic.programs.tcp_store", self.address),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
            except OSError as error:
                log.error("cannot start the host of torchrun's stores: %s", error)
            else:
                for trainer in self._asked:
                    self._ask(trainer)
                await self._listen(process)
                log.error("the host of torchrun's stores ended with code %s", await process.wait())
            self._process = None
            await asyncio.sleep(RETRY_S)

    def _ask(self, trainer: int) -> None:
        assert self._process is not None and self._process.stdin is not None  # noqa: S101
        line = json.dumps({"trainer": trainer, "run": self._asked[trainer][0]})
        self._process.stdin.write(line.encode() + b"\n")

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None  # noqa: S101
        async for line in process.stdout:
            answer = json.loads(line)
            run, opened = self._asked.get(answer["trainer"], (0, None))
            if opened is not None and run == answer["run"]:
                del self._asked[answer["trainer"]]
                opened(answer["port"])
