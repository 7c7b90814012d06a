"""The native launcher (real agents, real workers) and the simulated one pass the same contract."""

from __future__ import annotations

import asyncio
import heapq
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bftrainer.api.hub import Hub
from bftrainer.api.server import application, listen
from bftrainer.launch.native import NativeLauncher
from bftrainer.model import Action, Cost, Event, RescaleCosts, TrainerEnded, TrainerSpec
from bftrainer.ports import Message, Pause, Progress
from bftrainer.replay.simulate import SimulatedLauncher
from bftrainer.testing.launcher import TRAINER, LauncherContract

E = TypeVar("E", bound=Event)
NODES = ("a", "b", "c")
SCRIPT = Path(__file__).parent.parent / "integration" / "scripts" / "count.py"


class Simulated:
    """Time passes while somebody waits for an event."""

    def __init__(self) -> None:
        spec = TrainerSpec(
            name="simulated",
            command=(),
            n_min=1,
            n_max=3,
            samples=1000,
            curve=((1, 100.0), (3, 250.0)),
            costs=RescaleCosts(up=Cost(stall_s=0.5, init_s=2.0), down=Cost(stall_s=0.25)),
        )
        self._now, self._heap, self._spec = 0.0, list[tuple[float, int, Event]](), spec
        self._launcher = SimulatedLauncher(self._emit)
        self._launcher.submit(TRAINER, spec, 0.0)

    def _emit(self, event: Event) -> None:
        heapq.heappush(self._heap, (event.time, len(self._heap), event))

    def perform(self, *actions: Action) -> None:
        self._launcher.perform(actions, self._now)

    def next(self, kind: type[E]) -> E:
        while self._heap:
            self._now, _, event = heapq.heappop(self._heap)
            if isinstance(event, TrainerEnded):
                if not self._launcher.over(event):
                    continue
                self._launcher.end(TRAINER, self._now)
            if isinstance(event, kind):
                return event
        raise AssertionError(f"nothing will ever send a {kind.__name__}")

    def samples(self) -> float:
        return self._launcher.runs[TRAINER].samples

    def work(self) -> int:
        assert self._spec.samples is not None
        return self._spec.samples


class Native:
    """A hub and three agent processes, without engine and daemon."""

    def __init__(self, root: Path) -> None:
        self._events: queue.Queue[Event] = queue.Queue()
        self._samples = 0
        self._up = threading.Semaphore(0)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        hub = Hub(up=self._agent_up, down=self._agent_down, said=self._said)
        self._launcher = NativeLauncher(
            hub, self._events.put, self, log_dir=root / "logs", checkpoint_dir=root / "ckpt", grace_s=10.0
        )
        notes = root / "notes"
        notes.mkdir()
        self._spec = TrainerSpec(
            name="native",
            command=("python", str(SCRIPT), str(notes), "0.01"),
            n_min=1,
            n_max=3,
            samples=8_000,
            workdir=str(root),
            checkpoint_every_s=0.5,
        )
        self._launcher.add(TRAINER, self._spec)
        self._runner = self._in_loop(listen(application(Unused(), hub), root / "s"))
        self._agents = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "bftrainer.agent",
                    "--node",
                    n,
                    "--tag",
                    n,
                    "--socket",
                    str(root / "s"),
                ],
                stderr=subprocess.DEVNULL,
            )
            for n in NODES
        ]
        for _ in NODES:
            assert self._up.acquire(timeout=30)

    def _agent_up(self, node: str, tag: str, inventory: list[Message]) -> bool:
        self._launcher.agent_up(node, inventory, set())
        self._up.release()
        return True

    def _agent_down(self, node: str) -> None:
        self._launcher.agent_down(node)

    def _said(self, node: str, message: Message) -> None:
        self._launcher.said(node, message)

    def _in_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def progressed(self, progress: Progress) -> None:
        self._samples = progress.samples

    def pause(self, pause: Pause) -> None:
        pass

    def perform(self, *actions: Action) -> None:
        async def now() -> None:
            for action in actions:
                self._launcher.perform(action)

        self._in_loop(now())

    def next(self, kind: type[E]) -> E:
        deadline = time.monotonic() + 90
        while True:
            event = self._events.get(timeout=deadline - time.monotonic())
            if isinstance(event, kind):
                return event

    def samples(self) -> float:
        return self._samples

    def work(self) -> int:
        assert self._spec.samples is not None
        return self._spec.samples

    def close(self) -> None:
        for agent in self._agents:
            agent.terminate()
        for agent in self._agents:
            agent.wait(10)
        self._in_loop(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)


class Unused:
    """An API service that nobody calls."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


class TestSimulatedLauncher(LauncherContract):
    @pytest.fixture
    def launcher(self) -> Simulated:
        return Simulated()


class TestNativeLauncher(LauncherContract):
    @pytest.fixture
    def launcher(self) -> Iterator[Native]:
        with tempfile.TemporaryDirectory(prefix="bft-") as root:
            native = Native(Path(root))
            yield native
            native.close()
