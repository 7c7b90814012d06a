"""Leaves idle nodes to main jobs, poll by poll: how many the settings say, which ones `headroom.py` says."""

from __future__ import annotations

from collections.abc import Mapping

from bftrainer.model.machine import Operation, Snapshot
from bftrainer.nodes import headroom
from bftrainer.nodes.clearing import CLEARING
from bftrainer.nodes.headroom import Kind, Spared
from bftrainer.nodes.pilots import Pilots
from bftrainer.nodes.state import NodesState
from bftrainer.settings.live import LiveSettings


class Reserve:
    """What is left to main jobs; `spared` is that of the last poll."""

    def __init__(self, settings: LiveSettings, pilots: Pilots, state: NodesState) -> None:
        self._settings, self._pilots, self._state = settings, pilots, state
        self.spared = Spared()
        self._learnt: Mapping[Kind, int] = {}

    def observe(self, snapshot: Snapshot, claimed: frozenset[str], gone: frozenset[str]) -> Spared:
        """Take a poll in. `claimed` nodes are main jobs' already, those of `gone` are not ours for another
        reason."""
        if self._state.operation is not Operation.RUNNING:
            self.spared = Spared()
            return self.spared
        releasing, held = self._pilots.releasing.keys(), self._pilots.held.keys()
        usable = snapshot.idle - claimed - (gone - releasing)
        usable |= self._being_cleared(snapshot) - claimed
        kinds = headroom.by_kind(snapshot.nodes, usable)
        counts = {kind: len(names) for kind, names in kinds.items()}
        self.spared = headroom.keep(
            self.spared,
            headroom.wanted(self._settings.current.left_to_main_jobs, counts, self._learnt),
            kinds,
            now=snapshot.time,
            held=held - releasing,
            pool=self._state.nodes,
        )
        return self.spared

    def _being_cleared(self, snapshot: Snapshot) -> frozenset[str]:
        """Nodes that we have given back, and that are idle as soon as they are cleared."""
        ours = self._state.clearing.nodes
        return frozenset(
            node.name for node in snapshot.nodes if node.name in ours and node.why in {"", CLEARING}
        )
