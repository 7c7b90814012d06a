"""What a batch system shows: nodes, pilots, main jobs that could start."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class NodeState(StrEnum):
    """What the main scheduler says of a node, reduced to what matters to us."""

    IDLE = "idle"  # free, or held by a pilot of ours, and no job can be backfilled on it: ours to use
    BUSY = "busy"  # the main scheduler uses it or has plans for it: hands off


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
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
