"""To which trainer a process belongs."""

from __future__ import annotations

import sys
from pathlib import Path

from bftrainer.elastic.members.channel import Orders


class Identity:
    """Name, number and folder of the trainer, from the agent's orders; without any, of a script by itself."""

    _orders: Orders | None

    @property
    def name(self) -> str:
        """The trainer's name, as in its spec; started by hand, that of the script."""
        return self._orders.name if self._orders else Path(sys.argv[0]).stem or "run"

    @property
    def id(self) -> int:
        """The trainer's number: the same for all its nodes, and all its restarts; started by hand, 0."""
        return self._orders.trainer if self._orders else 0

    @property
    def folder(self) -> Path:
        """The trainer's own folder, the same on all nodes and for all restarts; started by hand, the present
        one. Have rank 0 alone write there."""
        return Path(self._orders.folder) if self._orders and self._orders.folder else Path.cwd()
