"""Text of Slurm's commands in, frozen dataclasses out. Nothing here runs a command.

Two commands show the whole machine: `scontrol -a -o`, told on its standard input what to show, and `squeue
-a` with the format below. Job names are the users' own and may hold anything, line breaks included: every
line of `squeue` begins with a mark that nobody can guess, and the name comes last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product

SHOW = "show node\nshow reservation\nshow partition\n"
"""What `scontrol -a -o` is told on its standard input."""

SEPARATOR = "\x1f"
FIELDS = tuple(f"%{letter}" for letter in "iPuTSelDYNnxfQvcmbrj")

PROMPT = "scontrol: "  # even where nobody types
NO_RESERVATIONS = "No reservations in the system"
NOTHING = frozenset({"", "(null)", "N/A", "none"})
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
MAX_NODES = 100_000  # of one list of nodes


class TextError(ValueError):
    """What a command printed is not what it prints when it works."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node: the base of its state such as IDLE, and what is said besides, such as PLANNED."""

    name: str
    base: str
    flags: frozenset[str]
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    gres: str
    gpus: int
    cpus: int
    memory_mb: int
    hosts: tuple[str, ...] = ()  # the address that Slurm calls it by, and its machine's name


@dataclass(frozen=True, slots=True)
class Partition:
    name: str
    tier: int  # jobs of a higher one go first
    up: bool
    default: bool
    max_s: float | None
    preempted: bool = True  # whether main jobs may take the nodes of its jobs, as far as it says


@dataclass(frozen=True, slots=True)
class Reservation:
    name: str
    start: float
    end: float
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """What `scontrol` shows, by name."""

    nodes: Mapping[str, NodeRow]
    partitions: Mapping[str, Partition]
    reservations: tuple[Reservation, ...]


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job of the queue. `tasks`: how many of an array's tasks this line stands for, at most."""

    id: str
    tasks: int
    partitions: tuple[str, ...]
    user: str
    state: str
    start: float | None  # when it started, or is expected to
    end: float | None
    limit_s: float | None  # None: unlimited, or not known
    count: int  # nodes
    planned: tuple[str, ...]  # the nodes on which it is expected to start
    nodes: tuple[str, ...]  # that it holds
    required: tuple[str, ...]
    excluded: tuple[str, ...]
    features: str
    priority: int
    reservation: str
    cpus: int  # on each node, at least
    memory_mb: int  # on each node, at least
    gpus: int  # on each node
    reason: str
    name: str  # its first line


@dataclass(frozen=True, slots=True)
class End:
    """How a job has ended. `code`: of its script; 0 also if that was killed."""

    state: str
    code: int
    reason: str


def squeue_format(mark: str) -> str:
    """The -o of squeue; `mark` begins each line and must be new each time."""
    return SEPARATOR.join((mark, *FIELDS))


def machine(text: str) -> Machine:
    """What `scontrol -a -o` printed for `SHOW`.

    Raises:
        TextError: a part of the answer is missing: an empty machine is never believed.
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
        nodes[name] = NodeRow(name, "LISTED_TWICE", frozenset(), (), (), "", 0, 0, 0)
    return Machine(nodes, partitions, tuple(reservations))


def jobs(text: str, mark: str) -> tuple[tuple[JobRow, ...], tuple[str, ...]]:
    """What `squeue -h -a -o squeue_format(mark)` printed, in its order, and the lines that cannot be read.

    Lines without the mark are the rest of somebody's job name. One odd job must not blind us to all others,
    and a job that is not seen still holds nodes that `scontrol` shows as allocated.

    Raises:
        TextError: not one line can be read.
    """
    start = mark + SEPARATOR
    rows: list[JobRow] = []
    odd: list[str] = []
    for line in text.split("\n"):
        if line.startswith(start):
            try:
                rows.append(_job(line[len(start) :]))
            except TextError as error:
                odd.append(str(error))
    if odd and not rows:
        raise TextError(odd[0])
    return tuple(rows), tuple(odd)


def ends(text: str) -> dict[str, End]:
    """How jobs have ended, by number, from what `scontrol -a -o` printed when told to show them."""
    found = {}
    for line in _shown(text):
        if line.startswith("JobId="):
            code = _count(_field(line, " ExitCode=").partition(":")[0])
            found[line[6 : line.find(" ")]] = End(_field(line, " JobState="), code, _field(line, " Reason="))
    return found


def _shown(text: str) -> Iterator[str]:
    """The lines that `scontrol` printed, without its prompts."""
    for line in text.split("\n"):
        while line.startswith(PROMPT):
            line = line[len(PROMPT) :]  # noqa: PLW2901
        yield line


def _node(line: str) -> NodeRow:
    base, flags = _state(_field(line, " State="))
    gres = _plain(_field(line, " Gres="))
    return NodeRow(
        line[9 : line.find(" ")],
        base,
        flags,
        _words(_field(line, " Partitions=")),
        _words(_field(line, " ActiveFeatures=")),
        gres,
        gpus(gres),
        _count(_field(line, " CPUTot=")),
        _count(_field(line, " RealMemory=")),
        (_field(line, " NodeAddr="), _field(line, " NodeHostName=")),
    )


@lru_cache(maxsize=4096)
def _state(text: str) -> tuple[str, frozenset[str]]:
    base, *flags = text.split("+")
    return base, frozenset(flags)


def _partition(line: str) -> Partition:
    return Partition(
        line[14 : line.find(" ")],
        _count(_field(line, " PriorityTier=")),
        _field(line, " State=") == "UP",
        _field(line, " Default=") == "YES",
        duration_s(_field(line, " MaxTime=")),
        _field(line, " PreemptMode=") != "OFF",
    )


def _reservation(line: str) -> Reservation:
    name = line[16 : line.find(" ")]
    start, end = _time(_field(line, " StartTime=")), _time(_field(line, " EndTime="))
    if start is None or end is None:
        raise TextError(f"reservation {name}: its times are no seconds since 1970: {line[:160]!r}")
    return Reservation(name, start, end, expand(_field(line, " Nodes=")))


def _job(line: str) -> JobRow:
    fields = line.split(SEPARATOR, len(FIELDS) - 1)
    if len(fields) != len(FIELDS):
        raise TextError(f"squeue: {len(fields)} fields instead of {len(FIELDS)}: {line[:160]!r}")
    identity, partitions, user, state, start, end, limit, count, planned, nodes = fields[:10]
    required, excluded, features, priority, reservation, cpus, memory, tres, reason, name = fields[10:]
    return JobRow(
        identity.partition("_[")[0],
        _tasks(identity),
        _words(partitions),
        user,
        state,
        _time(start),
        _time(end),
        duration_s(limit),
        _count(count),
        expand(planned),
        expand(nodes),
        expand(required),
        expand(excluded),
        _plain(features),
        _count(priority),
        _plain(reservation),
        _count(cpus),
        _megabytes(memory),
        gpus(_plain(tres)),
        reason,
        name,
    )


def _field(line: str, key: str) -> str:
    """The value after ` Key=`, up to the next space; "" if it is not there."""
    start = line.find(key)
    if start < 0:
        return ""
    start += len(key)
    end = line.find(" ", start)
    return line[start:] if end < 0 else line[start:end]


def _plain(text: str) -> str:
    return "" if text in NOTHING else text


@lru_cache(maxsize=4096)
def _words(text: str) -> tuple[str, ...]:
    return () if text in NOTHING else tuple(text.split(","))


@lru_cache(maxsize=4096)
def _count(text: str) -> int:
    """A number as Slurm prints it: 2048 is 2K; 0 if it is none."""
    match = re.match(r"(\d+)([KM]?)", text)
    return int(match[1]) * {"": 1, "K": 1024, "M": 1024**2}[match[2]] if match else 0


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() else None


@lru_cache(maxsize=4096)
def _megabytes(text: str) -> int:
    """Memory as squeue prints it: 100M, 4G, 1.5T; without a letter it is MB."""
    match = re.match(r"([\d.]+)([KMGTP]?)", text)
    if not match:
        return 0
    unit = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}[match[2]]
    try:
        return int(float(match[1]) * unit)
    except ValueError:
        return 0


@lru_cache(maxsize=4096)
def duration_s(text: str) -> float | None:
    """Slurm's [days-][hours:]minutes:seconds in seconds; None for UNLIMITED and what is no duration."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if not match:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


@lru_cache(maxsize=4096)
def gpus(gres: str) -> int:
    """GPUs in a list of generic resources: gpu:a100:4(S:0-1),nvme:1 -> 4; also gres/gpu:4 and gres:gpu:4."""
    total = 0
    for entry in re.sub(r"\([^)]*\)", "", gres).split(","):
        words = re.split(r"[:=]", entry.removeprefix("gres/").removeprefix("gres:"))
        if words[0] == "gpu":
            last = re.fullmatch(r"(\d+)([Kk]?)", words[-1])
            total += int(last[1]) * (1024 if last[2] else 1) if last else 1
    return total


def _tasks(identity: str) -> int:
    """How many tasks `12_[1-5,8%2]` stands for: as many as may run at once."""
    if "_[" not in identity:
        return 1
    listed, _, most = identity.partition("_[")[2].rstrip("]").partition("%")
    total = 0
    for part in listed.split(","):
        bounds = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if bounds:
            first, last, step = int(bounds[1]), int(bounds[2] or bounds[1]), int(bounds[3] or 1)
            total += max(0, last - first) // max(step, 1) + 1
    return max(1, min(total, _count(most) or total))


@lru_cache(maxsize=8192)
def expand(text: str) -> tuple[str, ...]:
    """The nodes of Slurm's short form: rack[1-2]n[01-03],gpu7.

    Raises:
        TextError: it cannot be read.
    """
    if text in NOTHING:
        return ()
    names: list[str] = []
    for word in _split(text):
        if "[" not in word:
            names.append(word)
            continue
        pieces = re.split(r"\[([^\]]*)\]", word)
        choices = [[piece] if i % 2 == 0 else list(_numbers(piece)) for i, piece in enumerate(pieces)]
        names.extend("".join(choice) for choice in islice(product(*choices), MAX_NODES + 1))
        if len(names) > MAX_NODES:
            raise TextError(f"{text[:80]!r} are more than {MAX_NODES} nodes")
    return tuple(names)


def _split(text: str) -> list[str]:
    """The words between commas that are not inside brackets."""
    return re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text)


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        bounds = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not bounds:
            raise TextError(f"{text[:80]!r} are no numbers of nodes")
        first, last = bounds[1], bounds[2] or bounds[1]
        if int(last) - int(first) > MAX_NODES:
            raise TextError(f"{part!r} are more than {MAX_NODES} nodes")
        yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
