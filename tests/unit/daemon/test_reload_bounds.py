"""What users may ask of the listeners that are open: SIGHUP changes it, and hits of a bound are counted."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from bftrainer.api.transport import admission
from bftrainer.api.transport.admission import BusyError
from bftrainer.daemon import listeners
from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.daemon import Daemon
from bftrainer.store.sql import SqlStore
from tests.support.no_nodes import NoNodes
from tests.support.nodes_world import settings_in
from tests.support.waiting import until_true


def test_what_one_user_may_ask_changes_while_the_daemon_runs(tmp_path: Path) -> None:
    before = settings_in(tmp_path)
    store = SqlStore(before.database)
    daemon = Daemon(before, NoNodes(), store, WallClock())  # type: ignore[arg-type]

    async def statuses() -> set[int]:
        connector = aiohttp.UnixConnector(str(before.socket))
        async with aiohttp.ClientSession(connector=connector) as http:
            found = set[int]()
            for _ in range(20):
                async with http.get("http://daemon/livez") as answer:
                    found.add(answer.status)
            return found

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            await daemon.listeners.open(stack)
            assert 429 not in await statuses()
            wanted = {
                "max_requests_per_second": 2.0,
                "max_connections": 99,
            }
            refused = daemon.reload(before.model_copy(update=wanted))
            assert refused.keys() == {"max_connections"}, "descriptors are shared out at the start"
            assert 429 in await statuses()
            users, agents = (
                next(own.bounds for own, _ in daemon.listeners._places if own.bounds.total == total)
                for total in (before.max_connections, before.max_agents)
            )
            assert users.per_second == 2.0
            assert (agents.each, agents.per_second) == (before.max_agents, None)
            assert len(daemon.listeners._places) == 2

    asyncio.run(scenario())
    daemon.runner.close()
    store.close()


def test_a_flood_that_ends_is_counted_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = settings_in(tmp_path, max_requests_per_second=1.0)
    store = SqlStore(own.database)
    daemon = Daemon(own, NoNodes(), store, WallClock())  # type: ignore[arg-type]
    monkeypatch.setattr(admission, "TELL_S", 0.1)
    monkeypatch.setattr(listeners, "TELL_S", 0.1)

    def counted() -> float:
        hits = daemon.telemetry.metrics.bound_hits.labels("max_requests_per_second")
        return float(hits._value.get())

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            await daemon.listeners.open(stack)
            telling = asyncio.create_task(daemon.listeners.tell())
            places, _ = daemon.listeners._places[-1]
            refused = 0
            for _ in range(300):
                try:
                    places.enter(("user", 1001)).lost()
                except BusyError:
                    refused += 1
            assert refused > 200 and counted() == 1
            await until_true(lambda: counted() == refused)
            telling.cancel()

    asyncio.run(scenario())
    daemon.runner.close()
    store.close()
