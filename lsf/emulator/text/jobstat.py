"""Output of jobstat, Summit's own view of the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lsf.emulator.text import times

WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class StatRow:
    """A job. `seconds` are what remains, or what it asks for; `when` is its start or submission."""

    id: int
    user: str
    project: str
    nodes: int
    seconds: float
    when: float = 0.0
    name: str = "Not_Specified"
    priority: float = 501.0
    reason: str = ""


def text(
    running: Sequence[StatRow], eligible: Sequence[StatRow], blocked: Sequence[StatRow], used: int, nodes: int
) -> str:
    """All three sections; `used` of the machine's `nodes` are, by these jobs and by those of other users."""
    share = 100 * used / nodes if nodes else 0.0
    said = _title(f"Running Jobs: {len(running)} ({used} of {nodes} nodes, {share:.2f}%)")
    said += "JobId    Username   Project          Nodes Remain     StartTime       JobName\n"
    said += "".join(f"{_begin(row)} {times.jobstat(row.when):<15} {row.name}\n" for row in running)
    said += _title(f"Eligible Jobs: {len(eligible)}")
    said += "JobId    Username   Project          Nodes Walltime   QueueTime       Priority JobName\n"
    said += "".join(
        f"{_begin(row)} {times.jobstat(row.when):<15} {row.priority:<8.2f} {row.name}\n" for row in eligible
    )
    said += _title(f"Blocked Jobs: {len(blocked)}")
    said += "JobId    Username   Project          Nodes Walltime   BlockReason\n"
    return said + "".join(f"{_begin(row)} {row.reason}\n" for row in blocked)


def _title(words: str) -> str:
    room = WIDTH - len(words) - 2
    return f"{'-' * (room // 2)} {words} {'-' * (room - room // 2)}\n"


def _begin(row: StatRow) -> str:
    return f"{row.id:<8} {row.user:<10} {row.project:<16} {row.nodes:<5} {times.clock(row.seconds):<10}"
