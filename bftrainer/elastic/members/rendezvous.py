"""The key-value store through which the members of a generation find each other.

It lives in the members themselves: an entry that one sets is pushed to the others through agents and daemon.
To wait for a key is a local wait that can be called off at once, for instance because the peer that should
have set it is dead and a newer generation has been published.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

FORM_TIMEOUT_S = 10.0
"""Seconds that a member waits for the others' entries."""


class CalledOff(RuntimeError):  # noqa: N818  an order
    """The rendezvous was called off: a newer membership has been published."""


class Rendezvous(dist.Store):  # type: ignore[name-defined, misc]  # torch exports it conditionally
    """A key-value store whose entries are pushed to all members of one generation."""

    def __init__(self, push: Callable[[str, bytes], None]) -> None:
        super().__init__()
        self._push = push
        self._entries: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._off = False

    def arrive(self, key: str, value: bytes) -> None:
        """Take in another member's entry."""
        with self._changed:
            self._entries[key] = value
            self._changed.notify_all()

    def call_off(self) -> None:
        """End all waiting, now and in future, with `CalledOff`."""
        with self._changed:
            self._off = True
            self._changed.notify_all()

    def entries(self) -> dict[str, bytes]:
        """All entries that have arrived so far, by key."""
        with self._changed:
            return dict(self._entries)

    # what ProcessGroupGloo and NCCL call

    def set(self, key: str, value: Any) -> None:
        """Set an entry, and push it to the other members."""
        entry = value.encode() if isinstance(value, str) else bytes(value)
        self.arrive(key, entry)
        self._push(key, entry)

    def get(self, key: str) -> bytes:
        """The entry of a key, once it has arrived.

        Raises:
            CalledOff, RuntimeError: see `wait`.
        """
        self.wait([key])
        return self._entries[key]

    def check(self, keys: list[str]) -> bool:
        """True if all these entries have arrived."""
        with self._changed:
            return all(key in self._entries for key in keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait for these entries, `FORM_TIMEOUT_S` at most by default.

        Raises:
            CalledOff: the rendezvous was called off.
            RuntimeError: time is over.
        """
        limit = timeout.total_seconds() if timeout else FORM_TIMEOUT_S
        with self._changed:
            there = self._changed.wait_for(
                lambda: self._off or all(key in self._entries for key in keys), timeout=limit
            )
            if self._off:
                raise CalledOff(f"waited for {keys}")
            if not there:
                raise RuntimeError(f"a member did not come within {limit:g} s")
