"""The environment that torchrun gives a process. Pure."""

from __future__ import annotations

from collections.abc import Sequence

MAX_RESTARTS = 1 << 30
"""There is no limit to a run's restarts: nodes come and go for as long as there is work."""


def environment(
    *, name: str, run: int, group: int, counts: Sequence[int], address: str, port: int
) -> list[dict[str, str]]:
    """What torchrun sets for each process of the node with the number `group`; `counts` says how many
    processes each node runs.

    `address` and `port` are those of the run's store.
    """
    size, first = sum(counts), sum(counts[:group])
    values = {
        "GROUP_RANK": group,
        "WORLD_SIZE": size,
        "GROUP_WORLD_SIZE": len(counts),
        "ROLE_WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": counts[group],
        "ROLE_NAME": "default",
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": run,
        "TORCHELASTIC_MAX_RESTARTS": MAX_RESTARTS,
        "TORCHELASTIC_RUN_ID": name,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    own = [{"RANK": first + i, "ROLE_RANK": first + i, "LOCAL_RANK": i} for i in range(counts[group])]
    return [{variable: str(value) for variable, value in {**values, **ranks}.items()} for ranks in own]
