"""How nodes are given back: at once where the main scheduler has taken them, at a step boundary of their
trainers where it only could."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from bftrainer.errors import SchedulerError
from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Claim, Operation, Pilot, Snapshot
from bftrainer.nodes.background import Background
from bftrainer.nodes.claims import ClaimedNodes
from bftrainer.nodes.handed import Handed
from bftrainer.nodes.held import Held
from bftrainer.nodes.main_jobs import MainJobs
from bftrainer.nodes.pilots import GONE, Pilots
from bftrainer.nodes.state import NodesState
from bftrainer.nodes.watch import Watch
from bftrainer.ports import Clock, Link, Scheduler, Workers
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry

POLL_AGAIN_S = 0.02
MAX_POLL_AGAIN_S = 1.0
LEAD_S = 5.0
"""Workers let go this long before their node is expected to leave, or their pilot's time is over."""
EXIT = {"type": "exit"}
MAKES_ROOM = "left to main jobs that are yet to come (headroom)"


class Release:
    """Decides which nodes must go, and ends their pilots. `claimed` chooses those for main jobs."""

    def __init__(
        self,
        *,
        settings: LiveSettings,
        clock: Clock,
        scheduler: Scheduler,
        pilots: Pilots,
        link: Link,
        workers: Workers,
        claimed: ClaimedNodes,
        telemetry: Telemetry,
        state: NodesState,
        main_jobs: MainJobs,
        watch: Watch,
        background: Background,
    ) -> None:
        self._settings, self._clock, self._scheduler, self._pilots = settings, clock, scheduler, pilots
        self._link, self._workers, self._claimed = link, workers, claimed
        self._telemetry, self._state, self._watch, self._background = telemetry, state, watch, background
        self._main_jobs = main_jobs
        self._asked: set[Pilot] = set()  # why they failed
        self.handed = Handed()

    # which nodes must go

    async def claimed(self, snapshot: Snapshot) -> frozenset[str]:
        """The nodes to give up for main jobs that could start on them."""
        if not snapshot.claims:
            return frozenset()
        # the scheduler may still show nodes that we have begun to release
        releasing = frozenset(self._pilots.releasing)
        held = releasing.union(self._pilots.held)
        # one whose pilot ends meanwhile is given up all the same: no other pilot is to go there
        now, since = self._clock.now(), _held_since(self._pilots)
        chosen = await self._claimed.choose(snapshot.claims, held, releasing, since)
        return self.handed.chosen(chosen, now, snapshot.claims, since)

    def to_give_up(self, snapshot: Snapshot, claimed: frozenset[str]) -> frozenset[str]:
        """The nodes that could be ours and must not: they are `claimed`, or will soon be the main
        scheduler's."""
        own, pilots, state = self._settings.current, self._pilots, self._state
        listed = {pilot.node for pilot in snapshot.pilots}
        pilots.releasing = {
            node: since
            for node, since in pilots.releasing.items()
            if node in listed and snapshot.time - since < own.pilot_start_s
        }
        soon = snapshot.time + LEAD_S
        ends = {node: held.pilot.ends for node, held in pilots.held.items()}
        over = {node for node, end in ends.items() if end is not None and end < soon}
        leaves = soon + state.clearing.lead_s
        over |= {node.name for node in snapshot.nodes if node.until is not None and node.until < leaves}
        over |= {node.name for node in snapshot.nodes if node_of(node.name) in own.excluded}
        over |= own.excluded | pilots.conduct.nodes().keys() | pilots.releasing.keys()
        if state.operation is Operation.PAUSED:
            over |= state.nodes - pilots.held.keys()
        elif state.operation is Operation.DRAINING:
            over |= {node for node in state.nodes if not self._workers.busy(node)}
        return claimed | over

    def lost(self, snapshot: Snapshot) -> None:
        """Give up nodes whose pilots are gone or never began. The scheduler may know why pilots failed whose
        agents never came; the next poll does not wait for that."""
        lost = self._pilots.lost(snapshot.pilots, snapshot.time)
        unheard: dict[str, tuple[Held, str]] = {}
        known: dict[str, tuple[str, str]] = {}
        for node, reason in lost.items():
            held = self._pilots.held[node]
            if held.reported:
                known[node] = reason, reason
            elif held.pilot not in self._asked:
                unheard[node] = held, reason
        self._lose(known)
        if unheard:
            self._background.start(self._ask(unheard))

    async def _ask(self, unheard: Mapping[str, tuple[Held, str]]) -> None:
        """Ask the scheduler why pilots failed, and give up their nodes."""
        pilots = [held.pilot for held, _ in unheard.values()]
        self._asked.update(pilots)
        failed: Mapping[Pilot, str] = {}
        try:
            failed = await self._scheduler.failures(pilots)
        except SchedulerError as error:
            self._telemetry.trouble("scheduler", error)
        finally:
            self._asked.difference_update(pilots)
        self._lose(
            {
                node: (reason, failed.get(held.pilot, reason))
                for node, (held, reason) in unheard.items()
                if self._pilots.held.get(node) is held and not held.reported  # neither released, nor late
            }
        )

    def _lose(self, lost: Mapping[str, tuple[str, str]]) -> None:
        """Give up nodes that are held; of each, the reason that is told to all, and the one for admins."""
        told: dict[str, list[str]] = defaultdict(list)
        logged: dict[str, list[Pilot]] = defaultdict(list)
        for node, (reason, why) in lost.items():
            told[reason].append(node)
            logged[why].append(self._pilots.held[node].pilot)
            if why != GONE:
                self._pilots.fails(node, why)
                continue
            self.handed.taken(node, self._clock.now())
            if self._pilots.ends(node):  # though its node is idle: no main job took it
                self._workers.agent_down(node, blame=True)
        for why, pilots in logged.items():
            self._telemetry.pilot("lost", pilots, why)
        for reason, nodes in told.items():
            self._state.lose(nodes, reason)
        self.drop(lost)

    # giving them back

    def drop(self, nodes: Collection[str]) -> None:
        """End the pilots of nodes at once: the nodes are gone, or nobody needs the pilots. On those that stay
        in the pool another user's trainer may be about to start, which needs a pilot of its own."""
        for node in nodes:
            self._workers.agent_down(node, waiting=node not in self._state.nodes)
            self._link.send(node, EXIT)
        forgotten = [self._pilots.forget(node) for node in nodes]
        pilots = [pilot for pilot in forgotten if pilot is not None]
        if pilots and not self._state.closing:
            self._state.clearing.begins(pilots, self._clock.now())
            self._background.start(self._pilots.end(pilots))

    def vacate(self, nodes: Collection[str], claims: Sequence[Claim]) -> None:
        """End the pilots of nodes that have left the pool, for these claims if any, as soon as their workers
        have left; those have `vacate_s` for it."""
        now = self._clock.now()
        self._pilots.releasing |= dict.fromkeys(nodes, now)
        if claims:
            self.handed.given(nodes, now)
        if nodes:
            self._background.start(self._vacate(nodes, claims))

    async def make_room(self, claims: Sequence[Claim]) -> None:
        """Give back nodes for main jobs that are yet to come: too few are idle."""
        releasing = frozenset(self._pilots.releasing)
        held = frozenset(self._pilots.held) & self._state.nodes - releasing
        now, since = self._clock.now(), _held_since(self._pilots)
        chosen = await self._claimed.choose(claims, held, frozenset(), since)
        chosen = self.handed.chosen(chosen & self._state.nodes, now, claims, since)
        self._state.lose(chosen, MAKES_ROOM, vacated=True)
        self.vacate(chosen, claims)

    async def _vacate(self, nodes: Collection[str], claims: Sequence[Claim]) -> None:
        began = self._clock.now()
        going = set(nodes)
        try:
            await self._leave(going, claims, began)
        finally:  # whatever became of the workers: main jobs wait for these nodes
            nodes = [node for node in nodes if node in going]
            forgotten = [self._pilots.forget(node) for node in nodes]
            pilots = [pilot for pilot in forgotten if pilot is not None]
            self._state.clearing.begins(pilots, self._clock.now())
            await self._pilots.end(pilots)
        took_s = self._clock.now() - began
        jobs = list(dict.fromkeys(claim.job for claim in claims if claim.job))
        self._main_jobs.given_back(jobs, took_s)
        self._telemetry.vacated(jobs, nodes, took_s)
        self._watch.wake()

    async def _leave(self, going: set[str], claims: Sequence[Claim], began: float) -> None:
        """Wait until the workers of these nodes have left, within `vacate_s`; tell their agents to end. For
        each other node that the scheduler takes for these claims meanwhile one is no longer `going`."""
        left, since = set(going), _held_since(self._pilots)
        while left:
            left -= self.handed.taken_meanwhile()
            for node in self.handed.spared(left, claims, since):
                left.remove(node)
                going.remove(node)
                self._pilots.releasing.pop(node, None)
                self.handed.kept(node)
            late = self._clock.now() >= began + self._settings.current.vacate_s
            for node in [n for n in left if late or not self._workers.busy(n)]:
                self._link.send(node, EXIT)
                self._workers.agent_down(node)
                left.remove(node)
            if left:
                await asyncio.sleep(0.01)

    # what agents do

    def agent_leaves(self, node: str) -> None:
        """An agent says that its pilot has been told to end: its workers can still leave in order."""
        self._pilots.ends(node)
        self._state.lose([node], "its pilot was told to end", vacated=True)
        self._pilots.releasing[node] = self._clock.now()
        self.handed.taken(node, self._clock.now())
        self._pilots.forget(node)

    def agent_down(self, node: str) -> None:
        """An agent's connection is gone."""
        if node in self._pilots.held:
            self._background.start(self._after_loss(node, self._pilots.held[node]))
        else:  # as was to be expected
            self._workers.agent_down(node, waiting=node not in self._state.nodes)

    def misbehaves(self, node: str, reason: str) -> None:
        """An agent does what no agent of ours does: its pilot ends, and its node is left alone a while."""
        self._pilots.fails(node, reason)
        self._state.lose([node], reason)
        self.drop([node])

    async def _after_loss(self, node: str, held: Held) -> None:
        """Find out what happened to an agent whose connection is gone. Usually its pilot is gone too, which
        takes a moment to show. If the pilot lives on, only the connection broke, and the agent has
        `reconnect_s` to come back."""
        deadline = self._clock.now() + self._settings.current.reconnect_s
        wait_s = POLL_AGAIN_S
        while not self._state.closing and self._clock.now() < deadline:
            if self._pilots.connected(node) or self._pilots.held.get(node) is not held:
                return
            try:
                await self._watch.fresh_poll()
            except SchedulerError as error:
                self._telemetry.trouble("scheduler", error, node=node)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_POLL_AGAIN_S)
        if not self._pilots.connected(node) and self._pilots.held.get(node) is held:
            self._pilots.ends(node)
            self._state.lose([node], "its agent is gone")
            self.drop([node])

    async def close(self, deadline: float) -> None:
        """End all pilots, and wait until the scheduler lists none, until `deadline`."""
        self._state.closing = True
        for node in tuple(self._pilots.held):
            self._link.send(node, EXIT)
            self._pilots.forget(node)
        wait_s = POLL_AGAIN_S
        while self._clock.now() < deadline:
            try:
                left = await self._scheduler.pilots()
            except SchedulerError as error:
                self._telemetry.trouble("scheduler", error)
                deadline = min(deadline, self._clock.now() + MAX_POLL_AGAIN_S)
            else:
                if not left:
                    return
                await self._pilots.cancel(left)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_POLL_AGAIN_S)


def _held_since(pilots: Pilots) -> dict[str, float]:
    return {node: held.since for node, held in pilots.held.items()}
