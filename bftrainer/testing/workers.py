"""Elastic workers on this machine without daemon, launcher and pilots: the caller says who is a member.

    with Workers(folder) as workers:
        workers.start("a", [sys.executable, "train.py"])
        workers.regroup("a")
        workers.wait("a", "joined")

For tests and benchmarks of `bftrainer.elastic` that time every change themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bftrainer.agent.process import adopt_orphans
from bftrainer.agent.warm import WarmPool
from bftrainer.agent.worker import WorkerProcess

START_S = 240.0
Message = dict[str, Any]


class ForkedWorkers:
    """Workers of one trainer, each on a node of its own, forked from one warm process.

    What they print goes to `folder`/<node>.log. Every message that a worker sends is kept in `said[node]`,
    with the time of its arrival as "at"; its end is a message "exited" with its "code".
    """

    def __init__(self, folder: Path, *, samples: int | None = None, checkpoint_every_s: float = 1e9) -> None:
        self.folder = folder
        self.said: dict[str, list[Message]] = defaultdict(list)
        self.generation = 0
        self._orders = {
            "samples": samples,
            "checkpoint_dir": str(folder / "checkpoints"),
            "checkpoint_every_s": checkpoint_every_s,
        }
        self._members: tuple[str, ...] = ()
        self._workers: dict[str, WorkerProcess] = {}
        self._news = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._warm = WarmPool(str(folder))
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> ForkedWorkers:
        adopt_orphans()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for node in list(self._workers):
            self.kill(node)
        self.until(lambda: not self._workers, 30.0, "all workers have ended")
        self._loop.call_soon_threadsafe(self._warm.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._loop.close()

    # what a test does

    def start(self, node: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start a worker; it says "ready" and waits to be made a member."""
        order = {
            "trainer": 1,
            "generation": self.generation,
            "command": list(command),
            "workdir": str(self.folder),
            "env": dict(env or {}),
            "log": str(self.folder / f"{node}.log"),
            "gated": False,
            "warm": True,
            "worker": self._orders,
        }
        worker = WorkerProcess(
            order,
            node,
            "127.0.0.1",
            self._warm,
            lambda _, message: self._heard(node, message),
            lambda _, code, reason: self._over(node, code),
        )
        self._workers[node] = worker
        self._do(worker.start())

    def regroup(self, *members: str, leaving: Sequence[str] = ()) -> int:
        """Publish the members of the next generation, in the order of their ranks; returns its number."""
        self.generation += 1
        self._members = members
        order = {"generation": self.generation, "members": list(members), "leaving": list(leaving)}
        # in one turn of the loop: a worker drops what others say in a generation that it has not heard of yet
        self._loop.call_soon_threadsafe(self._tell, (*members, *leaving), {"type": "regroup", **order})
        return self.generation

    def kill(self, node: str) -> None:
        """Kill a node's worker (SIGKILL), if it has one."""
        pid = self._workers[node].pid if node in self._workers else None
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait(
        self, node: str, kind: str, seconds: float = 60.0, where: Callable[[Message], bool] = bool
    ) -> Message:
        """Wait for the first message of a kind from `node` for which `where` holds, and return it.

        Raises:
            TimeoutError: it did not come within `seconds`.
        """

        def first() -> Message | None:
            return next((m for m in self.said[node] if m["type"] == kind and where(m)), None)

        self.until(lambda: first() is not None, seconds, f"{node} says {kind}")
        found = first()
        assert found is not None
        return found

    def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for a condition that changes with a message.

        Raises:
            TimeoutError: it does not hold after `seconds`; the text has the ends of all logs.
        """
        with self._news:
            if self._news.wait_for(condition, timeout=seconds):
                return
        logs = [f"--- {p.name}\n{p.read_text()[-3000:]}" for p in sorted(self.folder.glob("*.log"))]
        kinds = {
            node: [m if m["type"] == "broken" else m["type"] for m in said]
            for node, said in self.said.items()
        }
        raise TimeoutError("\n".join([f"not within {seconds:g} s: {what}", str(kinds), *logs]))

    # the part of agents and daemon

    def _heard(self, node: str, message: Message) -> None:
        if message["type"] == "kv":
            if message["generation"] == self.generation:
                self._tell((peer for peer in self._members if peer != node), message)
            return
        with self._news:
            self.said[node].append({**message, "at": time.monotonic()})
            self._news.notify_all()

    def _over(self, node: str, code: int) -> None:
        with self._news:
            self._workers.pop(node, None)
            self.said[node].append({"type": "exited", "code": code, "at": time.monotonic()})
            self._news.notify_all()

    def _tell(self, nodes: Iterable[str], message: Message) -> None:
        """On the loop's thread."""
        for node in nodes:
            worker = self._workers.get(node)
            if worker is not None:
                worker.send(message)

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(START_S)
