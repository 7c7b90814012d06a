"""The Horovod launcher's record of a trainer. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from bftrainer.launch.job import LaunchedTrainer, WorkerView
from bftrainer.messages.diagnostic import Diagnostic
from bftrainer.messages.ends import HOROVOD_APART, UNTOLD_RANKS
from bftrainer.model.actions import Regroup
from bftrainer.wire.messages.from_agent import Resumed
from bftrainer.wire.phases import Phase

FIXED = {
    "HOROVOD_ELASTIC": "1",
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
}
"""The environment that all workers get."""
IN_HOST = "~"
"""Stands for the colon in the name of a single GPU: Horovod splits names of hosts there. No node's name
has it."""


def host_of(node: str, view: WorkerView) -> str:
    """Horovod's name of a worker: its node, or its GPU, and its start, so that one that comes back is a new
    host."""
    return f"{node.replace(':', IN_HOST)}.{view.generation}"


def node_at(host: str) -> str:
    """The node, or the GPU, that Horovod calls so."""
    return host.rpartition(".")[0].replace(IN_HOST, ":")


@dataclass(slots=True)
class HorovodTrainer(LaunchedTrainer):
    """A trainer as the Horovod launcher knows it."""

    apart: ClassVar[Diagnostic] = HOROVOD_APART
    untold_samples: ClassVar[Diagnostic] = UNTOLD_RANKS

    port: int = 0  # of its driver, once it is there
    pending: Regroup | None = None  # published, but waiting for workers that leave or for the driver
    formed: int = 0  # the generation in which workers were last let go
    ranks: tuple[str, ...] = ()  # its nodes, in the order of their ranks
    hosts: frozenset[str] = frozenset()  # its workers
    asking: set[str] = field(default_factory=set)  # those of its workers that want to be let go again
    broken: bool = False  # a worker was lost since the last step of all
    halting: set[str] = field(default_factory=set)  # nodes whose workers have been told to end
    done: dict[str, WorkerView] = field(default_factory=dict)  # ended with exit code 0 before rank 0 said so
    early: tuple[str, Resumed] | None = None  # what rank 0 said before its driver
    last_step_at: float | None = None
    driver_failure: str = ""  # why there is no driver

    @property
    def has_told(self) -> bool:
        """See `LaunchedTrainer.has_told`."""
        return bool(self.samples or self.formed or self.confirmed)

    @property
    def heard_in(self) -> int:
        """The membership that scripts speak of now; they themselves only know the one they started in."""
        return max(self.formed, self.confirmed)

    def present(self) -> list[str]:
        """The nodes whose workers are those that were let go last, not others started there since."""
        return [n for n in self.ranks if n in self.workers and host_of(n, self.workers[n]) in self.hosts]

    def leads(self) -> bool:
        """True if rank 0 is still in its world."""
        if not self.ranks or self.ranks[0] not in self.present():
            return False
        return host_of(self.ranks[0], self.workers[self.ranks[0]]) not in self.asking

    def follows(self, node: str) -> bool:
        """True if another worker is rank 0, and there to say whether the work is done."""
        return bool(self.ranks) and node != self.ranks[0] and self.leads()

    def has_state(self, nodes: list[str]) -> bool:
        """True if a worker on any of these nodes has trained, and so has the state."""
        return any(self.workers[node].joined for node in nodes)

    def environment(self, node: str, address: str) -> dict[str, str]:
        """Environment of a worker's script; the driver listens at `address` and `port`."""
        return {
            **FIXED,
            "HOROVOD_HOSTNAME": host_of(node, self.workers[node]),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(self.port),
            **dict(self.spec.env),
        }

    def form(self, generation: int, hosts: tuple[str, ...]) -> None:
        """The driver has let these workers go, in the order of ranks."""
        ranks = tuple(map(node_at, hosts))
        there = [node for node in ranks if node in self.workers]
        if ranks == self.ranks and all(self.workers[node].joined for node in there):
            for node in there:  # nothing has changed but the number
                self.workers[node].joined = generation
        self.formed, self.ranks, self.hosts = generation, ranks, frozenset(hosts)
        self.asking.clear()

    def train(self) -> None:
        """All workers of the world have taken a step together, so all have the state."""
        for node in self.present():
            self.workers[node].joined = self.formed
            self.workers[node].phase = Phase.MEMBER
        self.broken = False

    def miss(self, node: str) -> None:
        """A node's worker is gone. Its successor comes with a later membership."""
        self.broken = self.broken or node in self.ranks
        if self.pending is not None:
            others = tuple(member for member in self.pending.members if member != node)
            self.pending = replace(self.pending, members=others)

    def disband(self) -> None:
        """No worker is left, and so no world and no driver."""
        self.port, self.formed, self.ranks, self.early, self.broken = 0, 0, (), None, False
        self.hosts = frozenset()
