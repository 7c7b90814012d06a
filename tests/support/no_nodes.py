"""A scheduler for a daemon that is to have nothing to do."""

from __future__ import annotations

from bftrainer.model.machine import Pilot, Snapshot


class NoNodes:
    """A machine without nodes."""

    async def poll(self) -> Snapshot:
        return Snapshot(time=0.0, nodes=())

    async def pilots(self) -> tuple[Pilot, ...]:
        return ()

    async def close(self) -> None:
        pass
