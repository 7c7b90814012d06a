"""A daemon whose nodes come and go at will: `daemon_at_will.py STATE_DIR ORDERS NODE...`

Each node has GPUS_A_NODE (of the environment) of this machine's GPUs, or simulated ones; with DEVICES_A
node `a` has the simulated ones that it names.
ORDERS is a file to which lines of JSON are appended, each a change of the idle nodes: {"give": [...],
"take": [...]}. A change takes effect within milliseconds, the next one `TICK_S` after it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.daemon import Daemon
from bftrainer.model.events import NodesChanged
from bftrainer.ports import Clock
from bftrainer.schedulers.local.gpus import SIMULATED, gpus_here, shared_out
from bftrainer.schedulers.local.scheduler import LocalScheduler, Playback
from bftrainer.settings.sources import load
from bftrainer.store.sql import SqlStore

TICK_S = 0.02


def changes(orders: Path, clock: Clock) -> Iterator[NodesChanged]:
    """At once what has been ordered up to now; from then on every order, or nothing, a tick from now."""
    idle: frozenset[str] = frozenset()
    with orders.open() as lines:
        for line in lines:
            idle = (idle - set(json.loads(line)["take"])) | set(json.loads(line)["give"])
        yield NodesChanged(time=clock.now(), joined=idle)
        line = ""
        while True:
            line += lines.readline()  # a long one may have come in part
            order = {"give": [], "take": []}
            if line.endswith("\n"):
                order, line = json.loads(line), ""
            yield NodesChanged(
                time=clock.now() + TICK_S, left=frozenset(order["take"]), joined=frozenset(order["give"])
            )


def gpus(nodes: Collection[str]) -> dict[str, dict[str, str]]:
    each = os.environ.get("GPUS_A_NODE")
    alike = shared_out(nodes, int(each), gpus_here(os.environ)) if each else {}
    own = {node: os.environ.get(f"DEVICES_{node.upper()}") for node in nodes}
    return alike | {node: {SIMULATED: devices} for node, devices in own.items() if devices is not None}


def main(state_dir: str, orders: str, *nodes: str) -> None:
    own = load({"state_dir": state_dir})
    own.state_dir.mkdir(parents=True, exist_ok=True)
    clock = WallClock()
    local = LocalScheduler(
        nodes=frozenset(nodes),
        changes=changes(Path(orders), clock),
        playback=Playback(begin=0.0, origin=0.0, speed=1.0),
        agents_at=str(own.agents_socket),
        log_dir=own.state_dir / "logs",
        orphan_s=own.orphan_s,
        clock=clock,
        environ=gpus(nodes),
    )
    daemon = Daemon(own, local, SqlStore(own.database), clock)

    async def serve() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, daemon.stop)
        await daemon.run()

    asyncio.run(serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
