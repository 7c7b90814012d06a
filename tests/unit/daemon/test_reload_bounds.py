"""SIGHUP changes what users may ask of the listeners that are open."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.daemon import Daemon
from bftrainer.store.sql import SqlStore
from tests.support.no_nodes import NoNodes
from tests.support.nodes_world import settings_in


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
                "max_connections_per_user": 3,
                "request_timeout_s": 7.0,
                "answer_timeout_s": 8.0,
                "max_answers_waiting_mb": 9,
                "max_connections": 99,
            }
            refused = daemon.reload(before.model_copy(update=wanted))
            assert refused.keys() == {"max_connections"}, "descriptors are shared out at the start"
            assert 429 in await statuses()
            users, agents = (
                next(own.bounds for own, _ in daemon.listeners._places if own.bounds.total == total)
                for total in (before.max_connections, before.max_agents)
            )
            assert (users.each, users.timeout_s) == (3, 7.0)
            assert (agents.each, agents.per_second, agents.timeout_s) == (before.max_agents, None, 7.0)
            assert len(daemon.listeners._places) == 2
            answers = daemon.service.answers
            assert (answers._seconds(), answers._most()) == (8.0, 9_000_000)

    asyncio.run(scenario())
    daemon.runner.close()
    store.close()
