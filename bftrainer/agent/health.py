"""Takes out devices of a node that fail worker after worker. Pure.

A program with a fault fails as well. So after each failure the devices go to other workers: a fault of the
program stays with the worker's number or strikes anywhere, a fault of the device goes along with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bftrainer.agent.devices import Device

FAILURES = 4
"""Failures of a node's workers in a row, all of the same device. Its number may change from one to the next,
as devices do."""


@dataclass(slots=True)
class Health:
    """The devices of a pilot, `usable` in their order; `out` says why the others are not."""

    usable: tuple[Device, ...]
    out: list[str] = field(default_factory=list)
    _turn: int = 0
    _failed: list[str] = field(default_factory=list)  # devices, in a row

    def give(self, count: int) -> Sequence[Device]:
        """Devices for `count` workers, in the order of their numbers; empty where there are none."""
        n = len(self.usable)
        return [self.usable[(i + self._turn) % n] for i in range(count)] if n else []

    def failed(self, device: Device) -> bool:
        """A worker on this device was the first of its node to fail by itself. Returns whether the device is
        taken out for it. The last one stays."""
        if device.name not in self._failed:
            self._failed.clear()
        self._failed.append(device.name)
        self._turn += 1
        if len(self._failed) < FAILURES or len(self.usable) == 1:
            return False
        self.usable = tuple(own for own in self.usable if own != device)
        self.out.append(f"{device.name}: {FAILURES} workers in a row failed on it")
        self._failed.clear()
        return True

    def worked(self) -> None:
        """The workers of a node have ended as they should: what failed before them was no device."""
        self._failed.clear()
