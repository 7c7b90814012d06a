"""Which pilots there should be: one wherever a trainer is to run, and none that nobody needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from bftrainer.errors import SchedulerError
from bftrainer.model.machine import Operation, Pilot
from bftrainer.model.trainer import Trainer, TrainerSpec
from bftrainer.nodes.apart import alone, in_the_way
from bftrainer.nodes.background import Background
from bftrainer.nodes.held import users_of
from bftrainer.nodes.pilots import Pilots
from bftrainer.nodes.release import Release
from bftrainer.nodes.state import NodesState
from bftrainer.nodes.watch import Watch
from bftrainer.ports import Workers
from bftrainer.telemetry.troubles import Troubles

HOLD_S = 0.5
"""How often pilots are checked where nothing asks for it: some are ended, or tried again, after a time."""


class Hold:
    """Submits the pilots that are missing and ends those that are spare.

    Which pilots there should be follows from the nodes that trainers have, and is checked again and again. It
    does not follow from single actions: a pilot may be refused, lost, or over its limit, and is then due
    though no action says so. A worker that is to start waits at the launcher until its node's agent is there.

    `trainers` are those that may hold nodes, `user_of` says as which user a trainer's pilots run.
    """

    def __init__(
        self,
        *,
        pilots: Pilots,
        workers: Workers,
        trainers: Callable[[], Sequence[Trainer]],
        user_of: Callable[[TrainerSpec], str],
        troubles: Troubles,
        state: NodesState,
        watch: Watch,
        release: Release,
        background: Background,
    ) -> None:
        self._pilots, self._workers, self._trainers, self._user_of = pilots, workers, trainers, user_of
        self._troubles, self._state, self._watch, self._release = troubles, state, watch, release
        self._background = background
        self._now = asyncio.Event()

    def wake(self) -> None:
        """Check the pilots now: trainers or nodes have changed."""
        self._now.set()

    async def run(self) -> None:
        """Check the pilots again and again, until the daemon ends them all."""
        while not self._state.closing:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._now.wait(), HOLD_S)
            self._now.clear()
            await self.check()

    async def check(self) -> None:
        """End the pilots that can go, and have the missing ones submitted."""
        self._state.tell_barred()
        wanted = self._wanted()
        others = in_the_way(wanted, users_of(self._pilots.held)) if self._state.keeps_users_apart else {}
        self._release.drop(self._pilots.to_cancel({**others, **wanted}, self._workers.busy))
        if (
            self._state.operation is Operation.RUNNING
            and not self._troubles.has("scheduler")
            and self._missing()
        ):
            # trainers that lose nodes to a main job want others, which it may need as well: poll first
            with suppress(SchedulerError):
                await self._watch.fresh_poll()
                missing = self._missing()
                if self._state.operation is Operation.RUNNING:
                    for user in dict.fromkeys(pilot.user for pilot in missing):  # none waits for another
                        own = [pilot for pilot in missing if pilot.user == user]
                        self._background.start(self._submit(own))

    def _wanted(self) -> dict[str, str]:
        """Node -> the user as whom its pilot is to run."""
        return {
            node: self._user_of(t.spec)
            for t in self._trainers()
            for node in t.nodes
            if node in self._state.nodes
        }

    def _missing(self) -> list[Pilot]:
        """The pilots to submit now."""
        wanted = self._wanted()
        if self._state.keeps_users_apart:
            wanted = alone(wanted, self._state.clearing.users | users_of(self._pilots.held))
        return self._pilots.to_submit(wanted)

    async def _submit(self, pilots: Sequence[Pilot]) -> None:
        refused = await self._pilots.order(pilots, self._state.hole_s)
        self._state.lose(refused, "no pilot can be had there")
