"""The stores at which a torchrun run's processes find each other.

One process hosts them all, each in a child of its own; it starts when it is first needed and ends with the
daemon. Everybody on the network can talk to a store, so each has bounds, and ends alone when it is full.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""Seconds before a host, or a trainer's store, that has ended is started again."""
HOST_ENDED = "the host of all stores ended"


class Stores(Protocol):
    """Stores through which a run's processes find each other."""

    address: str
    """The machine at which nodes reach the stores."""

    def prepare(self) -> None:
        """Get ready: a store will be wanted soon."""
        ...

    def open(
        self, trainer: int, run: int, opened: Callable[[int], None], lost: Callable[[str], None]
    ) -> None:
        """Make a store for a trainer's run, in place of its last run's. Later, `opened` is called with its
        port, and `lost` with the reason if the store then ends by itself."""
        ...

    def used(self, trainer: int, run: int, answered: Callable[[bool | None], None]) -> None:
        """Find out whether any process has ever written to the store of a run, as all do that form a group.
        None: there is no telling."""
        ...

    def end(self, trainer: int) -> None:
        """End a trainer's store. Idempotent."""
        ...

    def close(self) -> None:
        """End all stores."""
        ...


@dataclass(slots=True)
class Wanted:
    """A run's store."""

    run: int
    opened: Callable[[int], None]
    lost: Callable[[str], None]
    is_open: bool = False
    asked: list[Callable[[bool | None], None]] = field(default_factory=list)  # whether it was used

    def answer(self, is_used: bool | None) -> None:
        """Tell those who have asked."""
        asked, self.asked = self.asked, []
        for answered in asked:
            answered(is_used)


class StoreHost:
    """Implements `Stores` with a process of `elastic.programs.tcp_store`, restarted if it ends.

    `memory_mb` and `connections` bound each store.
    """

    def __init__(self, address: str, *, memory_mb: int, connections: int) -> None:
        self.address = address
        self._bounds = (str(memory_mb), str(connections))
        self._wanted: dict[int, Wanted] = {}  # by trainer
        self._ended_at: dict[int, float] = {}  # trainer -> when its last store ended by itself
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Start the process, if it does not run."""
        if self._keeper is None:
            self._keeper = asyncio.get_running_loop().create_task(self._keep())

    def open(
        self, trainer: int, run: int, opened: Callable[[int], None], lost: Callable[[str], None]
    ) -> None:
        """Make a store for a trainer's run, in place of the one before."""
        self._wanted[trainer] = wanted = Wanted(run, opened, lost)
        self.prepare()
        loop = asyncio.get_running_loop()
        again_at = self._ended_at.get(trainer, 0.0) + RETRY_S
        loop.call_at(max(again_at, loop.time()), self._ask, trainer, wanted)

    def used(self, trainer: int, run: int, answered: Callable[[bool | None], None]) -> None:
        """Find out whether the store of a run was ever used; None where there is no such store any more."""
        wanted = self._wanted.get(trainer)
        if wanted is None or wanted.run != run or not wanted.is_open:
            answered(None)
            return
        wanted.asked.append(answered)
        self._write(trainer, run, used=None)

    def end(self, trainer: int) -> None:
        """End a trainer's store. Idempotent."""
        self._ended_at.pop(trainer, None)
        if self._wanted.pop(trainer, None) is not None:
            self._write(trainer, 0)

    def close(self) -> None:
        """Kill the process, and all stores with it."""
        if self._keeper is not None:
            self._keeper.cancel()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _keep(self) -> None:
        """Keep the process alive: runs that have begun do not need it, those to come do."""
        while True:
            try:
                self._process = process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "bftrainer.elastic.programs.tcp_store", self.address),
                    *self._bounds,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
            except OSError as error:
                log.error("cannot start the host of torchrun's stores: %s", error)
            else:
                for trainer, wanted in tuple(self._wanted.items()):
                    self._ask(trainer, wanted)
                await self._listen(process)
                log.error("the host of torchrun's stores ended with code %s", await process.wait())
            self._process = None
            for trainer, wanted in tuple(self._wanted.items()):
                if wanted.is_open:
                    self._lose(trainer, wanted, HOST_ENDED)
            await asyncio.sleep(RETRY_S)

    def _ask(self, trainer: int, wanted: Wanted) -> None:
        if self._wanted.get(trainer) is wanted and not wanted.is_open:
            self._write(trainer, wanted.run)

    def _write(self, trainer: int, run: int, **more: None) -> None:
        """Tell the process, if it is there. Run 0: the trainer needs no store."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(json.dumps({"trainer": trainer, "run": run, **more}).encode() + b"\n")

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None  # noqa: S101
        async for line in process.stdout:
            answer = json.loads(line)
            wanted = self._wanted.get(answer["trainer"])
            if wanted is None or wanted.run != answer["run"]:
                continue
            if "lost" in answer:
                self._lose(answer["trainer"], wanted, answer["lost"])
            elif "used" in answer:
                wanted.answer(answer["used"])
            elif not wanted.is_open:
                wanted.is_open = True
                wanted.opened(answer["port"])

    def _lose(self, trainer: int, wanted: Wanted, reason: str) -> None:
        """A store has ended by itself: whether the run still needs one is its launcher's to say."""
        del self._wanted[trainer]
        self._ended_at[trainer] = asyncio.get_running_loop().time()
        wanted.answer(None)
        wanted.lost(reason)
