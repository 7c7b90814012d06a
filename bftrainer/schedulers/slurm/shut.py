"""Tells why a node could not be ours even if main jobs left it alone: as Slurm and the settings are. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bftrainer.model.machine import Node, NodeState
from bftrainer.schedulers.slurm.own_jobs import SlurmOwnJobs
from bftrainer.schedulers.slurm.queue.places import NO_GPUS
from bftrainer.schedulers.slurm.rows import NodeRow, SlurmMachine

CLOUD = "CLOUD"
KEPT_UP = "cloud: a pilot would keep it up; see slurm_cloud"
UNREACHED = "agents there cannot reach the daemon at a loopback address: set address"
NOT_PREEMPTED = "nothing preempts jobs of partition "
NOT_UP = " is not up"
NOT_IN = "not in partition "
REMEDIES: Mapping[str, str] = {
    NOT_PREEMPTED: (
        "set slurm_mode: window (--slurm-mode window), which needs no administrator; or have one set up a "
        "partition that main jobs preempt, and name it in slurm_partition (docs/slurm-conf.md)"
    ),
    UNREACHED: "set address to a name of this machine that nodes know, and listen to a port there",
    NOT_UP: "scontrol update PartitionName=... State=UP, or name another in slurm_partition",
    NOT_IN: "name one with nodes in slurm_partition",
    KEPT_UP: "set slurm_cloud: true where pilots may keep them up",
    NO_GPUS: "leave share out, or name a partition whose nodes have GPUs in slurm_partition",
}
"""Remedies by words of a reason."""


class Gate:
    """Looks at nodes for pilots that go to `partition`."""

    def __init__(self, machine: SlurmMachine, partition: str, ours: SlurmOwnJobs) -> None:
        self._partition, self._ours = partition, ours
        self._known = machine.partitions[partition]
        self._above = {n for n, other in machine.partitions.items() if other.tier > self._known.tier}

    def shut(self, row: NodeRow, *, held: bool = False) -> str:
        """Return why a node could not be ours; "" if it could. One `held` by a pilot stays with it."""
        ours, known = self._ours, self._known
        given_up = known.preempted and not self._above.isdisjoint(row.partitions)
        reached = not ours.here or any(is_loopback(host) or host in ours.here for host in row.hosts)
        reasons = (
            (CLOUD in row.flags and not ours.cloud, KEPT_UP),
            (ours.gpus and not row.gpus, NO_GPUS),
            (self._partition not in row.partitions, f"{NOT_IN}{self._partition}"),
            (not held and ours.preempted and not given_up, f"{NOT_PREEMPTED}{self._partition}"),
            (not held and not reached, UNREACHED),
            (not held and not known.up, f"partition {self._partition}{NOT_UP}"),
        )
        return next((reason for holds, reason in reasons if holds), "")

    def told(self, node: Node, row: NodeRow) -> Node:
        """A node with the reason why it could not be ours, if there is one. If nothing else keeps it from us,
        nobody uses it."""
        reason = self.shut(row)
        if not reason:
            return node
        state = NodeState.UNUSED if node.why == reason else node.state
        return replace(node, state=state, shut=remedied(reason))


def remedied(reason: str) -> str:
    """The reason with what is to be done about it."""
    remedy = next((then for words, then in REMEDIES.items() if words in reason), "")
    return f"{reason}; {remedy}" if remedy else reason


def is_loopback(host: str) -> bool:
    """Return whether a host, or a host:port, is a loopback address, which every machine has for itself."""
    return host.startswith("127.") or host.partition(":")[0] == "localhost"
