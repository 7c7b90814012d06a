"""Readers of the answers of bsub and bkill, whose exit code 255 may mean anything. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

SUBMITTED = re.compile(r"Job <([1-9][0-9]{0,11})> is submitted to (?:default )?queue <([^<>\n]{1,255})>")
NOT_SUBMITTED = re.compile(r"job not submitted", re.IGNORECASE)
"""bsub's own answer ends in `Job not submitted.`; wrappers of sites shout it."""
NO_ANSWER = ("Please wait", "still trying", "try later", "LSF is down", "Cannot connect to LSF")
"""Words of commands when the daemons of LSF do not answer."""
DENIED = "permission denied"
"""Words of bkill when the caller may not end a job: `Job <8055>: User permission denied`."""
MOST_SAID = 300


class Killed(StrEnum):
    """Results of bkill for a job."""

    TOLD = "told"
    GONE = "gone"
    REFUSED = "refused"


_OF_KILL = re.compile(r"(?m)^Job <([0-9]{1,12}(?:\[[0-9]{1,9}\])?)>(?: is being |: ?)(.+)$")
_IS_GONE = ("already finished", "No matching job", "not found", "finished")


def submitted(said: str) -> str:
    """The number of the job that bsub has submitted, wherever in its output it says so; "" if it says no such
    thing. A line that it prints while it waits for LSF may stand before."""
    match = SUBMITTED.search(said)
    return match[1] if match else ""


def refused(said: str) -> bool:
    """Return whether bsub says that it has submitted nothing. Where it says neither, the job may exist."""
    return NOT_SUBMITTED.search(said) is not None


def unanswered(said: str) -> bool:
    """Return whether a command says that the daemons of LSF do not answer."""
    return any(words in said for words in NO_ANSWER)


def why_refused(said: str) -> str:
    """Return why bsub has submitted nothing, in its own words."""
    lines = [line.strip(" #") for line in said.splitlines()]
    lines = [line for line in lines if line]
    for i, line in enumerate(lines):
        before, found, _ = line.partition("Job not submitted")
        if found and before.strip():
            return before.strip().rstrip(".")[:MOST_SAID]
        if NOT_SUBMITTED.search(line) and i + 1 < len(lines):  # a wrapper lists the errors below
            return lines[i + 1][:MOST_SAID]
    return (lines[-1] if lines else "it says nothing")[:MOST_SAID]


def killed(said: str) -> Mapping[str, Killed]:
    """Return bkill's result for each job that it names."""
    found = {}
    for number, words in _OF_KILL.findall(said):
        if any(gone in words for gone in _IS_GONE):
            found[number] = Killed.GONE
        elif words.strip().rstrip(".") in ("terminated", "signaled", "signalled", "deleted", "stopped"):
            found[number] = Killed.TOLD
        else:
            found[number] = Killed.REFUSED
    return found


def denied(said: str) -> bool:
    """Return whether bkill says that the caller may not end some job."""
    return DENIED in said.lower()
