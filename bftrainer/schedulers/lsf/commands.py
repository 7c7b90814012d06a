"""The command lines with which LSF is asked; the emulator answers exactly these. Pure.

Questions name their fields (`-o`), so that sites which changed the default output print the same. JSON needs
LSF 10.1 with fix pack 5 or later; `Form.DELIMITED` asks earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bftrainer.schedulers.lsf.text.tables import DELIMITER

HOST_FIELDS = ("host_name", "status", "max", "njobs", "run", "ssusp", "ususp", "rsv")
JOB_FIELDS = (
    *("jobid", "jobindex", "stat", "user", "queue", "nreq_slot", "exec_host", "submit_time", "start_time"),
    *("time_left", "pend_reason", "job_name"),  # names last: they may hold anything
)
END_FIELDS = ("jobid", "stat", "exit_code", "exit_reason")
QUEUE_FIELDS = ("queue_name", "priority", "status")
MOST_IDS = 200
"""Jobs named on one command line, at most."""


class Form(StrEnum):
    """Formats in which LSF prints rows."""

    JSON = "json"
    DELIMITED = "delimited"


@dataclass(frozen=True, slots=True)
class Scope:
    """Selects the hosts that count: those that fit `select`, a string such as `select[CN]` ("": all), and of
    these only `hosts`, names of hosts or host groups (empty: all). `form` is how LSF prints rows."""

    select: str = ""
    hosts: tuple[str, ...] = ()
    form: Form = Form.JSON


def _fields(names: Sequence[str], form: Form) -> list[str]:
    if form is Form.JSON:
        return ["-o", " ".join(names), "-json"]
    return ["-o", f"{' '.join(names)} delimiter='{DELIMITER}'"]


def _of(scope: Scope) -> list[str]:
    return ["-R", scope.select] if scope.select else []


def hosts(scope: Scope) -> list[str]:
    """Asks for all hosts."""
    return ["bhosts", "-X", *_of(scope), *_fields(HOST_FIELDS, scope.form), *scope.hosts]


def gpus(scope: Scope) -> list[str]:
    """Asks for the GPUs of all hosts, one a line."""
    return ["bhosts", "-gpu", "-w", *_of(scope), *scope.hosts]


def gpus_of_lim(scope: Scope) -> list[str]:
    """The same of the daemon that watches each host: on some machines only that one knows."""
    return ["lshosts", "-gpu", "-w", *_of(scope), *scope.hosts]


def jobs(form: Form) -> list[str]:
    """Asks for the jobs of all users that have not ended."""
    return ["bjobs", "-u", "all", *_fields(JOB_FIELDS, form)]


def all_jobs(form: Form) -> list[str]:
    """Asks for the jobs of all users, also those that have ended lately."""
    return ["bjobs", "-a", "-u", "all", *_fields(JOB_FIELDS, form)]


def accounts(between: str) -> list[str]:
    """Asks for all about the jobs of all users that were dispatched `between` two times and have ended."""
    return ["bacct", "-l", "-u", "all", "-D", between]


def ended(ids: Iterable[str], form: Form) -> list[str]:
    """Asks how jobs have ended."""
    return ["bjobs", "-a", "-u", "all", *_fields(END_FIELDS, form), *ids]


def history(ids: Iterable[str]) -> list[str]:
    """Asks how jobs have ended that bjobs no longer knows."""
    return ["bhist", "-l", *ids]


def windows(scope: Scope, *, long: bool) -> list[str]:
    """Asks for how long slots stay unused; `long`: on which hosts, too."""
    return ["bslots", *(["-l"] if long else []), *_of(scope)]


def stat() -> list[str]:
    """Asks for Summit's own summary of nodes and jobs."""
    return ["jobstat"]


def queues(form: Form) -> list[str]:
    """Asks for all queues."""
    return ["bqueues", *_fields(QUEUE_FIELDS, form)]


def policies() -> list[str]:
    """Asks for all about all queues."""
    return ["bqueues", "-l"]


def identity() -> list[str]:
    """Asks which LSF answers."""
    return ["lsid"]


def end(ids: Iterable[str], signal: str = "") -> list[str]:
    """Ends jobs: by a signal such as TERM, or as LSF itself does."""
    return ["bkill", *(["-s", signal] if signal else []), *ids]
