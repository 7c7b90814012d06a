"""The trainer to which a process belongs, and its place on its node."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bftrainer.elastic.process.channel import Orders

if TYPE_CHECKING:
    import torch


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
    def local_rank(self) -> int:
        """This process's number, from 0, among those of its node."""
        return self._orders.local_rank if self._orders else 0

    @property
    def local_size(self) -> int:
        """Number of processes that train on this node: one for each device, or as the spec says."""
        return self._orders.local_size if self._orders else 1

    @property
    def device(self) -> torch.device:
        """Device of this process: its own GPU, by the number under which it sees it; without any, the CPU."""
        import torch  # noqa: PLC0415  scripts that attach may do without

        own = self._orders.device if self._orders else 0
        if torch.cuda.is_available():
            return torch.device("cuda", own)
        return torch.device("xpu", own) if torch.xpu.is_available() else torch.device("cpu")

    @property
    def folder(self) -> Path:
        """The trainer's own folder, the same on all nodes and for all restarts; started by hand, the present
        one. Have rank 0 alone write there."""
        return Path(self._orders.folder) if self._orders and self._orders.folder else Path.cwd()
