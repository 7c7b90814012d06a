"""Leaves idle nodes to main jobs, poll by poll: as many as settings, earlier jobs and the promise say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from bftrainer.model.events import HeadroomChanged
from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Operation, Snapshot
from bftrainer.model.main_jobs import MainStart
from bftrainer.nodes.headroom import headroom, promise
from bftrainer.nodes.headroom.demand import Demand
from bftrainer.nodes.headroom.headroom import Kind, Spared
from bftrainer.nodes.headroom.promise import Kept
from bftrainer.nodes.pilots import Pilots
from bftrainer.nodes.pool import BEING_CLEARED
from bftrainer.nodes.state import NodesState
from bftrainer.ports import Emit
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.schedulers import SCHEDULERS

REPLACED_S = 5.0
"""A node that a main job has taken is replaced within this time, and the time that nodes take to be
cleared."""


class Reserve:
    """Holds what is left to main jobs: `spared` as of the last poll, `promise` the promise's state."""

    def __init__(self, settings: LiveSettings, pilots: Pilots, state: NodesState, emit: Emit) -> None:
        self._settings, self._pilots, self._state, self._emit = settings, pilots, state, emit
        self.promise = Kept()
        self._demand = Demand()
        self.spared = Spared()

    def learn(self, starts: Iterable[MainStart], snapshot: Snapshot) -> None:
        """Take in main jobs that have started, if any: to be called at every poll."""
        starts = list(starts)
        self._judge(starts, snapshot.time)
        if starts:
            kinds = {node_of(node.name): headroom.kind_of(node) for node in snapshot.nodes}
            cores = {node_of(node.name): node.cpus for node in snapshot.nodes}
            each = Counter(node_of(node.name) for node in snapshot.nodes)
            for start in starts:
                self._demand.learn(start, kinds, cores, each)

    def observe(self, snapshot: Snapshot, claimed: frozenset[str], gone: frozenset[str]) -> Spared:
        """Take a poll in. `claimed` nodes are main jobs' already, those of `gone` are not ours for another
        reason."""
        if self._state.operation is not Operation.RUNNING:
            self.spared = Spared()
            return self.spared
        records = self._pilots.records
        releasing, held = records.releasing, records.pilots.keys()
        usable = snapshot.idle - claimed - (gone - releasing)
        usable |= self._being_cleared(snapshot) - claimed
        kinds = headroom.by_kind(snapshot.nodes, usable)
        counts = {kind: len(names) for kind, names in kinds.items()}
        said = self._settings.current.left_to_main_jobs
        # a log takes the nodes that it names, whatever else is idle
        learns = said.auto and not SCHEDULERS[self._settings.current.scheduler].on_this_machine
        learnt = self._learnt(snapshot, counts) if learns else {}
        self.spared = headroom.keep(
            self.spared,
            headroom.wanted(said, counts, learnt, self.promise.extra),
            kinds,
            now=snapshot.time,
            held=held - releasing,
            pool=self._state.nodes,
            used={node.name: node.used for node in snapshot.nodes if node.used},
        )
        return self.spared

    def _judge(self, starts: Sequence[MainStart], now: float) -> None:
        """See whether the promise is kept, and tell where that leads to another share."""
        before = self.promise
        self.promise = promise.judged(before, starts, self._settings.current.promise, now)
        if self.promise.level != before.level:
            calm = "the promise to main jobs has not been at risk for long"
            more = self.promise.level > before.level
            reason = f"the promise to main jobs is at risk: {self.promise.why}" if more else calm
            self._emit(HeadroomChanged(time=now, share=self.promise.extra, reason=reason))

    def _learnt(self, snapshot: Snapshot, counts: Mapping[Kind, int]) -> dict[Kind, int]:
        """Return how many nodes of each kind main jobs need, as far as is known."""
        most = {kind: headroom.most(count) for kind, count in counts.items()}
        spare = defaultdict[Kind, float](float)
        for node in snapshot.nodes:
            if node.spare:
                spare[headroom.kind_of(node)] += node.spare
        within_s = REPLACED_S + self._state.clearing.lead_s
        return self._demand.needs(most, spare, within_s, snapshot.time)

    def _being_cleared(self, snapshot: Snapshot) -> frozenset[str]:
        """Nodes that we have given back, and that are idle as soon as they are cleared."""
        ours = self._pilots.records.clearing
        return frozenset(
            node.name for node in snapshot.nodes if node.name in ours and node.why in {"", BEING_CLEARED}
        )
