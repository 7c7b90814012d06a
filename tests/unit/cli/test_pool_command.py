"""What `bftrainer pool --long` shows of nodes' GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from bftrainer.cli import pool_command
from bftrainer.daemon.views import node_view
from bftrainer.model.machine import Node, NodeState


class Client:
    """A daemon with a node that has lost a GPU, and one that has all."""

    def call(self, method: str, path: str) -> dict[str, Any]:
        nodes = [Node(name=name, state=NodeState.BUSY, gpus=n) for name, n in (("n1", 4), ("n2", 3))]
        rows = [node_view(n, idle=False, why="", pilot=None, gpus_had=4) for n in nodes]
        return {"size": 0, "unit": "node", "nodes": rows}


def test_a_node_that_has_lost_gpus_shows_how_many_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_command, "connect", lambda config, state_dir: Client())
    lines = CliRunner().invoke(pool_command.command, ["--long"]).stdout.splitlines()
    assert ["3 (had 4)" in line for line in lines if line.startswith(("n1", "n2"))] == [False, True]
