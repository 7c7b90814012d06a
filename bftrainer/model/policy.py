"""The settings that decisions depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bftrainer.model.gpus import node_of


class DepartureGroups(StrEnum):
    """Nodes expected to leave the pool together, where the scheduler does not say."""

    NONE = "none"
    JOINED = "joined"  # nodes that joined at the same moment
    CABINET = "cabinet"  # nodes whose names differ in the last number only


class Share(StrEnum):
    """Unit that is shared out to trainers."""

    NODE = "node"  # whole nodes
    GPU = "gpu"  # single GPUs, see `model.gpus`: trainers may share a node


class ShareNodes(StrEnum):
    """Whose trainers may share a node, where GPUs are shared out."""

    USERS = "users"  # those of several users
    NO = "no"  # those of one user


class WeightsBy(StrEnum):
    """Weights of trainers, beside those in their specs."""

    SPEC = "spec"  # nothing else
    SERVICE = "service"  # the node-time that they have had
    WORK = "work"  # their rank by the work that they have left


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """A site's settings for the decisions. The daemon's `Settings` are wider and explain each setting.

    None means, for `t_fwd_s`: chosen from how long nodes stay; for `max_parallel`: every waiting trainer may
    hold nodes; for `nodes_per_trainer`: that number is not limited by the pool's size; for `ageing_s`: no
    ageing; for `user_max_nodes`: no cap. With `share: gpu`, what counts nodes counts GPUs instead; whole
    nodes have `gpus_per_node`. With `avoid_interference` no two trainers of several nodes are on one node.
    """

    allocator: str = "auto"
    solver: str = "highs"
    objective: str = "throughput"
    goodput_power: float = 1.0
    weights_by: WeightsBy = WeightsBy.SPEC
    service_threshold_s: float = 14_400.0
    service_decay: float = 0.5
    low_utility: float = 0.0
    high_utility: float = 0.0
    t_fwd_s: float | None = 120.0
    max_parallel: int | None = 10
    nodes_per_trainer: float | None = None
    ageing_s: float | None = 86_400.0
    user_max_nodes: int | None = None
    user_shares: Mapping[str, float] = field(default_factory=dict)  # user, or "others" -> weight
    node_classes: Mapping[str, frozenset[str]] = field(default_factory=dict)  # class -> its nodes
    departure_groups: DepartureGroups = DepartureGroups.NONE
    milp_time_limit_s: float = 2.0
    milp_gap: float = 1e-3
    profile_sizes: int = 0
    max_failures: int = 3
    max_failures_per_h: int = 30
    share: Share = Share.NODE
    gpus_per_node: int = 1
    avoid_interference: bool = True
    share_nodes: ShareNodes = ShareNodes.NO

    def class_of(self, node: str) -> str:
        """The class that the site gives a node; "" for all that it does not name."""
        own = node_of(node)
        return next((name for name, nodes in self.node_classes.items() if own in nodes), "")

    @property
    def unit(self) -> str:
        """The counted unit, in words: nodes or GPUs."""
        return "GPU" if self.share is Share.GPU else "node"
