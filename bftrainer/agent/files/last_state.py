"""Keeps what would be lost with a worker: its state is written also after its end, and before it has left."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bftrainer.agent.files.checkpoints import CheckpointWriter
from bftrainer.files import is_among
from bftrainer.model.reports import Message

log = logging.getLogger(__name__)


class LastState:
    """The state of a worker on `node`. `send` sends it a message; `left` is called when it has left."""

    def __init__(self, node: str, send: Callable[[Message], None], left: Callable[[Message], None]) -> None:
        self._node, self._send, self._left = node, send, left
        self._writer: CheckpointWriter | None = None
        self._saved = 0  # the step of the trainer's last checkpoint, as the worker has said
        self._waiting: Message | None = None  # what it said when it left, until its state is written
        self._task: asyncio.Task[None] | None = None
        self._is_last = self._has_joined = self._has_ended = False

    @property
    def slots(self) -> tuple[int, ...]:
        """Descriptors of the memory for its snapshots."""
        return self._writer.slots if self._writer is not None else ()

    @property
    def is_at_risk(self) -> bool:
        """True if this node is known to hold a state that is not on the disk yet."""
        return self._is_last and (self._is_busy if self._has_ended else self._has_joined)

    @property
    def kept(self) -> int | None:
        """The step of the last checkpoint, 0 if there is none; None where other members have the state."""
        mine = self._writer.saved if self._writer is not None else None
        return (self._saved if mine is None else mine) if self._is_last else None

    @property
    def _is_busy(self) -> bool:
        return self._writer is not None and self._writer.is_busy

    def open(self, order: Mapping[str, Any]) -> None:
        """Make memory for the snapshots of a worker that is to start so, if it can take any."""
        folder = order["worker"].get("checkpoint_dir")
        if folder and not order["gated"]:
            own = is_among(folder, order["worker"].get("folder", ""))
            self._writer = CheckpointWriter(Path(folder), self._send, own=own)

    def close(self) -> None:
        """The worker has ended, and is not waited for any more."""
        if self._writer is not None:
            self._writer.close()

    def told(self, message: Message) -> None:
        """Note a message to the worker."""
        if message["type"] == "regroup":
            self._is_last = not {*message["members"]} - {self._node}

    def heard(self, message: Message) -> bool:
        """Note a message of the worker. Returns whether others must hear it now."""
        kind = message["type"]
        self._has_joined |= kind == "joined"
        saved = message.get("saved")
        self._saved = saved if isinstance(saved, int) else self._saved
        if kind == "snapshot":
            self._take(message)
            return False
        if kind == "left" and self._is_busy:
            self._waiting = message
            self._task = asyncio.create_task(self.settle())
            return False
        return True

    def within(self, seconds: float) -> None:
        """Allow at most `seconds` for writing it."""
        if self._writer is not None:
            self._writer.deadline = min(self._writer.deadline, time.monotonic() + seconds)

    async def ended(self, order: Mapping[str, Any], *, is_leaving: bool) -> None:
        """The worker has ended: wait until its state is written, unless other members have it."""
        self._has_ended = True
        if self._is_busy and (is_leaving or self._is_last):
            self.within(order["grace_s"])
            await self.settle()

    async def settle(self) -> None:
        """Wait until all is written, or there is no time for it: only then the worker has left."""
        if self._writer is not None:
            await self._writer.finish()
        message, self._waiting = self._waiting, None
        if message is not None:
            self._left(message)

    def _take(self, message: Message) -> None:
        try:
            if self._writer is not None:
                self._writer.take(message)
        except (KeyError, ValueError) as error:
            log.warning("a worker says nonsense of a snapshot: %s", error)
