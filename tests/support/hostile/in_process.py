"""A daemon in this process, for fuzzing: a thread runs it, and all that goes wrong in it is kept.

Its nodes are in memory; the only agent is `Fuzzed.say`, which speaks over a real connection with a true seal.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.daemon import Daemon
from bftrainer.store.sql import SqlStore
from bftrainer.testing.memory import Machine, MemoryScheduler
from bftrainer.wire.hub import HubLimits
from tests.support.hostile.agent import PosingAgent
from tests.support.nodes_world import settings_in
from tests.support.waiting import until_true

T = TypeVar("T")
NODES = frozenset(f"n{n}" for n in range(300))
"""Many: one whose agent has misbehaved is left alone for a while."""
PLENTY: dict[str, object] = {
    "max_requests_per_second": 10_000,
    "max_submits_per_minute": 100_000,
    "submissions_per_minute": 6000,
    "max_failures": 1000,
    "poll_s": 0.05,
    "warm_pool": False,
    "max_trainers": 1000,
    "max_trainers_per_user": 1000,
    "min_free_mb": 0,
}
STALLED_S = 5.0
WAIT_S = 60.0  # longer than the longest back-off of starts
SPEC = {"command": ["true"], "nodes": {"max": 1}, "weight": 1, "curve": [[1, 100.0]]}


class Wrong(logging.Handler):
    """Keeps the log records that tell of an exception or of an error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR:
            self.found.append(logging.Formatter().format(record))


class Fuzzed:
    """A daemon that runs; `wrong` is what has gone wrong in it since it was looked at."""

    def __init__(self, folder: Path) -> None:
        self._settings = settings_in(folder, **PLENTY)
        self._wrong, self._numbers = Wrong(), itertools.count()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._agent: PosingAgent | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._heard = asyncio.Event()
        self._tag = self._trainer = ""
        self.machine = Machine(set(NODES))

    def start(self) -> None:
        """Run the daemon."""
        logging.getLogger().addHandler(self._wrong)
        self._thread.start()
        self.do(self._start())

    def close(self) -> None:
        """End the daemon."""
        self.do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        logging.getLogger().removeHandler(self._wrong)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the daemon's loop do this, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * WAIT_S)

    def assert_well(self) -> None:
        """Nothing has gone wrong, and the daemon answers and is ready."""
        found, self._wrong.found = self._wrong.found, []
        assert not found, "\n".join(found)
        assert not self._running.done(), self._running
        assert self.ask("GET", "/v1/status")[0] == 200
        status, said = self.ask("GET", "/readyz")
        assert status == 200, said

    async def _start(self) -> None:
        self._loop.set_exception_handler(lambda _, context: self._wrong.found.append(repr(context)))
        own = self._settings
        self._store, ready = SqlStore(own.database), asyncio.Event()
        self.daemon = Daemon(own, MemoryScheduler(self.machine, time.time), self._store, WallClock())
        self.daemon.hub._limits = HubLimits(per_second=10_000)
        take = self.daemon.agents.said

        def said(node: str, message: Any) -> None:
            take(node, message)
            if message.get("type") == "mark":
                self._heard.set()

        self.daemon.agents.said = said  # type: ignore[method-assign]
        self._running = asyncio.create_task(self.daemon.run(ready.set))
        await until_true(lambda: ready.is_set() or self._running.done())
        connector = aiohttp.UnixConnector(path=str(own.socket))
        timeout = aiohttp.ClientTimeout(total=WAIT_S)
        self._http = aiohttp.ClientSession(connector=connector, timeout=timeout)

    async def _close(self) -> None:
        await self._http.close()
        await self._leave()
        self.daemon.stop()
        self._running.cancel()
        await asyncio.wait([self._running])
        self._store.close()

    # users

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
        """Send a request as it is; the status and the body of its answer."""

        async def ask() -> tuple[int, bytes]:
            url = URL(f"http://bftrainer{path}", encoded=True)
            async with self._http.request(method, url, data=body, headers=headers) as answer:
                return answer.status, await answer.read()

        return self.do(ask())

    def submit(self, spec: str, name: str = "spec.yaml") -> tuple[int, bytes]:
        """Submit a spec, and cancel it again if it was taken."""
        body = json.dumps({"spec": spec, "name": name, "base": "/"}).encode()
        status, said = self.ask("POST", "/v1/trainers", body)
        if status == 201:
            self.ask("DELETE", f"/v1/trainers/{json.loads(said)['id']}")
        return status, said

    def submit_study(self, text: str) -> tuple[int, bytes]:
        """Submit a study; look at it and cancel it again if it was taken."""
        body = json.dumps({"spec": text, "name": "study.yaml", "base": "/"}).encode()
        status, said = self.ask("POST", "/v1/studies", body)
        if status == 201:
            path = f"/v1/studies/{json.loads(said)['id']}"
            assert self.ask("GET", path)[0] == 200
            assert self.ask("POST", f"{path}/cancel")[0] == 200
        return status, said

    # agents

    def say(self, messages: Sequence[Any]) -> None:
        """Say this as the agent of a trainer's worker, and wait until the daemon has read it.

        What is said of a worker is said of that worker.
        """
        self.do(self._say(messages))

    async def _say(self, messages: Sequence[Any]) -> None:
        about = await self._worker()
        self._heard.clear()
        assert self._agent is not None
        for message in messages:
            about_it = isinstance(message, dict) and message.get("type") in ("worker", "exited")
            self._agent.say({**message, **about} if about_it else message)
        self._agent.say({"type": "mark"})
        agent = self._agent
        await until_true(lambda: self._heard.is_set() or not agent.connection.connected, WAIT_S)

    async def _cancel(self, trainer: int) -> None:
        """Cancel a trainer, and wait until the engine knows."""
        async with self._http.delete(f"http://bftrainer/v1/trainers/{trainer}") as answer:
            assert answer.status == 200, await answer.text()
        await until_true(lambda: trainer not in self.daemon.runner.state.active, WAIT_S)

    def _is_active(self) -> bool:
        """Whether the engine has taken the last trainer in."""
        return any(t.spec.name == self._trainer for t in self.daemon.runner.state.active.values())

    async def _worker(self) -> dict[str, Any]:
        """Which worker the agent has been told to start; a new trainer and agent where the last is gone."""
        began = time.monotonic()
        deadline = began + WAIT_S
        while time.monotonic() < deadline and not self._wrong.found:
            state = self.daemon.runner.state
            trainer = next((t for t in state.active.values() if t.spec.name == self._trainer), None)
            if trainer is None:
                self._trainer = f"fuzzed-{next(self._numbers)}"
                body = json.dumps(
                    {"spec": json.dumps({**SPEC, "name": self._trainer}), "name": "", "base": "/"}
                )
                async with self._http.post("http://bftrainer/v1/trainers", data=body) as answer:
                    assert answer.status == 201, await answer.text()
                await until_true(self._is_active, WAIT_S)  # else another would be submitted
                continue
            if time.monotonic() > began + STALLED_S:  # what was said has stopped it: that is its user's loss
                began = time.monotonic()
                await self._cancel(trainer.id)
                continue
            held = {h.pilot.tag: node for node, h in self.daemon.pilots.held.items()}
            if self._tag not in held:
                await self._leave()
                if trainer and (node := next(iter(trainer.nodes & set(held.values())), None)):
                    await self._join(node, next(tag for tag, at in held.items() if at == node))
            elif trainer and (started := self._started(trainer.id)):
                return {"trainer": trainer.id, "started": started, "run": 0}
            await asyncio.sleep(0.005)
        raise AssertionError(
            f"no worker to speak for: {self.daemon.pilots.held} {self.daemon.runner.state.active}"
        )

    def _started(self, trainer: int) -> int | None:
        """The last generation that the agent was told to start of a trainer, if it is connected."""
        assert self._agent is not None
        if not self._agent.connection.connected:
            return None
        orders = [o for o in self._agent.heard if o.get("type") == "start" and o.get("trainer") == trainer]
        return int(orders[-1]["generation"]) if orders else None

    async def _join(self, node: str, tag: str) -> None:
        secret = self.daemon.pilots.secret_of(tag)
        self._tag = tag
        self._agent = PosingAgent(self._settings.agents_socket, node, tag, secret, [])
        self._keeping = asyncio.create_task(self._agent.connection.keep(self._agent))

    async def _leave(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
            self._keeping, self._tag = None, ""


@contextmanager
def fuzzed(folder: Path) -> Iterator[Fuzzed]:
    """A daemon that is fuzzed."""
    daemon = Fuzzed(folder)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.close()
