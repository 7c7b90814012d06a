"""One user's trainers keep within their cap together."""

from __future__ import annotations

import pytest

from bftrainer.model.policy import EngineSettings
from tests.support.engine_world import World


@pytest.mark.parametrize("max_parallel", [10, None])
def test_one_users_trainers_hold_no_more_nodes_together_than_the_cap(max_parallel: int | None) -> None:
    world = World(EngineSettings(max_parallel=max_parallel, user_max_nodes=3))
    world.nodes(joined="abcdefgh")
    world.submit(1, user="ann", rate=5.0, n_max=2)
    world.submit(2, user="ann", rate=5.0)
    world.submit(3, user="ann", n_min=4, rate=50.0)  # needs more than its user may have
    assert len(world.held(1) + world.held(2)) == 3
    world.submit(4, user="bob", n_max=2)
    world.submit(5, user="cid")
    assert [len(world.held(i)) for i in (3, 4, 5)] == [0, 2, 3]
    world.end(1)
    assert len(world.held(2)) == 3
