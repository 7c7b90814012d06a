"""The machine as a batch system shows it: nodes, pilots, and main jobs that could start."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from bftrainer.model.main_jobs import MainJob


class NodeState(StrEnum):
    """The main scheduler's state of a node, reduced to whether bftrainer may use it."""

    IDLE = "idle"  # free, or held by a pilot, and no job can be backfilled on it: usable
    BUSY = "busy"  # the main scheduler uses it or has plans for it: not usable
    UNUSED = "unused"  # nobody uses it, and as scheduler and settings are it is not usable: see `Node.shut`


MOST_DIGITS = 4
"""Digits of a GPU's number, at most."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A place of the pool: a whole node, or one of its GPUs where these are shared out (`share: gpu`).

    Its name is that of its node, or ends in the GPU's number: `n1:2`. The number counts; which device that
    is, the batch system says where a pilot has got it.
    """

    node: str
    gpu: int | None = None

    @staticmethod
    @lru_cache(maxsize=1 << 17)
    def of(name: str) -> Slot:
        """The place of this name. What names no place gives one with another name."""
        node, _, gpu = name.partition(":")
        return Slot(node, int(gpu) if gpu.isdecimal() and len(gpu) <= MOST_DIGITS else None)

    def __str__(self) -> str:
        return self.node if self.gpu is None else f"{self.node}:{self.gpu}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """Facts on a node of the pool beyond its name. The defaults mean that it is not known."""

    node_class: str = ""  # nodes of different classes never serve one trainer together
    group: str = ""  # nodes with the same label are expected to leave together
    until: float | None = None  # when the node is expected to leave, at the latest


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node at one poll, as far as its scheduler tells.

    `until` is when a planned job or a reservation will take it (Unix seconds). `why` says why a busy node is
    not usable. `spare` is the share of its `cpus` that is free where main jobs use the others. `used` is
    the share of it that main jobs use, where pilots may use others; of a single GPU that of its node. `types`
    are those of its GPUs, as far as the scheduler names them. `shut` says why it could not be used even if
    nobody used it, and what to set. `job` and `ends` are those of the main job that has a busy node, see
    `JobOnNode`; "": none, or it is not known.
    """

    name: str
    state: NodeState
    until: float | None = None
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    gres: str = ""
    gpus: int = 0
    types: tuple[str, ...] = ()
    why: str = ""
    cpus: int = 0
    spare: float = 0.0
    used: float = 0.0
    shut: str = ""
    job: str = ""
    ends: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """The daemon's preemptible one-node job, as the scheduler shows it.

    Tag, node and user identify the pilot; the other fields are what the scheduler says of it now.
    """

    tag: str  # unique, given before the submission: it identifies a job whose submission was not answered
    node: str
    user: str = ""  # the user that it runs as; empty: the daemon's own
    job: str = field(default="", compare=False)  # the batch system's name for it
    ends: float | None = field(default=None, compare=False)  # when it reaches its time limit, if it runs
    pending: str = field(default="", compare=False)  # why it does not run yet; empty: it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A pending main job that could start at once if we gave up `count` of `nodes`, all held by our
    pilots."""

    job: str
    nodes: frozenset[str]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """A batch system's own summary: how many of its `nodes` are in use, how many main jobs run, are eligible
    to start, and are blocked, and for how many nodes the eligible ones ask. None: it does not say."""

    running: int
    eligible: int
    blocked: int
    wanted: int
    used: int | None = None
    nodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The whole machine at one poll.

    `claims` are in the order in which the main scheduler would start the jobs. `pilots` are all the daemon's,
    including those whose submission was never confirmed; `clearing` are those that have ended and are not
    cleared away yet, None: the scheduler does not say whose end a node waits for. `asked_s`: for how long the
    scheduler worked for this poll; None: all the time that the poll took. `unseen`: what the poll leaves out,
    why, and what to do; empty: nothing. `main` are main jobs that have started lately, and those that wait
    for nothing but the scheduler and idle or pilots' nodes; `waiting` has all that wait. `totals`: what
    the batch system itself sums up, only for records; None: nothing.
    """

    time: float
    nodes: tuple[Node, ...]
    claims: tuple[Claim, ...] = ()
    pilots: tuple[Pilot, ...] = ()
    clearing: frozenset[Pilot] | None = field(default=None, compare=False)
    asked_s: float | None = field(default=None, compare=False)
    unseen: str = field(default="", compare=False)
    main: tuple[MainJob, ...] = field(default=(), compare=False)
    waiting: frozenset[str] = field(default=frozenset(), compare=False)
    totals: Totals | None = field(default=None, compare=False)

    @property
    def idle(self) -> frozenset[str]:
        """The names of the idle nodes."""
        return frozenset(node.name for node in self.nodes if node.state is NodeState.IDLE)


class Operation(StrEnum):
    """Operation that the site's admins allow."""

    RUNNING = "running"
    PAUSED = "paused"  # no node joins and no pilot is submitted; running trainers go on
    DRAINING = "draining"  # trainers write checkpoints and leave, and all pilots are cancelled
