"""What is wrong with the daemon at the moment: the one register that status, probes and metrics read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Part = Literal["scheduler", "store", "pilots", "solver", "allocator"]
DECIDES_ALL_THE_SAME = frozenset({"solver", "allocator"})
"""The parts without which the daemon does its work all the same: another allocator makes the plans."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a part does not work. `detail` may name users, and is for admins only."""

    reason: str
    detail: str = ""

    @property
    def text(self) -> str:
        """Reason and detail in one line."""
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class Troubles:
    """The parts that do not work, each with its reason."""

    def __init__(self) -> None:
        self._by_part: dict[Part, Trouble] = {}

    def set(self, part: Part, trouble: Trouble | None) -> bool:
        """Note a part's state; None: it works. Returns whether it worked before and does not now, or the
        reverse."""
        before = self._by_part.pop(part, None)
        if trouble is not None:
            self._by_part[part] = trouble
        return (before is None) != (trouble is None)

    def has(self, part: Part) -> bool:
        """Whether a part does not work."""
        return part in self._by_part

    def texts(self, *, details: bool, blocking: bool = False) -> list[str]:
        """What is wrong, in a fixed order of the parts; with `details` as admins may read it, with `blocking`
        only what keeps the daemon from its work."""
        parts = [part for part in get_args(Part) if not (blocking and part in DECIDES_ALL_THE_SAME)]
        found = [self._by_part[part] for part in parts if part in self._by_part]
        return [trouble.text if details else trouble.reason for trouble in found]
