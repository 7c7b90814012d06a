"""File descriptors: shared out so that connections never take those that the daemon's commands need."""

from __future__ import annotations

import resource
from dataclasses import dataclass

RESERVE = 512
"""Descriptors kept for the scheduler's commands, the store, logs, and trainers' helpers, not connections."""
MANY_AGENTS = 1000
"""Agents of all nodes of most machines."""
METRICS_CONNECTIONS = 16
"""Connections of `metrics_port` at once."""


@dataclass(frozen=True, slots=True)
class DescriptorShare:
    """The connections that users and agents may have at once. `reason`: why these are fewer than the settings
    say; empty if they are not. `is_short`: so few that an admin should know at once."""

    users: int
    agents: int
    reason: str = ""
    is_short: bool = False


def share(users: int, agents: int, available: int) -> DescriptorShare:
    """Share out `available` descriptors between the connections that the settings allow. Users get at most a
    quarter if there are too few: without agents nothing runs."""
    room = max(available - min(RESERVE, available // 2) - METRICS_CONNECTIONS, 4)
    if users + agents <= room:
        return DescriptorShare(users, agents)
    for_users = min(users, max(2, room // 4))
    for_agents = min(agents, room - for_users)
    for_users = min(users, room - for_agents)
    return DescriptorShare(
        for_users,
        for_agents,
        f"the limit of {available} open files leaves room for {for_users} connections of users "
        f"(max_connections: {users}) and {for_agents} of agents (max_agents: {agents}); raise it "
        "(LimitNOFILE)",
        for_users < users or for_agents < min(agents, MANY_AGENTS),
    )


def available(wanted: int) -> int:
    """Raise this process's soft limit of open files to `wanted`, as far as its hard limit allows; return it.

    It is not raised further, as jobs and commands inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in (soft,) or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    aim = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (aim, hard))
    except (OSError, ValueError):  # a sandbox may forbid it
        return soft
    return aim


def of_settings(users: int, agents: int) -> DescriptorShare:
    """The share of this process, after its limit was raised as far as it needs and may."""
    return share(users, agents, available(users + agents + RESERVE + METRICS_CONNECTIONS))
