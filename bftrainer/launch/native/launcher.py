"""The native launcher: workers that use `bftrainer.elastic` and change membership while they run.

It publishes memberships to the workers and relays the entries of their rendezvous. Everything else the
workers agree on among themselves, see docs/contributing/rescaling.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bftrainer.launch import messages
from bftrainer.launch.job import LaunchedTrainer, WorkerView
from bftrainer.launch.launcher import AgentLauncher
from bftrainer.messages.ends import SILENT_START
from bftrainer.model.actions import Regroup
from bftrainer.model.backoff import backoff_s
from bftrainer.model.events import Resync
from bftrainer.wire.messages import from_agent as said
from bftrainer.wire.messages.from_agent import Running
from bftrainer.wire.phases import Phase
from bftrainer.wire.rates import Bucket

log = logging.getLogger(__name__)

RESYNC_AFTER_S = 1.0
"""Seconds to wait for a lost member's report before a broken group is published unchanged."""
AT_ONCE = 3
"""Breaks after which a group is published again ever later, `RESYNC_MOST_S` at most."""
RESYNC_MOST_S = 64.0
OVER = (Phase.FINISHED, Phase.DONE)
"""The phases of a worker that has left its loop."""
MAX_ENTRIES = 100
MAX_ENTRIES_BYTES = 100_000
"""Entries, and bytes of them, that a member may set in the rendezvous of one generation; it needs a few, of
8 bytes per member."""
MOST_WORKERS = 16
"""Workers of a member that count for that: only its agent says how many devices it has."""
BUSY_PER_S, BUSY_BURST = 0.5, 20
"""Messages per second, and at once, that a member is busy, or is not any more. An agent sends either every 5
s at most; each costs a message to every other member."""


@dataclass(slots=True)
class NativeTrainer(LaunchedTrainer):
    """A trainer as the native launcher knows it."""

    slow_start: ClassVar[str] = "did not reach elastic.Run"
    silent_start: ClassVar[str] = SILENT_START.say()

    told_broken: int = 0  # the last generation that is known to be broken
    tries: int = 0  # how often the same members have been published again in a row
    last: tuple[int, tuple[str, ...]] = (0, ())  # the generation and members that were last published
    breaks: int = 0  # how often the group broke
    broke_at: float = 0.0
    entries: dict[str, tuple[int, int]] = field(default_factory=dict)  # node -> its entries, and their bytes
    busy: dict[str, Bucket] = field(default_factory=dict)  # node -> how often it may still say that it is

    def writes(self, node: str) -> bool:
        """True if the worker of a node that leaves may still be there. Its successor is up once it has
        ended."""
        view = self.workers.get(node)
        return view is not None and view.phase in (Phase.LEAVING, Phase.STARTING)


class NativeLauncher(AgentLauncher[NativeTrainer]):
    """See `AgentLauncher`."""

    trainer_type = NativeTrainer

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._held: dict[int, tuple[Regroup, tuple[str, ...]]] = {}
        """Trainer -> the membership that waits until the workers of these nodes, which leave with the state,
        have written it down."""

    def _carry_out(self, launched: NativeTrainer, action: Regroup) -> None:
        _, before = self._held.pop(launched.id, (None, ()))
        launched.entries.clear()
        there = [node for node in action.leaving if node in launched.workers]
        if launched.finished:  # the members have left their loops: they can only leave
            self._publish(launched, there, action, members=action.members)
            return
        self._kill_hung(launched, action)
        staying = [node for node in action.members if node in launched.workers]
        views = [launched.workers[node] for node in staying]
        if all(view.phase in OVER for view in views) and not all(view.repeated for view in views):
            self._repeat(launched)  # rank 0 was lost before it said so
            staying = [node for node in staying if node in launched.workers]
        writing = tuple({*there, *(node for node in before if launched.writes(node))})
        if writing and action.members and not any(launched.workers[node].joined for node in staying):
            # no worker stays that knows the state: it goes through a checkpoint, which is written first
            self._publish(launched, there, action, members=())
            self._held[launched.id] = action, writing
        else:
            self._publish(launched, (*action.members, *there), action, members=action.members)

    def _kill_hung(self, launched: NativeTrainer, action: Regroup) -> None:
        """Kill the members that hang: the same members are published a second time because their group broke,
        and these have said nothing of that."""
        last, launched.last = launched.last, (action.generation, action.members)
        if last != (launched.told_broken, action.members):
            launched.tries = 0
            return
        launched.tries += 1
        for node in action.members:
            view = launched.workers.get(node)
            if view is not None and view.phase in OVER:
                self._left_alone(launched, node, view)
            elif view is not None and launched.tries > 1 and view.heard < launched.told_broken:
                self._link.send(node, messages.kill(launched.id, "it hung and was killed"))

    def _left_alone(self, launched: NativeTrainer, node: str, view: WorkerView) -> None:
        """A worker has left its loop, and rank 0 goes on: it restarts."""
        reason = "its script left the loop, while rank 0 went on"
        if view.phase == Phase.DONE:
            self._gone(launched, node, reason, blame=True)
        else:
            view.overdue = reason
            self._link.send(node, messages.kill(launched.id, reason))

    def _leads(self, launched: NativeTrainer, node: str) -> bool:
        return node in launched.members[:1] or not launched.members

    def _succeed(self, launched: NativeTrainer, node: str) -> None:
        if not launched.finisher and not launched.confirmed:
            launched.ending = f"its script ended with exit code 0 on {node}, and never reached elastic.Run"
        super()._succeed(launched, node)
        self._deadlines.parted(launched)

    def _have_met(self, launched: NativeTrainer) -> bool:
        return launched.confirmed > 0

    def _repeat(self, launched: NativeTrainer) -> None:
        super()._repeat(launched)
        self._emit(Resync(time=self._clock(), trainer=launched.id, generation=launched.published))

    def _publish(
        self, launched: NativeTrainer, nodes: Iterable[str], action: Regroup, members: tuple[str, ...]
    ) -> None:
        # one for all: it is written as JSON once
        order = messages.regroup(action, members, self._grace_s, launched.workers)
        for node in nodes:
            if node in launched.workers:
                self._link.send(node, order)
                if node in members:
                    self._deadlines.joins(launched, node)

    def _settle(self) -> None:
        for trainer, (action, writing) in list(self._held.items()):
            launched = self.known.get(trainer)
            if launched is not None and any(launched.writes(node) for node in writing):
                continue
            del self._held[trainer]
            if launched is not None:
                self._publish(launched, action.members, action, members=action.members)
        super()._settle()

    def _caught_up(self, launched: NativeTrainer, node: str, found: Running) -> None:
        super()._caught_up(launched, node, found)
        waits = found.phase in (Phase.READY, Phase.MEMBER)
        apart = found.joined != launched.published and waits
        if launched.workers[node].generation == found.generation and node in launched.members and apart:
            self._emit(Resync(time=self._clock(), trainer=launched.id, generation=launched.published))

    def _heard(self, launched: NativeTrainer, node: str, view: WorkerView, what: said.FromWorker) -> None:
        super()._heard(launched, node, view, what)
        if isinstance(what, said.Kv):
            self._relay(launched, node, what)
        elif isinstance(what, said.Broken):
            self._broken(launched, what)
        elif isinstance(what, said.Busy) and what.generation == launched.published:
            self._busy(launched, node, what)

    def _busy(self, launched: NativeTrainer, node: str, busy: said.Busy) -> None:
        """The others must wait for a member. No speed is measured meanwhile, and it counts as no hang."""
        launched.window_from = None
        self._deadlines.busy(launched, busy.seconds)
        if node not in launched.busy:
            launched.busy[node] = Bucket(BUSY_PER_S, BUSY_BURST, self._deadlines.limits.now)
        if launched.busy[node].take_if_enough():
            return
        for peer in launched.members:
            if peer != node:
                self._link.send(peer, messages.busy(launched.id, node, busy.seconds))

    def _relay(self, launched: NativeTrainer, node: str, entry: said.Kv) -> None:
        """An entry of the rendezvous goes to all other members of its generation."""
        if entry.generation == launched.published and self._admits(launched, node, entry):
            order = messages.kv(launched.id, entry.generation, entry.key, entry.value)
            for peer in launched.members:
                if peer != node:
                    self._link.send(peer, order)

    def _admits(self, launched: NativeTrainer, node: str, entry: said.Kv) -> bool:
        """True if a member may set one more entry: each goes to all others."""
        count, size = launched.entries.get(node, (0, 0))
        count, size = count + 1, size + len(entry.key) + len(entry.value)
        launched.entries[node] = (count, size)
        own = min(launched.workers[node].workers, MOST_WORKERS)
        if count == MAX_ENTRIES * own + 1:
            log.warning("trainer %d: %s sets too many entries in its rendezvous", launched.id, node)
        return count <= MAX_ENTRIES * own and size <= MAX_ENTRIES_BYTES * own

    def _broken(self, launched: NativeTrainer, broken: said.Broken) -> None:
        """The current generation's group broke: publish it again if no loss is reported meanwhile."""
        if broken.generation != launched.published or launched.told_broken >= launched.published:
            return
        if launched.finished:  # the others have left their loops
            return
        log.warning("trainer %d: generation %d broke: %s", launched.id, broken.generation, broken.reason)
        launched.told_broken = launched.published
        now = self._clock()
        launched.breaks = launched.breaks + 1 if now - launched.broke_at < 2 * RESYNC_MOST_S else 1
        launched.broke_at = now
        later = now + backoff_s(RESYNC_AFTER_S, launched.breaks - AT_ONCE, RESYNC_MOST_S)
        self._emit(Resync(time=later, trainer=launched.id, generation=launched.published))
