"""With single GPUs shared out, pilots of two users are on one node only where the site allows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.nodes_world import World, run


@pytest.mark.parametrize("share_nodes", ["no", "users"])
def test_a_user_has_a_node_once_the_pilots_of_another_have_left_it(tmp_path: Path, share_nodes: str) -> None:
    async def scenario() -> None:
        world = World(tmp_path, 0, share="gpu", share_nodes=share_nodes, debounce_s=0)
        world.machine.idle = {"n1:0", "n1:1"}
        await world.turn()
        await world.submit("a", n_max=1, user="ann")
        ((first, _),) = world.machine.submitted
        assert first.user == "ann"
        world.cancel(1)
        await world.submit("e", n_max=2, user="eve")
        eves = [pilot.node for pilot, _ in world.machine.submitted if pilot.user == "eve"]
        assert first.tag in world.machine.cancelled, "nobody needs it, and eve is to be there"
        assert first.node in world.workers.gone
        assert not world.workers.called_off, "eve's workers wait for her own pilots"
        assert bool(eves) == (share_nodes == "users"), "else its pilot is still being cleared away"
        await world.turn()
        await world.turn()
        assert world.held() == "n1:0 n1:1"
        assert {pilot.user for pilot in world.machine.pilots} == {"eve"}

    run(scenario)
