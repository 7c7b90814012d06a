"""The settings that decisions depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
