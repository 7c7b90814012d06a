"""Keeps the pilots of several users from being on one node at a time, where single GPUs are shared out and
the site wants that (`share_nodes: no`). Pure.

A plan sees to it that trainers of two users never are. A pilot outlives its trainer, though, and takes a
moment to be cleared away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from bftrainer.model.gpus import node_of


def alone(wanted: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """What is `wanted` (GPU -> user), without the GPUs of nodes where pilots of others still are: `there` is
    GPU -> user, too."""
    users = _by_node(there)
    return {gpu: user for gpu, user in wanted.items() if users[node_of(gpu)] <= {user}}


def in_the_way(wanted: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """The GPUs whose pilots `there` no trainer of their users wants, on nodes where another user's is to be;
    with that user."""
    users = _by_node(wanted)
    return {
        gpu: min(others)
        for gpu, user in there.items()
        if wanted.get(gpu) != user and (others := users[node_of(gpu)] - {user})
    }


def _by_node(gpus: Mapping[str, str]) -> defaultdict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for gpu, user in gpus.items():
        found[node_of(gpu)].add(user)
    return found
