"""The environment that torchrun gives a process. Pure."""

from __future__ import annotations

MAX_RESTARTS = 1 << 30
"""There is no limit to a run's restarts: nodes come and go for as long as there is work."""


def environment(*, name: str, run: int, rank: int, size: int, address: str, port: int) -> dict[str, str]:
    """What torchrun sets for rank `rank` of `size`, with one process per node.

    `address` and `port` are those of the run's store.
    """
    values = {
        "RANK": rank,
        "GROUP_RANK": rank,
        "ROLE_RANK": rank,
        "WORLD_SIZE": size,
        "GROUP_WORLD_SIZE": size,
        "ROLE_WORLD_SIZE": size,
        "LOCAL_RANK": 0,
        "LOCAL_WORLD_SIZE": 1,
        "ROLE_NAME": "default",
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": run,
        "TORCHELASTIC_MAX_RESTARTS": MAX_RESTARTS,
        "TORCHELASTIC_RUN_ID": name,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    return {variable: str(value) for variable, value in values.items()}
