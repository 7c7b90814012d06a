"""The nodes as the rest of the daemon knows them: those of the pool, and why others are not in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from bftrainer.model.events import MachineChanged, NodesChanged, UsersBarred
from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Node, NodeState, Operation, Snapshot
from bftrainer.model.policy import EngineSettings, Share, ShareNodes
from bftrainer.nodes import lifecycle, pool
from bftrainer.nodes.clearing import ClearingTimes
from bftrainer.nodes.gpus import GpusKnown
from bftrainer.nodes.lifecycle import Effect, NodePhase, NodeRecord, Records
from bftrainer.nodes.pilots import Pilots
from bftrainer.ports import Clock, Emit
from bftrainer.settings.live import LiveSettings

STILL_OURS = frozenset({"completing", "unknown", "not responding"})
"""States that the scheduler may show for a node between two of our pilots, or after its restart."""


KEPT = "left to main jobs (headroom)"
RESTS = "given back a moment ago (rejoin_s)"


class NodesState:
    """The nodes as last seen, and those of the pool.

    This pool is the original: every change of it is emitted as one event, and nothing else changes the
    engine's `State.pool`. So that one follows from this one, as far as the events have been taken.
    """

    def __init__(self, settings: LiveSettings, clock: Clock, emit: Emit, pilots: Pilots) -> None:
        self._settings, self._clock, self._emit, self._pilots = settings, clock, emit, pilots
        self.seen: tuple[Node, ...] = ()
        self.clearing = ClearingTimes()
        self._kept: frozenset[str] = frozenset()  # for main jobs that are yet to come
        self.gpus = GpusKnown()
        self._counted: Counter[tuple[str, int]] | None = None  # what the engine has been told
        self._barred: Mapping[str, str] = {}  # likewise
        self._kept_off: Mapping[str, frozenset[str]] = {}  # likewise
        self.operation = Operation.RUNNING
        self.closing = False

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes of the pool."""
        return self.records.pool

    @property
    def records(self) -> Records:
        """The records of all nodes."""
        return self._pilots.records

    @property
    def keeps_users_apart(self) -> bool:
        """Return whether no two users may have pilots on one node."""
        own = self._settings.current.engine
        return own.share is Share.GPU and own.share_nodes is ShareNodes.NO

    def begin(self, present: frozenset[str]) -> None:
        """Begin with these nodes in the pool; the engine has been told of them."""
        self._pilots.records = lifecycle.begun(self.records, present, self._clock.now())

    def reconcile(self, snapshot: Snapshot) -> tuple[Effect, ...]:
        """Reconcile the records with the pilots that a poll lists; a user that keeps nodes is barred."""
        self._pilots.records, effects = pool.reconciled(self.records, snapshot)
        for kept in self.clearing.observe(self.records, effects, snapshot.time):
            reason = f"{kept.node} was not free {kept.since_s:.0f} s after its pilot was ended"
            self._pilots.quarantine.bar(kept.user, f"{reason}: something of this user stays there")
        return effects

    def observe(
        self,
        snapshot: Snapshot,
        given_up: frozenset[str],
        kept: frozenset[str] = frozenset(),
        claimed: frozenset[str] = frozenset(),
    ) -> tuple[Effect, ...]:
        """Take a poll in; nodes of `given_up` and those `kept` for main jobs leave the pool or do not join.
        Main jobs that are there are to get those of them that are `claimed`.
        Emits the change, and returns what else follows from it."""
        self._kept = kept
        settings = self._settings.current
        self._count(settings.engine)
        users = {name: pilot.user for name, pilot in self.records.pilots.items()}
        if (gpus := self.gpus.poll(snapshot.nodes, users, snapshot.time)) is not None:
            self._emit(gpus)
        terms = pool.Terms(
            debounce_s=settings.debounce_s,
            min_hole_s=settings.min_hole_s,
            rejoin_s=settings.rejoin_s,
            closed=self.operation is not Operation.RUNNING,
            given_up=given_up | kept,
            claimed=claimed,
            barred=self._pilots.quarantine.nodes(),
            retried=self._pilots.quarantine.retried(),
        )
        self._pilots.records, effects = pool.polled(self.records, snapshot, terms)
        for effect in effects:
            if isinstance(effect, NodesChanged):
                self._emit(effect)
        return effects

    def _count(self, own: EngineSettings) -> None:
        """Tell the engine how many nodes there are, if that has changed."""
        counted = Counter((own.class_of(node.name), node.gpus) for node in self.seen)
        if counted != self._counted:
            self._counted = counted
            nodes, gpus = Counter[str](), dict[str, dict[int, int]]()
            for (name, each), count in counted.items():
                nodes[name] += count
                if each:
                    gpus.setdefault(name, {})[each] = count
            self._emit(MachineChanged(time=self._clock.now(), nodes=dict(nodes), gpus=gpus))

    def has_gpus(self, node: str, user: str, count: int, reason: str = "") -> None:
        """A user's agent says how many GPUs its pilot on a node has; `reason`: what follows from that."""
        if (change := self.gpus.says(node, user, count, self._clock.now(), reason)) is not None:
            self._emit(change)

    def tell_barred(self) -> None:
        """Tell the engine which users get no pilots for a while, and where, if others do than before."""
        quarantine = self._pilots.quarantine
        barred, kept_off = quarantine.barred(), quarantine.kept_off()
        if barred.keys() != self._barred.keys() or kept_off != self._kept_off:
            self._barred, self._kept_off = barred, kept_off
            self._emit(UsersBarred(time=self._clock.now(), users=barred, nodes=kept_off))

    def lose(self, nodes: Iterable[str], reason: str, *, vacated: bool = False) -> None:
        """Nodes leave the pool before a poll shows it, in one event; `vacated`: their agents are still
        there."""
        self.tell_barred()  # first: else trainers that get no pilots would get nodes of others for these
        now = self._clock.now()
        self._pilots.records, gone = lifecycle.left(self.records, nodes, now)
        if gone:
            told = gone if vacated else frozenset[str]()
            self._emit(NodesChanged(time=now, left=gone, vacated=told, reason=reason))

    def hole_s(self, node: str) -> float | None:
        """For how long a pilot may be on a node: until its hole is expected to end, less the time that the
        node then takes to be cleared; None: not known."""
        until = next((n.until for n in self.seen if n.name == node), None)
        return None if until is None else until - self._clock.now() - self.clearing.lead_s

    def reasons(self, *, details: bool = False) -> dict[str, str]:
        """Node of the last poll -> what keeps it out of the pool, empty where nothing does. With `details`,
        which may name users, it is for admins only."""
        why_not = self.why_not()
        return {node.name: why_not(node, details) for node in self.seen}

    def why_not(self) -> Callable[[Node, bool], str]:
        """Return what tells of a node what keeps it out of the pool at this moment, as `reasons` does; any
        thread may call it."""
        own, now, operation = self._settings.current, self._clock.now(), self.operation
        refused, excluded, kept = self._pilots.quarantine.nodes(), own.excluded, self._kept
        nodes = self.records.nodes

        def why(node: Node, details: bool) -> str:
            if node.why or node.state is not NodeState.IDLE:
                return node.why
            if node_of(node.name) in excluded:
                return "excluded"
            if operation is not Operation.RUNNING:
                return operation.value
            if node.until is not None and node.until - now < own.min_hole_s:
                return "its hole ends soon"
            if node.name not in refused:
                return KEPT if node.name in kept else RESTS if _rests(nodes.get(node.name)) else ""
            return f"no pilot for a while: {refused[node.name]}" if details else "its pilots were refused"

        return why


def _rests(one: NodeRecord | None) -> bool:
    """Return whether a node went to main jobs a moment ago; one that is idle since a moment is not meant."""
    return one is not None and one.phase is NodePhase.RESTING and one.handed is not None


def with_our_nodes_idle(snapshot: Snapshot, held: Collection[str]) -> Snapshot:
    """Return the snapshot with nodes of `held` as idle whose state only shows that one of our pilots follows
    another, or that the scheduler has just been restarted. The list of pilots still shows whether our pilot
    is there."""
    return replace(
        snapshot,
        nodes=tuple(
            replace(node, state=NodeState.IDLE, why="", job="", ends=None)
            if node.why and STILL_OURS.issuperset(node.why.split("+")) and node.name in held
            else node
            for node in snapshot.nodes
        ),
    )
