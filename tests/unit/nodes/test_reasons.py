"""What keeps nodes out of the pool is asked for all nodes at once."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bftrainer.model.machine import Node, NodeState, Operation
from bftrainer.nodes.lifecycle import Records
from bftrainer.nodes.state import NodesState
from bftrainer.settings.live import LiveSettings
from tests.support.nodes_world import settings_in


def test_refusals_are_collected_once_however_many_nodes_there_are(tmp_path: Path) -> None:
    """To collect them for each node took seconds on a large machine that takes no pilots."""
    asked = list[int]()

    def refused() -> dict[str, str]:
        asked.append(1)
        return {"n3": "no such partition"}

    pilots: Any = SimpleNamespace(quarantine=SimpleNamespace(nodes=refused), records=Records())
    clock: Any = SimpleNamespace(now=lambda: 100.0)
    settings = LiveSettings(settings_in(tmp_path, exclude_nodes="n2", min_hole_s=60.0))
    state = NodesState(settings, clock, lambda event: None, pilots)
    idle = NodeState.IDLE
    state.seen = (
        Node(name="n0", state=NodeState.BUSY, why="allocated"),
        Node(name="n1", state=idle),
        Node(name="n2", state=idle),
        Node(name="n2:1", state=idle),
        Node(name="n3", state=idle),
        Node(name="n4", state=idle, until=130.0),
    )
    wanted = {
        "n0": "allocated",
        "n1": "",
        "n2": "excluded",
        "n2:1": "excluded",
        "n3": "its pilots were refused",
        "n4": "its hole ends soon",
    }
    assert state.reasons() == wanted and len(asked) == 1
    assert state.reasons(details=True)["n3"] == "no pilot for a while: no such partition"
    state.operation = Operation.PAUSED
    assert state.reasons()["n1"] == "paused"
