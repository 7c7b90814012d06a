"""Keeps a pilot wherever a trainer is to run, and none that nobody needs.

Where single GPUs are shared out and the site wants that (`share_nodes: no`), no two users ever have pilots on
one node: a plan sees to it for trainers, but a pilot outlives its trainer, and takes a moment to be cleared
away.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from bftrainer.background import Background
from bftrainer.errors import SchedulerError
from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Operation, Pilot
from bftrainer.model.trainer import Trainer, TrainerSpec
from bftrainer.nodes.pilots import Pilots
from bftrainer.nodes.release import Release
from bftrainer.nodes.state import NodesState
from bftrainer.nodes.watch import Watch
from bftrainer.ports import Workers
from bftrainer.telemetry.troubles import Troubles

HOLD_S = 0.5
"""Seconds between two checks of pilots without cause: some are ended, or tried again, after a time."""


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
        held = {name: pilot.user for name, pilot in self._pilots.records.pilots.items()}
        others = in_the_way(wanted, held) if self._state.keeps_users_apart else {}
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
            wanted = alone(wanted, self._pilots.records.users)
        return self._pilots.to_submit(wanted)

    async def _submit(self, pilots: Sequence[Pilot]) -> None:
        refused = await self._pilots.order(pilots, self._state.hole_s)
        self._state.lose(refused, "no pilot can be had there")


def alone(wanted: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """Return what is `wanted` (GPU -> user), without the GPUs of nodes where pilots of others still are:
    `there` is GPU -> user, too."""
    users = _by_node(there)
    return {gpu: user for gpu, user in wanted.items() if users[node_of(gpu)] <= {user}}


def in_the_way(wanted: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """The GPUs whose pilots `there` no trainer of their users wants, on nodes where another user's is to be;
    with that user."""
    users = _by_node(wanted)
    return {
        gpu: min(others)
        for gpu, user in there.items()
        if wanted.get(gpu) != user and (others := users[node_of(gpu)] - {user})
    }


def _by_node(gpus: Mapping[str, str]) -> defaultdict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for gpu, user in gpus.items():
        found[node_of(gpu)].add(user)
    return found
