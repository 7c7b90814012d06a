"""The nodes that went to main jobs a moment ago: given back by us, or taken by the scheduler."""

from __future__ import annotations

from collections.abc import Collection

REMEMBERED_S = 60.0


class Handed:
    """Remembers since when. Where one main job came others may follow, so that such nodes stay away a
    while."""

    def __init__(self) -> None:
        self.choice: frozenset[str] = frozenset()
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

    def chosen(self, nodes: frozenset[str], moment: float) -> None:
        """These are to be given back for main jobs, by what was known then: the `choice`."""
        self.choice, self._chosen_at = nodes, moment

    def taken_meanwhile(self) -> set[str]:
        """The nodes that the scheduler has taken since we last chose some."""
        return {node for node, at in self._taken.items() if at >= self._chosen_at}

    def resting(self, now: float, rest_s: float) -> frozenset[str]:
        """The nodes that went less than `rest_s` ago."""
        keep_s = max(rest_s, REMEMBERED_S)
        self._since = {node: at for node, at in self._since.items() if now - at < keep_s}
        self._taken = {node: at for node, at in self._taken.items() if now - at < keep_s}
        return frozenset(node for node, at in self._since.items() if now - at < rest_s)
