"""Events that the engine takes. Every event carries its time (s), and the priority of its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bftrainer.model.machine import NodeInfo
from bftrainer.model.trainer import AdaptingBatch, Cost, DeviceUse, TrainerSpec, TrainerStatus

# Events at one moment are taken in the order of their priority, then in the order of arrival.


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerEnded:
    """A trainer has ended, with the members that `generation` published. An end is final: it counts even if
    another membership was published meanwhile, because a node left."""

    priority: ClassVar[int] = 0
    time: float
    trainer: int
    generation: int
    status: TrainerStatus = TrainerStatus.COMPLETED
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost:
    """A worker died although its node is in the pool.

    `generation` is the one that started the worker. `blame` says whether the program itself failed (an exit
    code above 0) rather than being killed; `samples` is how far the trainer had come. `late`: it was killed
    as it kept its node longer than it may without doing what it should.
    """

    priority: ClassVar[int] = 1
    time: float
    trainer: int
    node: str
    generation: int
    reason: str = ""
    blame: bool = False
    samples: float = 0.0
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesChanged:
    """Nodes left and joined the pool; the leaves are taken first. One poll's changes are one event.

    `vacated` are those of `left` that the daemon gives up itself: their agents are still there, so that
    workers leave at a step boundary. `facts` has what is known of nodes that join, and what has become
    known of nodes that are there. `jobs`: main job -> the nodes of `left`, or those that have left a moment
    before, that it has taken, or that are given back for it, as far as that is known.
    """

    priority: ClassVar[int] = 2
    time: float
    left: frozenset[str] = frozenset()
    joined: frozenset[str] = frozenset()
    vacated: frozenset[str] = frozenset()
    reason: str = ""
    facts: Mapping[str, NodeInfo] = field(default_factory=dict)
    jobs: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerCancelled:
    """A user or an admin cancelled a trainer."""

    priority: ClassVar[int] = 3
    time: float
    trainer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSubmitted:
    """A user submitted a trainer. Submitting one twice changes nothing."""

    priority: ClassVar[int] = 4
    time: float
    trainer: int
    spec: TrainerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityChanged:
    """A user or an admin gave a trainer another priority."""

    priority: ClassVar[int] = 4
    time: float
    trainer: int
    to: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersReady:
    """Workers that `generation` started are up and warm: no member waits for them when they join."""

    priority: ClassVar[int] = 5
    time: float
    trainer: int
    generation: int
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measurement of a trainer: its speed, as `point` (nodes, samples/s), or what a rescale up or down
    cost. `use`: how it used its device meanwhile, where it takes turns; `batch`: its batch, if it adapts;
    `left`: the samples that it has left to do, as far as its script says."""

    priority: ClassVar[int] = 6
    time: float
    trainer: int
    generation: int
    point: tuple[int, float] | None = None
    up: Cost | None = None
    down: Cost | None = None
    use: DeviceUse | None = None
    batch: AdaptingBatch | None = None
    left: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
    """Members disagree on their membership, as after the daemon's crash in mid-change: publish it again."""

    priority: ClassVar[int] = 7
    time: float
    trainer: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasted:
    """The members that `generation` published have trained for the spec's `checkpoint_interval_s`: what they
    did is kept, and the trainer may grow again."""

    priority: ClassVar[int] = 7
    time: float
    trainer: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineChanged:
    """The nodes differ from before, idle or not: numbers of nodes by class ("": of none).

    `gpus`: numbers of nodes by class and number of GPUs, without those that have none, or of which the
    scheduler does not say it.
    """

    priority: ClassVar[int] = 8
    time: float
    nodes: Mapping[str, int]
    gpus: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusChanged:
    """These nodes have other numbers of GPUs than was known, by what the scheduler shows (0: none).

    `told`: user -> node -> how many its pilot there has, by its agent; None: what the scheduler shows counts
    again.
    """

    priority: ClassVar[int] = 1  # before the nodes join
    time: float
    nodes: Mapping[str, int] = field(default_factory=dict)
    told: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsersBarred:
    """These users get no pilots for a while, with the reason of each, and those of `nodes` get none there;
    all others do."""

    priority: ClassVar[int] = 8
    time: float
    users: Mapping[str, str]
    nodes: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Take every node from every trainer, with a checkpoint, and give none until `Resume`."""

    priority: ClassVar[int] = 8
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """End a drain: give nodes to trainers again."""

    priority: ClassVar[int] = 8
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanged:
    """The settings that decisions depend on have changed: plan again."""

    priority: ClassVar[int] = 8
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDue:
    """It is time to plan again though nothing has happened: a user may have its turn, or a trainer that gave
    nodes to another user may grow again."""

    priority: ClassVar[int] = 8
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadroomChanged:
    """Main jobs get this share of idle and pilots' nodes now, as the promise to them is at risk, or was
    not for long. It is reported for people: what follows comes as nodes that leave and join."""

    priority: ClassVar[int] = 8
    time: float
    share: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyForecast:
    """A study has been planned again, and its forecast is another one. It is reported for people, beside a
    trainer of the study, so that others do not see it."""

    priority: ClassVar[int] = 8
    time: float
    trainer: int
    study: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PollFailed:
    """The scheduler did not answer. The pool stays as it was: a failed poll is not an empty pool."""

    priority: ClassVar[int] = 9
    time: float
    reason: str


Event = (
    TrainerEnded
    | WorkerLost
    | NodesChanged
    | TrainerCancelled
    | TrainerSubmitted
    | PriorityChanged
    | WorkersReady
    | Measured
    | Resync
    | Lasted
    | Drain
    | Resume
    | MachineChanged
    | GpusChanged
    | UsersBarred
    | PolicyChanged
    | PlanDue
    | HeadroomChanged
    | StudyForecast
    | PollFailed
)

BY_USER: Mapping[str, tuple[str, ...]] = {"GpusChanged": ("told",), "UsersBarred": ("users", "nodes")}
"""Kind of event -> those of its fields that have a part for each user."""


def told_to(user: str, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an event as a user may see them: of those by user its own part, and the reason unless it
    is others' alone."""
    parts = {name: data.get(name, {}) for name in BY_USER.get(kind, ())}
    own: dict[str, Any] = {name: {user: part[user]} if user in part else {} for name, part in parts.items()}
    if any(parts.values()) and not any(own.values()) and "reason" in data:
        own["reason"] = ""
    return {**data, **own}
