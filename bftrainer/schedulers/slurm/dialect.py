"""Words of Slurm by version: what squeue is asked for, and values that decide what a job or node is. Pure.

A value that is not here comes with a later Slurm. It never means that a job claims nothing: such a job may
share its nodes or have them alone, or it waits; such a node is not ours, but may be a main job's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

Version = tuple[int, int]
"""The year and month of a Slurm: (24, 11)."""
TRIED: tuple[Version, ...] = ((22, 5), (24, 11), (26, 5))
"""Those on which bftrainer was tried, in order."""

SEPARATOR = "\x1f"
COLUMNS = (
    ("%i", "JobArrayID"),
    ("%P", "Partition"),
    ("%u", "UserName"),
    ("%T", "State"),
    ("%S", "StartTime"),
    ("%e", "EndTime"),
    ("%l", "TimeLimit"),
    ("%D", "NumNodes"),
    ("%Y", "SchedNodes"),
    ("%N", "NodeList"),
    ("%n", "ReqNodes"),
    ("%x", "ExcNodes"),
    ("%f", "Feature"),
    ("%Q", "PriorityLong"),
    ("%v", "Reservation"),
    ("%c", "MinCpus"),
    ("%m", "MinMemory"),
    ("%b", "tres-per-node"),
    ("%C", "NumCPUs"),
    ("%h", "Exclusive"),
    ("%V", "SubmitTime"),
    ("%O", "Contiguous"),
    ("%r", "Reason"),
    ("%64j", "Name:64"),
)
"""Columns of squeue: the letter that all versions know, and the word that later ones know as well. Only of
`%h` and `Exclusive` the values differ."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


JOB_STATES = _words(
    """BOOT_FAIL CANCELLED COMPLETED COMPLETING CONFIGURING DEADLINE FAILED LAUNCH_FAILED NODE_FAIL
    OUT_OF_MEMORY PENDING POWER_UP_NODE PREEMPTED RECONFIG_FAIL REQUEUED REQUEUE_FED REQUEUE_HOLD RESIZING
    RESV_DEL_HOLD REVOKED RUNNING SIGNALING SPECIAL_EXIT STAGE_OUT STOPPED SUSPENDED TIMEOUT"""
)
PREEMPTS = _words("CANCEL REQUEUE SUSPEND")
"""A partition's PreemptMode with one of these lets main jobs preempt its jobs."""
NODE_STATES = _words("ALLOCATED DOWN ERROR FUTURE IDLE INVAL INVALID LISTED_TWICE MIXED UNKNOWN")
NODE_FLAGS = _words(
    """BLOCKED CLOUD COMPLETING DRAIN DYNAMIC_FUTURE DYNAMIC_NORM EXTERNAL FAIL INVALID_REG MAINTENANCE
    NOT_RESPONDING PERFCTRS PLANNED POWERED_DOWN POWERING_DOWN POWERING_UP POWER_DOWN POWER_DRAIN POWER_UP
    REBOOT_ISSUED REBOOT_REQUESTED RESERVED RESUME UNDRAIN"""
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """Form of squeue's query, and its words for jobs that share nodes (True) or have them alone (False)."""

    variable: str
    shares: Mapping[str, bool]

    def request(self, mark: str) -> dict[str, str]:
        """The variable that holds squeue's format: other users can read command lines, but no environment.
        `mark` is at the beginning of each line, or behind its first value, and must be new each time."""
        if self is LETTERS:
            return {self.variable: SEPARATOR.join((mark, *(letter for letter, _ in COLUMNS)))}
        (_, first), *others, (_, last) = COLUMNS
        words = in_words(mark, first, *(word for _, word in others))
        return {self.variable: ",".join((*words, last))}


def in_words(mark: str, first: str, *others: str) -> tuple[str, ...]:
    """Columns of squeue's long format; `mark` stands behind the first value. What ends a value stands behind
    the colon, where digits would be its width."""
    return f"{first}:{SEPARATOR}{mark}{SEPARATOR}", *(f"{word}:{SEPARATOR}" for word in others)


LETTERS = Dialect("SQUEUE_FORMAT", {"OK": True, "YES": True, "NO": False})
WORDS = Dialect("SQUEUE_FORMAT2", {"NO": True, "NODE": False})


def version(config: str) -> Version | None:
    """Parse the controller's version from `scontrol show config`; None where it is not given."""
    match = re.search(r"^SLURM_VERSION\s*=\s*(\d{2})\.(\d{2})\b", config, re.MULTILINE)
    return (int(match[1]), int(match[2])) if match else None


def of_version(known: Version | None) -> Dialect:
    """Return how a version is asked. 22.05 has no word for excluded nodes; in some version after 24.11, `%h`
    has ceased to tell who shares nodes."""
    return LETTERS if known is not None and known <= (24, 11) else WORDS


def named(known: Version) -> str:
    """As Slurm writes it: 26.05."""
    return f"{known[0]}.{known[1]:02}"
