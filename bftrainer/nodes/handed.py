"""The nodes that went to main jobs a moment ago: given back by us, or taken by the scheduler."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf

from bftrainer.model.machine import Claim
from bftrainer.nodes import vacate

REMEMBERED_S = 60.0


class Handed:
    """Remembers since when. Where one main job came others may follow, so that such nodes stay away a
    while."""

    def __init__(self) -> None:
        self._counted: set[str] = set()  # what is accounted for since we chose nodes last
        self._chosen_at = 0.0
        self._since: dict[str, float] = {}
        self._taken: dict[str, float] = {}

    def given(self, nodes: Collection[str], now: float) -> None:
        """We give these nodes back."""
        self._since |= dict.fromkeys(nodes, now)

    def kept(self, node: str) -> None:
        """We do not give this node back, after all."""
        self._since.pop(node, None)

    def taken(self, node: str, now: float) -> None:
        """The scheduler has told the pilot of this node to end."""
        self._since[node] = self._taken[node] = now

    def chosen(
        self, nodes: frozenset[str], moment: float, claims: Sequence[Claim], since: Mapping[str, float]
    ) -> frozenset[str]:
        """These are to be given back for main jobs, by what was known at a `moment`. Returns those of them
        that are still needed. `since` says since when we hold nodes."""
        self._counted, self._chosen_at = set(nodes), moment
        return nodes - self.spared(nodes, claims, since)

    def taken_meanwhile(self) -> set[str]:
        """The nodes that the scheduler has taken since we last chose some."""
        return {node for node, at in self._taken.items() if at >= self._chosen_at}

    def spared(self, nodes: Collection[str], claims: Sequence[Claim], since: Mapping[str, float]) -> set[str]:
        """Those of `nodes` that need not be given back for these claims any more, as the scheduler has taken
        others, each of which counts once."""
        taken = self.taken_meanwhile() - self._counted
        self._counted |= taken
        in_turn = sorted(nodes, key=lambda node: (since.get(node, inf), node))
        return vacate.spared(in_turn, sorted(taken), claims)

    def resting(self, now: float, rest_s: float) -> frozenset[str]:
        """The nodes that went less than `rest_s` ago."""
        keep_s = max(rest_s, REMEMBERED_S)
        self._since = {node: at for node, at in self._since.items() if now - at < keep_s}
        self._taken = {node: at for node, at in self._taken.items() if now - at < keep_s}
        return frozenset(node for node, at in self._since.items() if now - at < rest_s)
