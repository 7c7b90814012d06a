"""The daemon as a service: what systemd is told, and settings that change while it runs."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from collections.abc import Iterator

import aiohttp
import pytest

from slurm.testbed.ports import free_ports
from tests.support.site import Site, always
from tests.support.waiting import LONG_S


@pytest.fixture
def site() -> Iterator[Site]:
    """A site whose daemon has a settings file and a supervisor, not started yet."""
    site = Site(always("n1"), log_format="logfmt")
    site.command += ["--config", str(site.root / "config.yaml")]
    configure(site, "max_failures: 3\n")
    yield site
    site.close()


@pytest.fixture
def supervisor(site: Site) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
        inbox.bind(str(site.root / "notify"))
        inbox.settimeout(60)
        site.environ |= {"NOTIFY_SOCKET": str(site.root / "notify"), "WATCHDOG_USEC": "1000000"}
        yield inbox


def configure(site: Site, text: str) -> None:
    (site.root / "config.yaml").write_text(text)


def told(inbox: socket.socket, wanted: str) -> str:
    """The next message that begins so."""
    while True:
        message = inbox.recv(4096).decode()
        if message.startswith(wanted):
            return message


def lines(site: Site, event: str) -> list[str]:
    return [line for line in (site.root / "daemon.log").read_text().splitlines() if f"event={event} " in line]


def hang_up(site: Site) -> None:
    assert site.daemon is not None
    site.daemon.send_signal(signal.SIGHUP)


def test_systemd_hears_of_every_state_and_is_pinged(site: Site, supervisor: socket.socket) -> None:
    site.start()
    told(supervisor, "READY=1")
    told(supervisor, "STATUS=1 nodes, 0 of 0 trainers run")
    told(supervisor, "WATCHDOG=1")
    hang_up(site)
    assert "MONOTONIC_USEC=" in told(supervisor, "RELOADING=1")
    told(supervisor, "READY=1")
    site.stop()
    told(supervisor, "STOPPING=1")
    assert site.daemon is not None
    assert site.daemon.returncode == 0


def test_settings_are_read_again_on_sighup(site: Site) -> None:
    site.start()
    configure(site, "max_failures: 7\norphan_s: 61\n")
    hang_up(site)
    site.until(lambda: site.get("status")["settings"]["max_failures"] == 7, LONG_S, "taken over")
    site.until(lambda: lines(site, "setting_refused"), LONG_S, "what is refused is logged")
    assert lines(site, "reloaded") == ["<6>event=reloaded max_failures=7"]
    refused = "<4>event=setting_refused name=orphan_s kept=60 wanted=61 why="
    assert lines(site, "setting_refused")[0].startswith(refused)
    assert site.get("status")["settings"]["orphan_s"] == 60

    configure(site, "max_failures: many\n")
    hang_up(site)
    site.until(lambda: lines(site, "reload_failed"), LONG_S, "said so")
    (line,) = lines(site, "reload_failed")
    assert line.startswith("<3>")
    assert "config.yaml: max_failures: 'many': input should be a valid integer" in line
    assert site.get("status")["settings"]["max_failures"] == 7


@pytest.fixture
def port(site: Site) -> Iterator[int]:
    """Of a daemon that has been started."""
    with free_ports(1) as (port,):
        site.environ["BFTRAINER_METRICS_PORT"] = str(port)
        site.start()
        yield port


def test_probes_and_metrics_are_served_on_the_socket_and_on_a_port(site: Site, port: int) -> None:
    async def ask(path: str, connector: aiohttp.BaseConnector | None) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(f"http://127.0.0.1:{port}{path}") as answer,
        ):
            return answer.status, await answer.text()

    async def ask_both(path: str) -> list[tuple[int, str]]:
        socket_path = str(site.state / "daemon.sock")
        return [await ask(path, None), await ask(path, aiohttp.UnixConnector(path=socket_path))]

    for status, text in asyncio.run(ask_both("/healthz")):
        assert (status, json.loads(text)) == (200, {"state": "alive", "reasons": []})
    for status, text in asyncio.run(ask_both("/readyz")):
        assert (status, json.loads(text)) == (200, {"state": "ready", "reasons": [], "warnings": []})
    # Nodes are counted once a poll has found them, which the daemon does not wait for before it answers.
    counted = 'bftrainer_events_total{kind="nodes_changed"}'
    site.until(lambda: counted in asyncio.run(ask("/metrics", None))[1], LONG_S, "the first nodes")
    for status, text in asyncio.run(ask_both("/metrics")):
        assert status == 200
        assert counted in text
