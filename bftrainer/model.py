"""The vocabulary of bftrainer as frozen dataclasses: what the pure core reasons about.

Nothing here does I/O or reads a clock. Times are seconds since the Unix epoch, durations are in
seconds and say so in their names (`stall_s`), nodes are known by the name that the scheduler gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

Points = tuple[tuple[int, float], ...]
"""Points of a scalability curve: (nodes, samples/s), nodes ascending and above 0; (0, 0) is implied."""


class NodeState(StrEnum):
    """What the main scheduler says of a node, reduced to what matters to us."""

    IDLE = "idle"  # free, or held by a pilot of ours, and no job can be backfilled on it: ours to use
    BUSY = "busy"  # the main scheduler uses it or has plans for it: hands off


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a node of the pool beyond its name. Everything unknown is left as it is here."""

    node_class: str = ""  # nodes of different classes never serve one trainer together
    group: str = ""  # nodes with the same label are expected to leave together
    until: float | None = None  # when the node is expected to leave, at the latest


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node as a poll saw it, as far as its scheduler tells.

    `until`: when a planned job or a reservation will take it (the hole's expected end). `why` says of a
    node that is not ours what it is instead.
    """

    name: str
    state: NodeState
    until: float | None = None
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    gres: str = ""
    gpus: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """A preemptible one-node job of ours, as the scheduler shows it.

    Tag, node and user make the pilot; the rest is what the scheduler says of it at the moment.
    """

    tag: str  # unique name that we gave it: survives a submission whose answer was lost
    node: str
    user: str = ""  # as whom it runs; empty: as the daemon itself
    job: str = field(default="", compare=False)  # the batch system's name for it
    ends: float | None = field(default=None, compare=False)  # when its time limit strikes, if it runs
    pending: str = field(default="", compare=False)  # why it does not run yet; empty: it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A pending main job that could start at once if `count` of `nodes`, all held by us, were let go."""

    job: str
    nodes: frozenset[str]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The whole machine at one poll.

    `claims` are in the order in which the main scheduler would start the jobs. `pilots` are ours, including
    those whose submission was never confirmed.
    """

    time: float
    nodes: tuple[Node, ...]
    claims: tuple[Claim, ...] = ()
    pilots: tuple[Pilot, ...] = ()

    @property
    def idle(self) -> frozenset[str]:
        return frozenset(node.name for node in self.nodes if node.state is NodeState.IDLE)


class Operation(StrEnum):
    """What the site allows us at the moment."""

    RUNNING = "running"
    PAUSED = "paused"  # no node joins and no pilot is submitted; what runs goes on
    DRAINING = "draining"  # trainers write checkpoints and leave, all pilots go


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one rescale costs: `stall_s` stops every member, `init_s` only the new nodes."""

    stall_s: float = 0.0
    init_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleCosts:
    """Costs per direction. The published model is `stall_s` = R_up or R_dw and `init_s` = 0 (eq. 13)."""

    up: Cost = Cost()
    down: Cost = Cost()


ASSUMED_COSTS = RescaleCosts(up=Cost(stall_s=0.5, init_s=5.0), down=Cost(stall_s=0.5))
"""What a rescale is assumed to cost until one has been measured."""


class Scalability(StrEnum):
    """Whether what is observed of a trainer is learnt from."""

    AUTO = "auto"  # it is; what the spec gives is where the learning begins
    GIVEN = "given"  # it is not: the spec's curves, and its costs if it has them, are believed


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSpec:
    """What a user asks for: one elastic training run (section 3.1 of the paper).

    `samples` is the work to do; None means until the script ends by itself. `curve` and `costs` None
    mean that nothing is known of them beforehand.
    """

    name: str
    command: tuple[str, ...]
    n_min: int
    n_max: int
    launcher: str = "native"
    samples: int | None = None
    curve: Points | None = None
    costs: RescaleCosts | None = None
    scalability: Scalability = Scalability.AUTO
    curves: tuple[tuple[str, Points], ...] = ()  # node class -> its own curve, where it differs
    weight: float = 1.0
    priority: float = 1.0
    user: str = ""  # who submitted it
    workdir: str = "."
    env: tuple[tuple[str, str], ...] = ()
    checkpoint_dir: str = ""
    checkpoint_every_s: float = 5.0
    batch: tuple[tuple[str, int | str], ...] = ()  # instead of the script's: global, or per_node with lr

    @property
    def program(self) -> tuple[str, ...]:
        """What trainers have in common that differ in their options only: the folder, and the command up
        to its first word that is no option."""
        words = self.command[1:]
        named = next((i for i, word in enumerate(words) if not word.startswith("-")), len(words))
        return (self.workdir, *self.command[: named + 2])


@dataclass(frozen=True, slots=True)
class Observed:
    """Repeated measurements of one quantity: how often it was measured, and the latest values in order."""

    count: int = 0
    recent: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What has been measured of a trainer, see `learn`.

    `speeds` has samples/s by node class and nodes; all classes that the spec has no own curve for are one,
    None. The others are what rescales cost, in seconds.
    """

    speeds: tuple[tuple[str | None, int, Observed], ...] = ()
    up_stall_s: Observed = Observed()
    up_init_s: Observed = Observed()
    down_stall_s: Observed = Observed()


class TrainerStatus(StrEnum):
    """Where a trainer is in its life. Only the last three are final."""

    WAITING = "waiting"  # submitted; has no nodes
    STARTING = "starting"  # has nodes, but no worker of it is a member yet
    RUNNING = "running"  # its members train
    COMPLETED = "completed"  # did its work
    CANCELLED = "cancelled"  # its user, or a shutdown for good, ended it
    FAILED = "failed"  # its program failed repeatedly without progress between

    @property
    def final(self) -> bool:
        return self in (TrainerStatus.COMPLETED, TrainerStatus.CANCELLED, TrainerStatus.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """An unfinished trainer inside the engine.

    `nodes` is what the last plan gave it, `members` the published membership in rank order (rank 0
    first, always a survivor where there is one), `started` the generation that started the worker of
    each node, `warm` the nodes whose workers are ready but not yet members. `generation` grows with
    everything that is done to the trainer, `published` is the one in which its current membership was
    published.
    """

    id: int
    spec: TrainerSpec
    submitted_at: float
    generation: int = 0
    published: int = 0
    nodes: frozenset[str] = frozenset()
    members: tuple[str, ...] = ()
    started: Mapping[str, int] = field(default_factory=dict)
    warm: frozenset[str] = frozenset()
    observed: Observations = Observations()
    failures: int = 0
    failed_in: int = 0  # the generation of the last failure: workers started before are part of it
    progress: float = 0.0  # samples at the last failure: a failure after progress starts the count anew

    @property
    def joining(self) -> dict[str, int]:
        """The nodes whose workers are not members yet, with the generation that started them."""
        return {node: generation for node, generation in self.started.items() if node not in self.members}

    @property
    def status(self) -> TrainerStatus:
        if not self.nodes:
            return TrainerStatus.WAITING
        return TrainerStatus.RUNNING if self.members else TrainerStatus.STARTING


Allocation = Mapping[int, frozenset[str]]
"""Trainer id -> the nodes that it has. Nodes of different trainers are disjoint."""


# --- the allocation problem and its answer -------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One trainer as the allocators see it.

    `curve` is the objective metric O_j in its own unit (samples/s for throughput), `current` is C_j:
    the nodes that it holds of those still in the pool. The weight multiplies its whole value.
    `held` says how many of them are in each of the problem's groups (empty: there is but one), `curves`
    has the metric on node classes where it differs; an empty curve: it cannot use the class.
    """

    trainer: int
    n_min: int
    n_max: int
    current: int
    curve: Points
    weight: float = 1.0
    costs: RescaleCosts = RescaleCosts()
    held: tuple[int, ...] = ()
    curves: tuple[tuple[str, Points], ...] = ()

    def curve_on(self, node_class: str) -> Points:
        """The metric on nodes of a class."""
        return next((points for name, points in self.curves if name == node_class), self.curve)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """A side constraint: these trainers may hold at most `n_max` nodes together."""

    trainers: frozenset[int]
    n_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Nodes of the pool that are alike to the allocators, and that leave together if they leave.

    No value is counted past `remaining_s`. `departures` is how often the group is expected to leave
    within T_fwd (0 to 1): a trainer that touches it is charged that many scale-downs, once.
    """

    size: int
    node_class: str = ""
    remaining_s: float = float("inf")
    departures: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Which of `candidates` (in first-come-first-served order) gets how many of `pool_size` nodes?

    `groups` divides the pool where its nodes differ; empty, all nodes are alike. A trainer uses nodes
    of one class only.
    """

    pool_size: int
    t_fwd_s: float
    candidates: tuple[Candidate, ...]
    caps: tuple[Cap, ...] = ()
    groups: tuple[Group, ...] = ()

    @property
    def parts(self) -> tuple[Group, ...]:
        """The groups; all nodes as one where nothing tells them apart."""
        return self.groups or (Group(size=self.pool_size),)

    def held(self, candidate: Candidate) -> tuple[int, ...]:
        """How many nodes of each part a candidate holds."""
        if not self.groups:
            return (candidate.current,)
        return candidate.held or (0,) * len(self.groups)


class PlanStatus(StrEnum):
    """How a plan came about; anything but OPTIMAL is not proven to be the best."""

    OPTIMAL = "optimal"  # proven, within the plan's gap
    FEASIBLE = "feasible"  # the time limit struck; the solver's incumbent was better than the current map
    FALLBACK = "fallback"  # the time limit struck; the current map was kept (section 3.6)
    HEURISTIC = "heuristic"  # a rule without a claim (equal shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An allocator's answer. `bound` is the best that any plan could reach, as far as is known.

    `spread` says how many of a trainer's nodes come from which of the problem's groups, if it has any.
    """

    allocator: str
    status: PlanStatus
    counts: Mapping[int, int]
    objective: float
    bound: float
    note: str = ""
    spread: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    allocation: Allocation = field(default_factory=dict)
    solve_s: float = 0.0

    @property
    def gap(self) -> float:
        """Relative distance between objective and bound; 0 where optimality is proven exactly."""
        return abs(self.bound - self.objective) / max(abs(self.objective), 1e-9)

    @property
    def proven(self) -> bool:
        return self.status is PlanStatus.OPTIMAL


# --- events: what happened -----------------------------------------------------------------------
# Events at one moment are taken in the order of their priority, then in the order of arrival.


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerEnded:
    """A trainer's members report that it is over. Carries the members' generation."""

    priority: ClassVar[int] = 0
    time: float
    trainer: int
    generation: int
    status: TrainerStatus = TrainerStatus.COMPLETED
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost:
    """A worker died though its node is there. `generation` is the one that started or last published it.

    `blame` says whether the program itself failed (an exit code above 0) rather than being killed.
    """

    priority: ClassVar[int] = 1
    time: float
    trainer: int
    node: str
    generation: int
    reason: str = ""
    blame: bool = False
    samples: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesChanged:
    """Nodes left and joined the pool; the leaves are taken first. One poll's changes are one event.

    `vacated` are those of `left` that we give up ourselves: their agents are still there, so that workers
    leave at a step boundary. `facts` says what is known of nodes that join, or has become known of nodes
    that are there.
    """

    priority: ClassVar[int] = 2
    time: float
    left: frozenset[str] = frozenset()
    joined: frozenset[str] = frozenset()
    vacated: frozenset[str] = frozenset()
    reason: str = ""
    facts: Mapping[str, Facts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerCancelled:
    priority: ClassVar[int] = 3
    time: float
    trainer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSubmitted:
    priority: ClassVar[int] = 4
    time: float
    trainer: int
    spec: TrainerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersReady:
    """Workers that `generation` started are up and warm: they can join without anybody waiting."""

    priority: ClassVar[int] = 5
    time: float
    trainer: int
    generation: int
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A trainer's behaviour was measured: its speed on some number of nodes, or what rescaling it costs."""

    priority: ClassVar[int] = 6
    time: float
    trainer: int
    generation: int
    point: tuple[int, float] | None = None
    up: Cost | None = None
    down: Cost | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resync:
    """Members no longer agree on their membership (the daemon died in mid-change): publish it anew."""

    priority: ClassVar[int] = 7
    time: float
    trainer: int
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Take every node from every trainer, with a checkpoint, and give none until `Resume`."""

    priority: ClassVar[int] = 8
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Give nodes to trainers again."""

    priority: ClassVar[int] = 8
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanged:
    """The settings by which is decided have changed: everything is decided anew."""

    priority: ClassVar[int] = 8
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PollFailed:
    """The scheduler could not be asked. The pool stays as it was: a failed poll is no empty pool."""

    priority: ClassVar[int] = 9
    time: float
    reason: str


Event = (
    TrainerEnded
    | WorkerLost
    | NodesChanged
    | TrainerCancelled
    | TrainerSubmitted
    | WorkersReady
    | Measured
    | Resync
    | Drain
    | Resume
    | PolicyChanged
    | PollFailed
)


# --- actions: what is to be done -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorker:
    """Start a worker of a trainer on a node; it reports when it is warm. `attempt` > 0 asks for a delay."""

    trainer: int
    generation: int
    node: str
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Regroup:
    """Publish a membership, in rank order. `leaving` workers leave at the same step boundary.

    No members: checkpoint and stop.
    """

    trainer: int
    generation: int
    members: tuple[str, ...]
    leaving: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWorker:
    """Stop a worker that is not a member (it was starting, or the trainer is over)."""

    trainer: int
    generation: int
    node: str


Action = StartWorker | Regroup | StopWorker


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A trainer's end, for the books."""

    trainer: int
    status: TrainerStatus
    reason: str = ""


# --- settings of the engine ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What a site sets for the decisions (the command line's `Settings` are wider and say more of each).

    None means: `t_fwd_s`, chosen from how long nodes stay; `max_parallel`, every waiting trainer may
    hold nodes (with `nodes_per_trainer`: as many as there are so many nodes for); `ageing_s`, waiting
    makes nobody heavier; `user_max_nodes`, no cap.
    """

    allocator: str = "auto"
    solver: str = "highs"
    objective: str = "throughput"
    t_fwd_s: float | None = 120.0
    max_parallel: int | None = 10
    nodes_per_trainer: float | None = None
    ageing_s: float | None = 86_400.0
    user_max_nodes: int | None = None
    node_classes: Mapping[str, frozenset[str]] = field(default_factory=dict)  # class -> its nodes
    departure_groups: str = "none"
    milp_time_limit_s: float = 2.0
    milp_gap: float = 1e-3
    profile_sizes: int = 0
    max_failures: int = 3
