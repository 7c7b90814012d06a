"""Text of Slurm's commands in, frozen dataclasses out. Pure.

Two commands show the whole machine: `scontrol -a -d -o`, told on its standard input what to show, and `squeue
-a` as its `Dialect` has it. Job names are the users' own and may hold anything, line breaks included: in
every line of `squeue` a mark that nobody can guess or read comes before all that users write, and the name
comes last, cut off.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from bftrainer.model.text import shown
from bftrainer.schedulers.shared.text import TextError
from bftrainer.schedulers.slurm import values
from bftrainer.schedulers.slurm.dialect import COLUMNS, JOB_STATES, LETTERS, PREEMPTS, SEPARATOR, Dialect
from bftrainer.schedulers.slurm.queue import gpus
from bftrainer.schedulers.slurm.rows import (
    NodeRow,
    Partition,
    Reservation,
    SlurmJobEnd,
    SlurmJobRow,
    SlurmMachine,
)

SHOW = "show node\nshow reservation\nshow partition\n"
"""Standard input of `scontrol -a -d -o`."""

FIELDS = tuple(letter for letter, _ in COLUMNS)
ORDER = "-t,-p"
"""Jobs that run first, then those that wait, by their priority: what is cut off a long list matters least."""
MOST_OF_USER = 2000
"""Pending jobs read of one user, beside all that Slurm plans: more than Slurm itself looks at."""

PROMPT = "scontrol: "  # it is printed even if no terminal is there
NO_RESERVATIONS = "No reservations in the system"
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def machine(text: str) -> SlurmMachine:
    """Parse what `scontrol -a -d -o` printed for `SHOW`.

    Raises:
        TextError: a part of the answer is missing. So a machine is never taken to be empty.
    """
    nodes: dict[str, NodeRow] = {}
    twice: set[str] = set()
    partitions: dict[str, Partition] = {}
    reservations: list[Reservation] = []
    for line in _shown(text):
        if line.startswith("NodeName="):
            node = _node(line)
            if NODE_NAME.fullmatch(node.name):
                twice |= {node.name} & nodes.keys()
                nodes[node.name] = node
        elif line.startswith("PartitionName="):
            partition = _partition(line)
            partitions[partition.name] = partition
        elif line.startswith("ReservationName="):
            reservations.append(_reservation(line))
    missing = [what for what, found in (("nodes", nodes), ("partitions", partitions)) if not found]
    if not reservations and NO_RESERVATIONS not in text:
        missing.append("reservations")
    if missing:
        raise TextError(f"scontrol showed no {' and no '.join(missing)}")
    for name in twice:  # a comment with a line break can look like a node
        nodes[name] = NodeRow(name, "LISTED_TWICE", frozenset(), (), (), "", (), 0, 0)
    return SlurmMachine(nodes, partitions, tuple(reservations))


def jobs(
    printed: bytes, mark: str, prefix: str = "", dialect: Dialect = LETTERS
) -> tuple[tuple[SlurmJobRow, ...], tuple[str, ...]]:
    """Parse `squeue -h -a` in the dialect's form: its jobs in order, and the lines that cannot be read.

    Lines without the mark are the rest of a job name. One line that cannot be read must not hide all others;
    the nodes of that job still show as allocated in `scontrol`. Of a user's many pending jobs the last ones
    are left out, but not those whose names begin with `prefix`.

    Raises:
        TextError: not one line can be read.
    """
    named = f"{SEPARATOR}{prefix}" if prefix else None
    rows: list[SlurmJobRow] = []
    odd: list[str] = []
    pending: Counter[str] = Counter()
    marked = rf"(?m)^(?:([0-9_+%,.:\[\]-]*){SEPARATOR})?{re.escape(mark)}{SEPARATOR}(.*)$".encode()
    for match in re.finditer(marked, printed):
        line = SEPARATOR.join(part.decode(errors="replace") for part in match.groups() if part)
        user = line.split(SEPARATOR, 3)[2:3]
        if user and pending[user[0]] >= MOST_OF_USER and not _matters(line, named):
            continue
        try:
            row = _job(line, dialect)
        except TextError as error:
            odd.append(str(error))
            continue
        rows.append(row)
        pending[row.user] += row.state == "PENDING"
    if odd and not rows:
        raise TextError(odd[0])
    return tuple(rows), tuple(odd)


def _matters(line: str, named: str | None) -> bool:
    """Return whether a job counts even among many: it does not wait, is planned, or may be a pilot."""
    fields = line.split(SEPARATOR, 9)
    return (
        len(fields) < 10
        or fields[3] != "PENDING"
        or fields[8] not in values.NOTHING
        or (named is not None and named in fields[9])
    )


def ends(text: str) -> dict[str, SlurmJobEnd]:
    """Return how jobs have ended, by number, from the output of `scontrol -a -o` about them. Of one that is
    shown twice nothing is said: users' comments may hold line breaks, and look like another job's end."""
    found: dict[str, SlurmJobEnd] = {}
    twice: set[str] = set()
    for line in _shown(text):
        if line.startswith("JobId="):
            job, code = line[6 : line.find(" ")], values.count(_field(line, " ExitCode=").partition(":")[0])
            twice |= {job} & found.keys()
            once = line.count(" PreemptTime=") == 1  # else names or comments may say it
            preempted = once and _field(line, " PreemptTime=") not in {"", "None"}
            found[job] = SlurmJobEnd(_field(line, " JobState="), code, _field(line, " Reason="), preempted)
    return {job: end for job, end in found.items() if job not in twice}


def _shown(text: str) -> Iterator[str]:
    """The lines that `scontrol` printed, without its prompts."""
    for line in text.split("\n"):
        while line.startswith(PROMPT):
            line = line[len(PROMPT) :]  # noqa: PLW2901
        yield line


def _node(line: str) -> NodeRow:
    base, flags = _state(_field(line, " State="))
    gres = values.plain(_field(line, " Gres="))
    used = _field(line, " GresUsed=") or _field(line, " AllocTRES=")
    gpu_parts = gpus.sizes(gres)
    opened = gpus.opened(used, gpu_parts)
    return NodeRow(
        line[9 : line.find(" ")],
        base,
        flags,
        values.words(_field(line, " Partitions=")),
        values.words(_field(line, " ActiveFeatures=")),
        gres,
        gpus.kinds(gres),
        values.count(_field(line, " CPUTot=")),
        values.count(_field(line, " RealMemory=")),
        (_field(line, " NodeAddr="), _field(line, " NodeHostName=")),
        values.count(_field(line, " CPUAlloc=")),
        values.count(_field(line, " AllocMem=")),
        gpus.plus(gpus.kinds(used), *(((kind, 1),) for _, kind, _ in opened)),
        max(1, values.count(_field(line, " ThreadsPerCore="))),
        gpu_parts,
        opened,
    )


@lru_cache(maxsize=4096)
def _state(text: str) -> tuple[str, frozenset[str]]:
    base, *flags = text.split("+")
    return base, frozenset(flags)


def _partition(line: str) -> Partition:
    return Partition(
        line[14 : line.find(" ")],
        values.count(_field(line, " PriorityTier=")),
        _field(line, " State=") == "UP",
        _field(line, " Default=") == "YES",
        values.duration_s(_field(line, " MaxTime=")),
        not PREEMPTS.isdisjoint(_field(line, " PreemptMode=").split(",")),
    )


def _reservation(line: str) -> Reservation:
    name = line[16 : line.find(" ")]
    start, end = values.moment(_field(line, " StartTime=")), values.moment(_field(line, " EndTime="))
    if start is None or end is None:
        raise TextError(f"reservation {name}: its times are no seconds since 1970: {line[:160]!r}")
    flags = values.words(_field(line, " Flags="))
    return Reservation(name, start, end, values.expand(_field(line, " Nodes=")), "FLEX" in flags)


def _job(line: str, dialect: Dialect) -> SlurmJobRow:
    fields = line.split(SEPARATOR, len(FIELDS) - 1)
    if len(fields) != len(FIELDS):
        raise TextError(f"squeue: {len(fields)} fields instead of {len(FIELDS)}: {line[:160]!r}")
    identity, partitions, user, state, start, end, limit, count, planned, nodes = fields[:10]
    required, excluded, features, priority, reservation, cpus, memory, tres = fields[10:18]
    all_cpus, shares, submitted, contiguous, reason, name = fields[18:]
    return SlurmJobRow(
        identity.partition("_[")[0],
        values.tasks(identity),
        values.words(partitions),
        user,
        state if state in JOB_STATES or values.plain(nodes) else "PENDING",
        values.moment(start),
        values.moment(end),
        values.duration_s(limit),
        values.count(count),
        values.expand(planned),
        values.expand(nodes),
        values.plain(required),
        values.plain(excluded),
        values.plain(features),
        values.count(priority),
        values.plain(reservation),
        values.count(cpus),
        values.megabytes(memory),
        gpus.kinds(values.plain(tres)),
        values.count(all_cpus),
        dialect.shares.get(shares),
        shown(reason),
        name.rstrip(" "),
        values.moment(submitted),
        contiguous == "1",
        gpus.parts(values.plain(tres)),
    )


def _field(line: str, key: str) -> str:
    """The value after ` Key=`, up to the next space; "" if it is not there."""
    start = line.find(key)
    if start < 0:
        return ""
    start += len(key)
    end = line.find(" ", start)
    return line[start:] if end < 0 else line[start:end]
