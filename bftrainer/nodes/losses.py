"""Gives up nodes whose pilots or agents are gone, and finds out why they are.

A scheduler that takes a node tells its pilot to end; an agent may crash, or only lose its connection; a pilot
may fail before its agent comes. What follows for trainers and users differs.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping

from bftrainer.background import Background
from bftrainer.errors import SchedulerError
from bftrainer.model.machine import Pilot, Snapshot
from bftrainer.nodes import lifecycle
from bftrainer.nodes.pilots import Pilots
from bftrainer.nodes.pool import ASKED_BACK, GONE, lost
from bftrainer.nodes.release import MAX_POLL_AGAIN_S, POLL_AGAIN_S, Release
from bftrainer.nodes.state import NodesState
from bftrainer.nodes.watch import Watch
from bftrainer.ports import Clock, Scheduler, Workers
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry


class Losses:
    """Takes note of pilots that polls no longer list, and of what agents do; `release` ends what is left."""

    def __init__(
        self,
        settings: LiveSettings,
        clock: Clock,
        scheduler: Scheduler,
        pilots: Pilots,
        workers: Workers,
        telemetry: Telemetry,
        state: NodesState,
        watch: Watch,
        release: Release,
        background: Background,
    ) -> None:
        self._settings, self._clock, self._scheduler, self._pilots = settings, clock, scheduler, pilots
        self._workers, self._telemetry, self._state = workers, telemetry, state
        self._watch, self._release, self._background = watch, release, background
        self._asked: set[Pilot] = set()  # why they failed
        self._left: dict[Pilot, float] = {}  # pilots that were told to end -> how long they had lived
        self._judging = False

    def lost(self, snapshot: Snapshot) -> None:
        """Give up nodes whose pilots are gone or never began. The scheduler may know why pilots failed whose
        agents never came; the next poll does not wait for that."""
        records = self._pilots.records
        unheard: dict[Pilot, str] = {}
        known: dict[str, tuple[str, str]] = {}
        start_s = self._pilots.start_s
        for node, reason in lost(records, snapshot, self._pilots.connected, start_s).items():
            pilot = records.pilots[node]
            if records.nodes[node].reported:
                known[node] = reason, reason
            elif pilot not in self._asked:
                unheard[pilot] = reason
        self._lose(known)
        if unheard:
            self._background.start(self._ask(unheard))

    async def _ask(self, unheard: Mapping[Pilot, str]) -> None:
        """Ask the scheduler why pilots failed, and give up their nodes."""
        pilots = list(unheard)
        self._asked.update(pilots)
        failed: Mapping[Pilot, str] = {}
        preempted: Collection[Pilot] = ()
        try:
            failed = await self._scheduler.failures(pilots)
            preempted = await self._scheduler.preempted(pilots)
        except SchedulerError as error:
            self._telemetry.trouble("scheduler", error)
        finally:
            self._asked.difference_update(pilots)
        records = self._pilots.records
        self._lose(
            {
                pilot.node: (reason, failed.get(pilot, reason))
                for pilot, reason in unheard.items()
                if records.pilots.get(pilot.node) == pilot and not records.nodes[pilot.node].reported
            },  # neither released, nor late
            preempted,
        )

    def _lose(self, lost: Mapping[str, tuple[str, str]], preempted: Collection[Pilot] = ()) -> None:
        """Give up nodes that are held; of each, the reason that is told to all, and the one for admins."""
        told: dict[str, list[str]] = defaultdict(list)
        logged: dict[str, list[Pilot]] = defaultdict(list)
        for node, (reason, why) in lost.items():
            told[reason].append(node)
            logged[why].append(pilot := self._pilots.records.pilots[node])
            if pilot in preempted:
                self._taken([node])
                continue
            if why != GONE:
                self._pilots.fails(node, why)
                continue
            self._taken([node])
            if self._pilots.ends(node):  # though its node is idle: no main job took it
                self._workers.agent_down(node, blame=True)
        for why, pilots in logged.items():
            self._telemetry.pilot("lost", pilots, why)
        for reason, nodes in told.items():
            self._state.lose(nodes, reason)
        self._release.drop(lost)

    def _taken(self, nodes: Collection[str]) -> None:
        """The scheduler has told the pilots of these nodes to end."""
        self._pilots.records = lifecycle.taken(self._pilots.records, nodes, self._clock.now())

    # what agents do

    def agent_leaves(self, node: str) -> None:
        """An agent says that its pilot has been told to end: its workers can still leave in order."""
        if (pilot := self._pilots.records.pilots.get(node)) is not None:
            self._left[pilot] = self._pilots.lived_s(node)
            if not self._judging:
                self._judging = True
                self._background.start(self._judge())
        self._state.lose([node], ASKED_BACK, vacated=True)
        self._taken([node])
        now = self._clock.now()
        self._pilots.records, _ = lifecycle.ended(self._pilots.records, [node], now, by_us=False)

    async def _judge(self) -> None:
        """Count against users that their pilots were told to end. Main jobs tell them so as well, and anybody
        can submit one: what the scheduler itself has done is no fault of the pilot's user."""
        try:
            while self._left:
                left, self._left = self._left, {}
                preempted: Collection[Pilot] = ()
                try:
                    preempted = await self._scheduler.preempted(list(left))
                except SchedulerError as error:
                    self._telemetry.trouble("scheduler", error)
                for pilot in left.keys() - preempted:
                    self._pilots.quarantine.ended(pilot.node, pilot.user, left[pilot])
            self._state.tell_barred()
        finally:
            self._judging = False

    def agent_down(self, node: str) -> None:
        """An agent's connection is gone."""
        if (pilot := self._pilots.records.pilots.get(node)) is not None:
            self._background.start(self._after_loss(node, pilot))
        else:  # as was to be expected
            self._workers.agent_down(node, waiting=node not in self._state.nodes)

    def misbehaves(self, node: str, reason: str) -> None:
        """An agent breaks the protocol: its pilot ends, and its node is left alone a while."""
        self._pilots.fails(node, reason)
        self._state.lose([node], reason)
        self._release.drop([node])

    async def _after_loss(self, node: str, pilot: Pilot) -> None:
        """Find out what happened to an agent whose connection is gone. Usually its pilot is gone too, which
        takes a moment to show. If the pilot lives on, only the connection broke, and the agent has
        `reconnect_s` to come back."""
        deadline = self._clock.now() + self._settings.current.reconnect_s
        wait_s = POLL_AGAIN_S
        while not self._state.closing and self._clock.now() < deadline:
            if self._pilots.connected(node) or self._pilots.records.pilots.get(node) != pilot:
                return
            try:
                await self._watch.fresh_poll()
            except SchedulerError as error:
                self._telemetry.trouble("scheduler", error, node=node)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_POLL_AGAIN_S)
        if not self._pilots.connected(node) and self._pilots.records.pilots.get(node) == pilot:
            self._pilots.ends(node)
            self._state.lose([node], "its agent is gone")
            self._release.drop([node])
