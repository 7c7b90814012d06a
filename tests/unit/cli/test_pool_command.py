"""What `bftrainer pool --long` shows of nodes: their GPUs, and where they are in their life with us."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from click.testing import CliRunner

from bftrainer.cli import pool_command
from bftrainer.cli.shared.figures import brief_moment
from bftrainer.daemon.answers.views.pool import node_view
from bftrainer.model.machine import Node, NodeState
from bftrainer.nodes.lifecycle import NodePhase, NodeRecord


class Client:
    """A daemon with a node that has lost a GPU, and one that has all."""

    def call(self, method: str, path: str) -> dict[str, Any]:
        nodes = [Node(name=name, state=NodeState.BUSY, gpus=n) for name, n in (("n1", 4), ("n2", 3))]
        up = NodeRecord(name="n2", phase=NodePhase.UP, since=1.8e9)
        rows = [
            node_view(n, life, idle=False, why="", pilot=None, gpus_had=4)
            for n, life in zip(nodes, (None, up), strict=True)
        ]
        return {"size": 0, "unit": "node", "nodes": rows}


def test_a_node_that_has_lost_gpus_shows_how_many_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_command, "connect", lambda config, state_dir: Client())
    lines = CliRunner().invoke(pool_command.command, ["--long"]).stdout.splitlines()
    assert ["3 (had 4)" in line for line in lines if line.startswith(("n1", "n2"))] == [False, True]


def test_a_node_shows_its_phase_and_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_command, "connect", lambda config, state_dir: Client())
    shown = CliRunner().invoke(pool_command.command, ["--long"]).stdout
    (n1,), (n2,) = ([line for line in shown.splitlines() if line.startswith(name)] for name in ("n1", "n2"))
    since = brief_moment(1.8e9, time.time())
    assert f"up     {since}" in n2 and " up " not in n1 and since not in n1
    assert "up " not in CliRunner().invoke(pool_command.command, []).stdout
    rows = json.loads(CliRunner().invoke(pool_command.command, ["--json"]).stdout)["nodes"]
    assert [(row["phase"], row["since"]) for row in rows] == [(None, None), ("up", 1.8e9)]


def test_a_node_in_quarantine_has_the_time_of_the_next_try_unless_a_job_has_it() -> None:
    bad = NodeRecord(name="n1", phase=NodePhase.QUARANTINED, since=1.8e9, until=1.8e9 + 20)
    for job, until in (("", 1.8e9 + 20), ("7", 1.9e9)):
        node = Node(name="n1", state=NodeState.BUSY, job=job, ends=1.9e9, until=1.8e9 + 60)
        assert node_view(node, bad, idle=False, why="", pilot=None)["until"] == until
