"""The daemon's side towards the scheduler: which nodes are ours, how we hold them, and how we let them go.

A part of the daemon. It looks at the machine, turns what it sees into events for the engine, has pilots
submitted where trainers are to run, and gives nodes back: at once where the main scheduler has taken them,
at a step boundary where it only could.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bftrainer.errors import SchedulerError
from bftrainer.model.events import PollFailed
from bftrainer.model.machine import Node, NodeState, Operation, Pilot, Snapshot
from bftrainer.model.trainer import TrainerSpec
from bftrainer.nodes import pool, vacate
from bftrainer.nodes.pilots import GONE, Held, Pilots
from bftrainer.performance.estimate import estimates_of

if TYPE_CHECKING:
    from bftrainer.daemon.daemon import Daemon

POLL_AGAIN_S = 0.02
MAX_POLL_AGAIN_S = 1.0
MAX_POLL_S = 30.0
POLL_SHARE = 0.2
"""At most so much of the time goes into polls, however slow the scheduler is and whoever wants to look."""
LEAD_S = 5.0
"""So long before a node is expected to leave, or its pilot's time is over, its workers let go."""
HOLD_S = 0.5
STILL_OURS = frozenset({"completing", "unknown", "not responding"})
"""What the scheduler may say of a node between two pilots of ours, or when it has just been restarted."""


@dataclass(slots=True)
class PollStatus:
    """How the last looks at the scheduler went; `trouble` is empty where all is well."""

    failed: int = 0
    trouble: str = ""
    poll_s: float = 0.0  # what the last one took


class Nodes:
    """The nodes that are ours to use, and the pilots on them. One per daemon."""

    def __init__(self, daemon: Daemon, key: bytes) -> None:
        own = daemon.settings
        self._daemon = daemon
        self.seen: tuple[Node, ...] = ()  # the whole machine at the last look
        self.operation = Operation.RUNNING
        self.poll_status = PollStatus()
        self.pilots = Pilots(
            daemon.scheduler,
            key,
            daemon.clock,
            daemon.hub.connected,
            daemon.telemetry.pilot,
            start_s=own.pilot_start_s,
            spare_s=own.spare_s,
            per_minute=own.submissions_per_minute,
        )
        self._pool = pool.Pool()
        self._polling = asyncio.Lock()
        self._next_poll: asyncio.Task[bool] | None = None  # that has not begun yet
        self._rests_until = 0.0  # on the monotonic clock: the scheduler is not asked before
        self._poll_now = asyncio.Event()
        self._hold_now = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    # life

    def take_over(self, first: Snapshot) -> list[Pilot]:
        """Adopt the pilots that run; the others, which must go.

        Whether their nodes stay ours is for the looks that follow: a scheduler that was restarted as well
        does not know its nodes yet, and trainers that must go are to have a moment for it.
        """
        strays = []
        for pilot in first.pilots:
            if pilot.node not in self.pilots.held and not pilot.pending:
                self.pilots.adopt(pilot)
            else:
                strays.append(pilot)
        return strays

    def begin(self, present: frozenset[str]) -> None:
        """Go on with the nodes whose agents are there."""
        self._pool = pool.Pool(nodes=present)

    def wake(self) -> None:
        """Something has changed: look, and see to the pilots, without waiting."""
        self._poll_now.set()
        self._hold_now.set()

    def reload(self) -> None:
        """Settings have changed."""
        own = self._daemon.settings
        self.pilots.start_s, self.pilots.spare_s = own.pilot_start_s, own.spare_s
        self.pilots.per_minute = own.submissions_per_minute
        self.wake()

    def planned(self) -> None:
        """Trainers have other nodes than before."""
        self._hold_now.set()

    async def close(self, deadline: float) -> None:
        """End all pilots, and wait until the scheduler lists none, until `deadline`."""
        self._closing = True
        for node in tuple(self.pilots.held):
            self._daemon.hub.send(node, {"type": "exit"})
            self.pilots.forget(node)
        wait = POLL_AGAIN_S
        while self._daemon.clock.now() < deadline:
            try:
                left = await self._daemon.scheduler.pilots()
            except SchedulerError as error:
                self._daemon.telemetry.trouble("scheduler", error)
                deadline = min(deadline, self._daemon.clock.now() + MAX_POLL_AGAIN_S)
            else:
                if not left:
                    return
                await self.pilots.cancel(left)
            await asyncio.sleep(wait)
            wait = min(2 * wait, MAX_POLL_AGAIN_S)

    def why_not(self, node: Node, *, whole: bool = False) -> str:
        """What keeps a node of the last look out of the pool: the `whole` story, which may name users, or
        what anybody may know."""
        own = self._daemon.settings
        if node.why or node.state is not NodeState.IDLE:
            return node.why
        if node.name in own.excluded:
            return "excluded"
        if self.operation is not Operation.RUNNING:
            return self.operation.value
        if node.until is not None and node.until - self._daemon.clock.now() < own.min_hole_s:
            return "its hole ends soon"
        refused = self.pilots.refused().get(node.name)
        if refused is None:
            return ""
        return f"no pilot for a while: {refused}" if whole else "its pilots were refused"

    # looking

    async def poll_for_ever(self) -> None:
        quiet = self._daemon.settings.poll_s
        while True:
            self._poll_now.clear()
            try:
                changed = await self._fresh_poll()
                self.poll_status.failed, self.poll_status.trouble = 0, ""
                self._daemon.telemetry.condition("scheduler", "")
                # whoever holds nothing is in nobody's way, and need not look so often
                calm = not changed and not self.pilots.held
                quiet = (
                    min(1.5 * quiet, self._daemon.settings.poll_max_s)
                    if calm
                    else self._daemon.settings.poll_s
                )
                wait = max(quiet, self._daemon.settings.poll_s)
            except SchedulerError as error:
                self.poll_status.failed += 1
                if self.poll_status.failed >= self._daemon.settings.failed_polls:
                    self.poll_status.trouble = f"{self.poll_status.failed} polls failed: {error}"
                    self._daemon.telemetry.condition("scheduler", self.poll_status.trouble)
                self._daemon.emit(PollFailed(time=self._daemon.clock.now(), reason=str(error)))
                wait = min(MAX_POLL_S, self._daemon.settings.poll_s * 2 ** min(self.poll_status.failed, 16))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._poll_now.wait(), wait)

    async def _fresh_poll(self) -> bool:
        """Look at the machine once, from now on; whether anything has changed. Others share the look."""
        if self._next_poll is None:
            self._next_poll = asyncio.create_task(self._poll_in_turn())
        return await asyncio.shield(self._next_poll)

    async def _poll_in_turn(self) -> bool:
        async with self._polling:
            await asyncio.sleep(self._rests_until - time.monotonic())
            self._next_poll = None
            began = time.monotonic()
            try:
                changed = await self._poll()
                rest = (time.monotonic() - began) * (1 / POLL_SHARE - 1)
                self._rests_until = time.monotonic() + min(MAX_POLL_S, rest)
                return changed
            finally:
                self.poll_status.poll_s = time.monotonic() - began

    async def _poll(self) -> bool:
        with self._daemon.telemetry.polling():
            snapshot = self._in_our_eyes(await self._daemon.scheduler.poll())
        self.seen = snapshot.nodes
        # before any is dropped below: those are cancelled there
        self._do(self.pilots.cancel(self.pilots.strays(snapshot.pilots, snapshot.time)))
        given_up = self._to_give_up(snapshot)
        self._pool, change = pool.observe(
            self._pool,
            snapshot,
            self._daemon.settings.debounce_s,
            min_hole_s=self._daemon.settings.min_hole_s,
            closed=self.operation is not Operation.RUNNING,
            given_up=given_up,
        )
        if change is not None:
            self._daemon.emit(change)
            self._let_go(change.vacated, [claim.job for claim in snapshot.claims])
            for node in change.left - change.vacated:
                self.drop(node)
        await self._give_up_lost(snapshot)
        self._hold_now.set()
        return change is not None

    async def _give_up_lost(self, snapshot: Snapshot) -> None:
        """Pilots that are gone or were never born: of those whose agents never came, the scheduler may know
        why."""
        lost = self.pilots.lost(snapshot.pilots, snapshot.time)
        held = {node: self.pilots.held[node] for node in lost}
        failed: Mapping[Pilot, str] = {}
        if unheard := [h.pilot for h in held.values() if not h.reported]:
            try:
                failed = await self._daemon.scheduler.failures(unheard)
            except SchedulerError as error:
                self._daemon.telemetry.trouble("scheduler", error)
        for node, reason in lost.items():
            if self.pilots.held.get(node) is not held[node]:
                continue  # let go meanwhile
            said = failed.get(held[node].pilot, reason)
            self._daemon.telemetry.pilot("lost", [held[node].pilot], said)
            if said != GONE:
                self.pilots.refuse(node, said)
            self.lose(node, reason)
            self.drop(node)

    def _in_our_eyes(self, snapshot: Snapshot) -> Snapshot:
        """A node that goes from one pilot of ours to the next has not left; nor has one that a scheduler just
        restarted has yet to hear of. Whether our pilot is there still shows in the list of pilots."""
        return replace(
            snapshot,
            nodes=tuple(
                replace(node, state=NodeState.IDLE, why="")
                if node.why and STILL_OURS.issuperset(node.why.split("+")) and node.name in self.pilots.held
                else node
                for node in snapshot.nodes
            ),
        )

    def _to_give_up(self, snapshot: Snapshot) -> frozenset[str]:
        """The nodes that could be ours and must not: the main scheduler can use them, or soon will."""
        listed = {pilot.node for pilot in snapshot.pilots}
        releasing = self.pilots.releasing
        self.pilots.releasing = {
            n: t
            for n, t in releasing.items()
            if n in listed and snapshot.time - t < self._daemon.settings.pilot_start_s
        }
        soon = snapshot.time + LEAD_S
        ends = {n: held.pilot.ends for n, held in self.pilots.held.items()}
        over = {n for n, end in ends.items() if end is not None and end < soon}
        over |= {n.name for n in snapshot.nodes if n.until is not None and n.until < soon}
        over |= self._daemon.settings.excluded | self.pilots.refused().keys() | self.pilots.releasing.keys()
        if self.operation is Operation.PAUSED:
            over |= self._pool.nodes - self.pilots.held.keys()
        elif self.operation is Operation.DRAINING:
            over |= {n for n in self._pool.nodes if not self._daemon.launcher.busy(n)}
        return frozenset(over) | self._claimed(snapshot)

    def _claimed(self, snapshot: Snapshot) -> frozenset[str]:
        if not snapshot.claims:
            return frozenset()
        active = tuple(self._daemon.state.active.values())
        estimated = estimates_of(active, self._daemon.state.programs)
        curves = {t.id: found[None].points for t, found in zip(active, estimated, strict=True)}
        releasing = self.pilots.releasing.keys()  # the scheduler may still show what we have told to end
        return vacate.choose(
            snapshot.claims, frozenset(self.pilots.held) | releasing, active, curves, releasing
        )

    def _let_go(self, nodes: Collection[str], jobs: Collection[str]) -> None:
        """Have the pilots of nodes end, as soon as the workers have left; they have `vacate_s` for it."""
        self.pilots.releasing |= dict.fromkeys(nodes, self._daemon.clock.now())
        if nodes:
            self._do(self._release(nodes, jobs))

    async def _release(self, nodes: Collection[str], jobs: Collection[str]) -> None:
        daemon, seen, left = self._daemon, self._daemon.clock.now(), set(nodes)
        while left:
            late = daemon.clock.now() >= seen + daemon.settings.vacate_s
            for node in [n for n in left if late or not daemon.launcher.busy(n)]:
                daemon.hub.send(node, {"type": "exit"})
                daemon.launcher.agent_down(node)
                left.remove(node)
            if left:
                await asyncio.sleep(0.01)
        found = (self.pilots.forget(node) for node in nodes)
        await self.pilots.cancel([pilot for pilot in found if pilot is not None])
        daemon.telemetry.vacated(jobs, nodes, daemon.clock.now() - seen)
        self._poll_now.set()

    # holding

    async def hold_for_ever(self) -> None:
        """Have a pilot wherever a trainer is to run, and none where nobody needs it."""
        while not self._closing:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hold_now.wait(), HOLD_S)
            self._hold_now.clear()
            await self._hold()

    async def _hold(self) -> None:
        wanted = self._wanted_pilots()
        for node in self.pilots.to_cancel(wanted, self._daemon.launcher.busy):
            self.drop(node)
        if (
            self.operation is Operation.RUNNING
            and not self.poll_status.trouble
            and self.pilots.to_submit(wanted)
        ):
            # trainers that lose nodes to a main job want others, which it may need as well: look first
            with suppress(SchedulerError):
                await self._fresh_poll()
                missing = self.pilots.to_submit(self._wanted_pilots())
                if missing and self.operation is Operation.RUNNING:
                    self._do(self._submit(missing))

    def _wanted_pilots(self) -> dict[str, str]:
        """Node -> as whom its pilot is to run."""
        return {
            node: self.user_of(t.spec)
            for t in self._daemon.state.active.values()
            for node in t.nodes
            if node in self._pool.nodes
        }

    def user_of(self, spec: TrainerSpec) -> str:
        """As whom a trainer's pilots run; empty: as ourselves."""
        return spec.user if self._daemon.settings.mode == "site" else ""

    async def _submit(self, pilots: Sequence[Pilot]) -> None:
        for node in await self.pilots.order(pilots, self._limit_s):
            self.lose(node, "no pilot can be had there")

    def _limit_s(self, node: str) -> float | None:
        """For how long a pilot may be there: until its hole is expected to end."""
        until = next((n.until for n in self.seen if n.name == node), None)
        return None if until is None else until - self._daemon.clock.now()

    def drop(self, node: str) -> None:
        """A node is gone, or its pilot is to go at once."""
        self._daemon.launcher.agent_down(node)
        self._daemon.hub.send(node, {"type": "exit"})
        pilot = self.pilots.forget(node)
        if pilot is not None and not self._closing:
            self._do(self.pilots.cancel([pilot]))

    def agent_leaves(self, node: str) -> None:
        """An agent says that its pilot has been told to end: there is time for a few words."""
        self.lose(node, "its pilot was told to end", vacated=True)
        self.pilots.releasing[node] = self._daemon.clock.now()
        self.pilots.forget(node)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def lose(self, node: str, reason: str, *, vacated: bool = False) -> None:
        self._pool, change = pool.lose(self._pool, node, self._daemon.clock.now(), reason, vacated=vacated)
        if change is not None:
            self._daemon.emit(change)

    def agent_down(self, node: str) -> None:
        """An agent's connection is gone."""
        if node in self.pilots.held:
            self._do(self._after_loss(node, self.pilots.held[node]))
        else:  # as was to be expected
            self._daemon.launcher.agent_down(node)

    async def _after_loss(self, node: str, held: Held) -> None:
        """An agent's connection is gone. Its pilot too, usually: that takes a moment to show. If the
        pilot lives on, only the connection broke, and the agent gets the time to come back."""
        deadline = self._daemon.clock.now() + self._daemon.settings.reconnect_s
        wait = POLL_AGAIN_S
        while not self._closing and self._daemon.clock.now() < deadline:
            if self._daemon.hub.connected(node) or self.pilots.held.get(node) is not held:
                return
            try:
                await self._fresh_poll()
            except SchedulerError as error:
                self._daemon.telemetry.trouble("scheduler", error, node=node)
            await asyncio.sleep(wait)
            wait = min(2 * wait, MAX_POLL_AGAIN_S)
        if not self._daemon.hub.connected(node) and self.pilots.held.get(node) is held:
            self.lose(node, "its agent is gone")
            self.drop(node)
