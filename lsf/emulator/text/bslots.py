"""Output of bslots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lsf.emulator.text.times import phrase

NONE = "No backfill window exists at this time\n"
NO_SUCH = "No backfill window meets the specified requirements\n"
"""Its beginning is known; the rest is a guess."""
HEADER = "SLOTS          RUNTIME\n"


def runtime(seconds: float | None) -> str:
    """Return how long a window is, in words."""
    return "UNLIMITED" if seconds is None else phrase(seconds)


def rows(windows: Sequence[tuple[int, float | None]]) -> str:
    """(slots, seconds) of each window."""
    return HEADER + "".join(f"{slots:<14} {runtime(seconds)}\n" for slots, seconds in windows)


def blocks(windows: Sequence[tuple[int, float | None, Mapping[str, int]]]) -> str:
    """With the slots of each host (-l)."""
    return "\n".join(
        f"SLOTS:    {slots}\nRUNTIME:  {runtime(seconds)}\nHOSTS:    {_hosts(hosts)}\n"
        for slots, seconds, hosts in windows
    )


def _hosts(hosts: Mapping[str, int]) -> str:
    return "".join(f"{count}*{name} " for name, count in hosts.items())
