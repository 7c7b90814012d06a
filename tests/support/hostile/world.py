"""A daemon under attack: with a trainer that behaves, and with main jobs that come and go.

with attacked() as world:
    with world.watched() as watch:
        ...                             # the attack
    watch.assert_unharmed()
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bftrainer.wire import seal
from tests.support.hostile.daemon import JOBS, STARTED, TURNS
from tests.support.processes import read
from tests.support.site import SCRIPTS, Site, always
from tests.support.waiting import LONG_S

NODES = ("n1", "n2", "n3")
GOOD = "good"
"""The trainer that behaves. One without PyTorch: what is tested is the daemon."""
SERVED_S = 1.0
"""A main job gets its nodes within this time of the first poll that shows it."""
MEMORY_MB = 400.0


class World(Site):
    """A `Site` whose nodes are idle but for main jobs."""

    def __init__(self, nodes: tuple[str, ...] = NODES, **settings: object) -> None:
        super().__init__(always(*nodes), **{"warm_pool": False, "vacate_s": 0.5, **settings})
        self.nodes = nodes
        options = self.command[self.command.index("--state-dir") :]
        self.command = [sys.executable, "-m", "tests.support.hostile.daemon", str(self.root), *options]
        (self.root / JOBS).touch()
        self._names = (f"job{number}" for number in itertools.count(1))

    def good(self) -> None:
        """Submit the trainer that behaves, and wait until it trains."""
        self.submit(GOOD, str(SCRIPTS / "steady.py"), n_max=len(self.nodes), priority=10, weight=10)
        self.until(self.samples, LONG_S, "the good trainer trains")

    def samples(self) -> int:
        """What the good trainer has done so far."""
        return int(self.trainer(GOOD)["samples"] or 0)

    def main_job(self, count: int = 1, run_s: float = 0.5) -> str:
        """A job of others arrives that wants nodes; returns its name."""
        name = next(self._names)
        asked = {"job": name, "nodes": self.nodes, "count": count, "run_s": run_s}
        with (self.root / JOBS).open("a") as file:
            file.write(json.dumps(asked | {"arrived": time.monotonic()}) + "\n")
        return name

    def started(self) -> list[dict[str, Any]]:
        """The main jobs that have started, see `main_jobs`."""
        with contextlib.suppress(FileNotFoundError):
            return _lines(self.root / STARTED)
        return []

    def turns(self) -> list[dict[str, Any]]:
        """What was measured of the daemon's event loop, see `turns`."""
        return _lines(self.root / TURNS)

    def log(self) -> str:
        """What the daemon has printed."""
        return (self.root / "daemon.log").read_text(errors="replace")

    def pid(self) -> int:
        """The daemon's process."""
        assert self.daemon is not None
        return self.daemon.pid

    def memory_mb(self, key: str = "VmHWM") -> float:
        """The most memory that the daemon's process has had resident, since `forget_peak`, if called."""
        text = read(self.pid(), "status").decode()
        return int(text.partition(f"{key}:")[2].split()[0]) * 1024 / 1e6

    def forget_peak(self) -> None:
        """Count the daemon's peak memory from now on."""
        Path(f"/proc/{self.pid()}/clear_refs").write_text("5")

    def secret(self, node: str) -> tuple[str, str]:
        """Tag and secret of the pilot on a node, as that pilot's own user can find them out."""
        words = read(self.agent_on(node), "cmdline").decode().split("\0")
        tag = words[words.index("--tag") + 1]
        return tag, seal.of_pilot((self.state / "key").read_bytes(), tag)

    @contextlib.contextmanager
    def watched(self, every_s: float = 1.0) -> Iterator[Watch]:
        """Main jobs come every `every_s` seconds; afterwards, all is counted that came of it."""
        watch = Watch(self, self.pid())
        self.forget_peak()
        watch.began, watch.samples = time.monotonic(), self.samples()
        over = threading.Event()
        coming = threading.Thread(target=_send_jobs, args=(self, watch, over, every_s))
        coming.start()
        try:
            yield watch
        finally:
            over.set()
            coming.join()
            watch.ended = time.monotonic()


def _send_jobs(world: World, watch: Watch, over: threading.Event, every_s: float) -> None:
    chance = random.Random(0)
    while not over.wait(every_s * chance.uniform(0.5, 1.5)):
        watch.jobs.append(world.main_job(count=chance.choice((1, 1, 2))))


@dataclass(slots=True)
class Watch:
    """What happened during an attack."""

    world: World
    pid: int
    began: float = 0.0
    ended: float = 0.0
    samples: int = 0
    """Of the good trainer, before."""
    jobs: list[str] = field(default_factory=list)
    """The main jobs that came."""

    def served(self) -> list[dict[str, Any]]:
        """The jobs of this time that have started."""
        return [job for job in self.world.started() if job["job"] in set(self.jobs)]

    def waits(self, since: str = "seen") -> list[float]:
        """How long each job has waited for its nodes since a poll showed its claim, or since it `arrived`."""
        now = time.monotonic()
        found = {job["job"]: job for job in self.served()}
        waits = [job["started"] - (job[since] or job["started"]) for job in found.values()]
        return waits + [now - self.began for job in self.jobs if job not in found]

    def turns(self) -> list[dict[str, Any]]:
        """The turns of the daemon's loop in this time."""
        return [turn for turn in self.world.turns() if self.began <= turn["at"] <= self.ended]

    def assert_unharmed(self, served_s: float = SERVED_S, memory_mb: float = MEMORY_MB) -> None:
        """The daemon lives and answers, the good trainer has gone on, main jobs got their nodes in time, and
        memory is bounded."""
        world = self.world
        assert world.daemon is not None
        assert world.daemon.poll() is None, f"the daemon has ended\n{world.log()[-8000:]}"
        assert world.pid() == self.pid
        world.until(lambda: len(self.served()) == len(self.jobs), 30, "all main jobs have started")
        assert not self.jobs or max(self.waits()) <= served_s, (self.waits(), self.slowest())
        world.until(lambda: world.samples() > self.samples, 30, "the good trainer goes on")
        assert world.memory_mb() <= memory_mb
        assert world.get("status")["pid"] == self.pid

    def slowest(self, count: int = 5) -> str:
        """The longest turns of the daemon's loop, in words."""
        long = sorted(self.turns(), key=lambda turn: -turn.get("wall_s", 0.0))[:count]
        return "\n".join(json.dumps(turn) for turn in long)


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of JSON that are complete."""
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


@contextlib.contextmanager
def attacked(*nodes: str, **settings: object) -> Iterator[World]:
    """A daemon with the good trainer."""
    world = World(nodes or NODES, **settings)
    try:
        world.start()
        world.good()
        yield world
    finally:
        world.close()
