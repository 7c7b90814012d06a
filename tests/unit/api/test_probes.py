"""Whether the daemon is alive, and whether it can do its work."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from bftrainer.api.routes import probes
from bftrainer.daemon.answers.service import DaemonService
from bftrainer.telemetry.telemetry import Telemetry


def service(*, stuck_s: float = 0.0, scheduler: str = "", store: str = "", recovering: bool = False) -> Any:
    telemetry = Telemetry()
    telemetry.condition("store", store)
    telemetry.condition("scheduler", scheduler)
    parts: dict[str, Any] = {field.name: None for field in fields(DaemonService)}
    return DaemonService(
        **{
            **parts,
            "runner": SimpleNamespace(pulse=SimpleNamespace(stuck_s=stuck_s)),
            "recovering": lambda: recovering,
            "telemetry": telemetry,
        }
    )


def asked(of: Any, path: str) -> tuple[int, dict[str, Any]]:
    async def ask() -> tuple[int, dict[str, Any]]:
        app = web.Application()
        app.add_routes(probes(of))
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            port = runner.addresses[0][1]
            async with (
                aiohttp.ClientSession() as client,
                client.get(f"http://127.0.0.1:{port}{path}") as answer,
            ):
                return answer.status, await answer.json()
        finally:
            await runner.cleanup()

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("given", "alive", "reasons"),
    [
        ({}, True, []),
        ({"stuck_s": 29.0}, True, []),
        ({"stuck_s": 41.2}, False, ["one event has been in work for 41 s"]),
        ({"recovering": True}, True, ["recovering: what runs is being taken over"]),
        (
            {"scheduler": "3 polls failed: slow", "store": "disk full"},
            True,
            ["3 polls failed: slow", "disk full"],
        ),
    ],
)
def test_a_degraded_daemon_is_alive_and_not_ready(
    given: dict[str, Any], alive: bool, reasons: list[str]
) -> None:
    of = service(**given)
    assert asked(of, "/healthz")[0] == (200 if alive else 503)
    status, said = asked(of, "/readyz")
    assert status == (503 if reasons else 200)
    assert said == {"state": "not ready" if reasons else "ready", "reasons": reasons, "warnings": []}


def test_what_keeps_the_daemon_from_nothing_is_a_warning() -> None:
    of = service()
    for _ in range(2):
        of.telemetry.happened("agents", "an agent was cut off", "of ann")
    told = {"state": "ready", "reasons": [], "warnings": ["an agent was cut off (2 times)"]}
    assert asked(of, "/readyz") == (200, told), "and names no user"
    of.telemetry.happened("connections", "connections are refused")
    status, said = asked(of, "/readyz")
    assert (status, said["reasons"]) == (503, ["connections are refused"])
