"""Gives nodes back: at once where the main scheduler has taken them, at a step boundary of their trainers
where it only could."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from bftrainer.background import Background
from bftrainer.errors import SchedulerError
from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Claim, Operation, Snapshot
from bftrainer.nodes import lifecycle
from bftrainer.nodes.lifecycle import CancelPilots, Effect, ExitAgents, VacateNodes
from bftrainer.nodes.main_jobs import MainJobs
from bftrainer.nodes.pilots import Pilots
from bftrainer.nodes.state import NodesState
from bftrainer.nodes.vacate import ClaimedNodes, spared
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
        self._counted: frozenset[str] = frozenset()  # what is accounted for since we chose nodes last
        self._chosen_at = 0.0

    # which nodes must go

    async def claimed(self, snapshot: Snapshot) -> frozenset[str]:
        """The nodes to give up for main jobs that could start on them."""
        if not snapshot.claims:
            return frozenset()
        # the scheduler may still show nodes that we have begun to release
        records, now = self._pilots.records, self._clock.now()
        # one whose pilot ends meanwhile is given up anyway: no other pilot is to go there
        held, since = records.releasing.union(records.pilots), self._held_since()
        chosen = await self._claimed.choose(snapshot.claims, held, records.releasing, since)
        return self._still_needed(chosen, records.releasing, now, snapshot.claims, since)

    def _held_since(self) -> dict[str, float]:
        records = self._pilots.records
        return {name: records.nodes[name].answered for name in records.pilots}

    def _still_needed(
        self,
        nodes: frozenset[str],
        going: frozenset[str],
        moment: float,
        claims: Sequence[Claim],
        since: Mapping[str, float],
    ) -> frozenset[str]:
        """Those of `nodes` that are still to be given back; they were chosen for these claims by what was
        known at a `moment`, and the scheduler may have taken others meanwhile. Those that were `going` then
        are none of these: their pilots end as we have told them."""
        self._counted, self._chosen_at = nodes | going, moment
        return nodes - self._spared(nodes, claims, since)

    def _spared(
        self, nodes: Collection[str], claims: Sequence[Claim], since: Mapping[str, float]
    ) -> set[str]:
        """Those of `nodes` that need not be given back for these claims any more, as the scheduler has taken
        others since we chose, each of which counts once. `since` says since when we hold nodes."""
        taken = lifecycle.taken_since(self._pilots.records, self._chosen_at) - self._counted
        self._counted |= taken
        in_turn = sorted(nodes, key=lambda node: (since.get(node, inf), node))
        return spared(in_turn, sorted(taken), claims)

    def to_give_up(self, snapshot: Snapshot, claimed: frozenset[str]) -> frozenset[str]:
        """The nodes that could be ours and must not: they are `claimed`, or will soon be the main
        scheduler's."""
        settings, records, state = self._settings.current, self._pilots.records, self._state
        soon = snapshot.time + LEAD_S
        ends = {node: pilot.ends for node, pilot in records.pilots.items()}
        over = {node for node, end in ends.items() if end is not None and end < soon}
        leaves = soon + state.clearing.lead_s
        over |= {node.name for node in snapshot.nodes if node.until is not None and node.until < leaves}
        over |= {node.name for node in snapshot.nodes if node_of(node.name) in settings.excluded}
        over |= settings.excluded | self._pilots.quarantine.nodes().keys() | records.releasing
        if state.operation is Operation.PAUSED:
            over |= state.nodes - records.pilots.keys()
        elif state.operation is Operation.DRAINING:
            over |= {node for node in state.nodes if not self._workers.busy(node)}
        return claimed | over

    # giving them back

    def drop(self, nodes: Collection[str]) -> None:
        """End the pilots of nodes at once: the nodes are gone, or nobody needs the pilots. On those that stay
        in the pool another user's trainer may be about to start, which needs a pilot of its own."""
        self._pilots.records, effects = lifecycle.dropped(self._pilots.records, nodes, self._clock.now())
        self.perform(effects, ())

    def perform(self, effects: Iterable[Effect], claims: Sequence[Claim]) -> None:
        """Carry out what follows from a poll or an order, for these claims if any."""
        for effect in effects:
            if isinstance(effect, VacateNodes) and effect.nodes:
                self._background.start(self._vacate(effect.nodes, claims))
            elif isinstance(effect, ExitAgents):
                for node in sorted(effect.nodes):
                    self._workers.agent_down(node, waiting=node not in self._state.nodes)
                    self._link.send(node, EXIT)
            elif isinstance(effect, CancelPilots) and effect.pilots and not self._state.closing:
                self._background.start(self._pilots.end(effect.pilots))

    async def make_room(self, claims: Sequence[Claim]) -> None:
        """Give back nodes for future main jobs: too few are idle."""
        records, now, since = self._pilots.records, self._clock.now(), self._held_since()
        going = records.releasing
        held = self._state.nodes & records.pilots.keys() - going
        chosen = await self._claimed.choose(claims, held, frozenset(), since)
        chosen = self._still_needed(chosen & self._state.nodes, going, now, claims, since)
        self._state.lose(chosen, MAKES_ROOM, vacated=True)
        self._pilots.records = lifecycle.released(
            self._pilots.records, chosen, self._clock.now(), claimed=True
        )
        self.perform([VacateNodes(chosen)], claims)

    async def _vacate(self, nodes: Collection[str], claims: Sequence[Claim]) -> None:
        """End the pilots of nodes that have left the pool as soon as their workers have left; those have
        `vacate_s` for it."""
        began = self._clock.now()
        pilots = {node: pilot for node, pilot in self._pilots.records.pilots.items() if node in nodes}
        going = set(nodes)
        try:
            await self._leave(going, claims, began)
        finally:  # whatever became of the workers: main jobs wait for these nodes
            there = self._pilots.records.pilots
            mine = [node for node in pilots if node in going and there.get(node) == pilots[node]]
            self._pilots.records, cancel = lifecycle.ended(self._pilots.records, mine, self._clock.now())
            await self._pilots.end(cancel.pilots)
        took_s = self._clock.now() - began
        jobs = list(dict.fromkeys(claim.job for claim in claims if claim.job))
        self._main_jobs.given_back(jobs, took_s)
        self._telemetry.vacated(jobs, sorted(going), took_s)
        self._watch.wake()

    async def _leave(self, going: set[str], claims: Sequence[Claim], began: float) -> None:
        """Wait until the workers of these nodes have left, within `vacate_s` (with a state to write, also
        `vacate_write_s`); tell their agents to end. For each other node that the scheduler takes for these
        claims meanwhile one is no longer `going`."""
        left, since, told = set(going), self._held_since(), set[str]()
        while left:
            left -= lifecycle.taken_since(self._pilots.records, self._chosen_at)
            stay = self._spared(left - told, claims, since)
            left -= stay
            going -= stay
            self._pilots.records = lifecycle.spared(self._pilots.records, stay, self._clock.now())
            own, took_s = self._settings.current, self._clock.now() - began
            for node in [n for n in sorted(left) if took_s >= own.vacate_s or not self._workers.busy(n)]:
                if node not in told:
                    self._link.send(node, EXIT)
                told.add(node)
                writes = self._workers.busy(node) and self._pilots.connected(node)
                if not writes or took_s >= own.vacate_s + own.vacate_write_s:
                    self._workers.agent_down(node)
                    left.remove(node)
            if left:
                await asyncio.sleep(0.01)

    async def close(self, deadline: float) -> None:
        """End all pilots, and wait until the scheduler lists none, until `deadline`."""
        self._state.closing = True
        nodes = tuple(self._pilots.records.pilots)
        for node in nodes:
            self._link.send(node, EXIT)
        self._pilots.records, _ = lifecycle.ended(self._pilots.records, nodes, self._clock.now())
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
