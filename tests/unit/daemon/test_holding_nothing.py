"""A daemon whose scheduler or settings leave it no node."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bftrainer.daemon.answers.service import EVERYBODY
from bftrainer.daemon.daemon import Daemon
from bftrainer.daemon.process.serve import serve
from bftrainer.daemon.systemd import Systemd
from bftrainer.model.machine import Node, NodeState, Pilot, Snapshot
from bftrainer.settings.sources import load
from bftrainer.store.sql import SqlStore
from tests.support.no_nodes import NoNodes
from tests.support.waiting import until_true


def test_a_daemon_that_can_hold_nothing_is_degraded_and_never_says_that_it_is_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    class Shut(NoNodes):
        async def poll(self) -> Snapshot:
            why = "nothing preempts"
            node = Node(name="n1", state=NodeState.UNUSED, why=why, shut=f"{why}; set x")
            return Snapshot(time=0.0, nodes=(node,))

    own = load(
        {"state_dir": tmp_path}, environ={"XDG_CONFIG_HOME": "/nowhere", "BFTRAINER_SITE_CONFIG": "/nowhere"}
    )

    async def story() -> None:
        daemon = Daemon(own, Shut(), store)  # type: ignore[arg-type]
        serving = asyncio.create_task(serve(daemon, lambda: own, Systemd("", 0.0)))
        await until_true(lambda: not daemon.recovery.active)
        await until_true(lambda: bool(daemon.nodes.state.seen))
        told = daemon.service.status(EVERYBODY)
        assert told["state"] == "degraded"
        reasons = daemon.telemetry.troubles.texts(details=False)
        assert reasons == ["no node can be held: nothing preempts; set x"]
        (node,) = json.loads((await daemon.service.pool(EVERYBODY)).body)["nodes"]
        assert (node["state"], node["why"]) == ("unused", "nothing preempts")
        assert (node["phase"], node["since"]) == (None, None), "it is the main scheduler's"
        daemon.pilots.adopt(Pilot(tag="t", node="n1"))
        (node,) = json.loads((await daemon.service.pool(EVERYBODY)).body)["nodes"]
        assert node["phase"] == "starting" and node["since"] == daemon.pilots.records.nodes["n1"].since
        daemon.stop()
        await serving

    store = SqlStore(own.database)
    try:
        asyncio.run(story())
    finally:
        store.close()
    said = [r.__dict__["event"] for r in caplog.records if "event" in r.__dict__]
    assert said[:2] == ["listening", "degraded"] and "ready" not in said
