"""Rows of LSF's commands, as frozen dataclasses. Times are Unix seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

PENDING = frozenset({"PEND", "PSUSP", "WAIT"})
"""States of jobs that have not begun, or wait again."""
ENDED = frozenset({"DONE", "EXIT", "PDONE", "ZOMBI"})


@dataclass(frozen=True, slots=True)
class HostRow:
    """A host. `active` slots have jobs that run or are suspended; `reserved` ones wait for a job. `slots` is
    0 where the host has no limit."""

    name: str
    status: str
    slots: int
    active: int
    reserved: int = 0
    limited: bool = True  # False: bhosts shows no number of slots


@dataclass(frozen=True, slots=True)
class LsfJobRow:
    """A job that has not ended. `hosts` are those that it runs on, with its slots there; `slots` is what it
    asks for. Its times are later than said by less than `rounded_s`."""

    id: str
    state: str
    user: str
    queue: str
    slots: int
    hosts: tuple[tuple[str, int], ...] = ()
    submitted: float | None = None
    started: float | None = None
    left_s: float | None = None
    reason: str = ""
    name: str = ""
    rounded_s: float = 1.0

    @property
    def pending(self) -> bool:
        """Return whether it has no hosts yet, or none any more."""
        return self.state.partition("(")[0] in PENDING


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue; jobs of a higher `priority` start first."""

    name: str
    priority: int
    open: bool
    active: bool


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs of a host; `model` is that of most of them, "" if it is not known."""

    count: int
    model: str = ""

    @property
    def gres(self) -> str:
        """As a list of resources has them: gpu:TeslaV100_SXM2_16GB:6."""
        return ":".join(filter(None, ("gpu", self.model, str(self.count)))) if self.count else ""


@dataclass(frozen=True, slots=True)
class BackfillWindow:
    """Unused slots that a job may have for `length_s` (inf: without a limit). `hosts` says where, if LSF
    does."""

    slots: int
    length_s: float
    hosts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """A pending job in LSF's plan: its slots on each host, and when."""

    job: str
    start: float
    finish: float
    hosts: Mapping[str, int]


class EndKind(StrEnum):
    """Kinds of ends of a job."""

    DONE = "done"
    FAILED = "failed"
    KILLED = "killed"  # by somebody: bkill, an administrator, the host
    PREEMPTED = "preempted"
    LIMIT = "run limit"
    VANISHED = "vanished"  # LSF no longer knows it


@dataclass(frozen=True, slots=True)
class LsfJobEnd:
    """The end of a job, with its exit code (None: LSF does not say) and LSF's own words."""

    kind: EndKind
    code: int | None = None
    words: str = ""
