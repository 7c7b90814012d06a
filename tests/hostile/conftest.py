"""A daemon for all attacks of a file: one that survives needs no new daemon for the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.hostile.world import NODES, World


@pytest.fixture(scope="module")
def daemons() -> Iterator[list[World]]:
    """The daemon of this file; empty before the first test, and after one that ended it."""
    found: list[World] = []
    yield found
    for world in found:
        world.close()


@pytest.fixture
def world(daemons: list[World]) -> Iterator[World]:
    """A daemon that runs, with the trainer that behaves on three nodes and a fourth node for attackers."""
    if daemons and not daemons[0].running():
        daemons.pop().close()
    if not daemons:
        daemons.append(World.begin((*NODES, "n4")))
    yield daemons[0]
    if daemons[0].running():
        daemons[0].clear()
