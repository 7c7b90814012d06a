"""A daemon under attack: with a trainer that behaves, and with main jobs that come and go.

with attacked() as world:
    with world.watched() as watch:
        ...                             # the attack
    watch.assert_unharmed()
"""

from __future__ import annotations

import asyncio
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

import aiohttp

from bftrainer.api.client import DaemonError
from bftrainer.settings.daemon import AGENTS_SOCKET
from bftrainer.wire import seal
from tests.support.hostile.daemon import JOBS, STARTED, TURNS
from tests.support.processes import alive, read
from tests.support.site import ROOT, SCRIPTS, Site, always

NODES = ("n1", "n2", "n3")
GOOD = "good"
"""The trainer that behaves. One without PyTorch: what is tested is the daemon."""
BAD = "bad"
"""The trainer that attacks."""
COMPUTED_S = 1.0
"""So long the daemon's loop computes at most between the first poll that shows a main job and that job's
start: what keeps a main job waiting on any machine, however busy others keep it. benchmarks/loop.py has the
time by the clock."""
POLLS = 40
"""So many polls there are at most until it starts. Pilots are cancelled after `vacate_s`, five times
`poll_s`, the nodes of several jobs at a time are given back one job after the other, and on a machine that
others keep busy it takes some more until the pilots' processes have ended."""
MEMORY_MB = 400.0
SOON_S = 60.0
"""What happens at all happens within this time."""
DYING_S = 10.0
JOB_EVERY_S = 0.5


class World(Site):
    """A `Site` whose nodes are idle but for main jobs."""

    def __init__(self, nodes: tuple[str, ...] = NODES, **settings: object) -> None:
        super().__init__(
            always(*nodes), **{"warm_pool": False, "vacate_s": 0.5, "stop_grace_s": 1, **settings}
        )
        self.nodes, self.socket = nodes, self.state / "daemon.sock"
        options = self.command[self.command.index("--state-dir") :]
        self.command = [sys.executable, "-m", "tests.support.hostile.daemon", str(self.root), *options]
        self.folder = self.root  # users of a daemon of their own may have it write there
        self.environ["PYTHONPATH"] = str(ROOT)
        (self.root / JOBS).touch()
        self._names = (f"job{number}" for number in itertools.count(1))

    @classmethod
    def begin(cls, nodes: tuple[str, ...] = NODES, **settings: object) -> World:
        """One whose daemon runs, with the trainer that behaves."""
        world = cls(nodes, **settings)
        try:
            world.start()
            world.good()
        except BaseException:
            world.close()
            raise
        return world

    def start(self) -> None:
        """Start the daemon. Every user can reach its sockets, as those of a site."""
        super().start()
        for folder in (self.root, self.state):
            folder.chmod(0o711)
        for socket in self.state.glob("*.sock"):
            socket.chmod(0o666)

    @property
    def agents_at(self) -> Path:
        """Where agents connect."""
        return self.state / AGENTS_SOCKET

    def running(self) -> bool:
        """Whether the daemon has not ended."""
        return self.daemon is not None and self.daemon.poll() is None

    def good(self) -> None:
        """Submit the trainer that behaves, if it is not there, and wait until it trains."""
        with contextlib.suppress(DaemonError):
            self.trainer(GOOD)
            self.until(self.samples, SOON_S, "the good trainer trains")
            return
        self.submit(GOOD, str(SCRIPTS / "steady.py"), n_max=len(NODES), priority=2, weight=2)
        self.until(self.samples, SOON_S, "the good trainer trains")

    def samples(self) -> int:
        """What the good trainer has done so far."""
        return int(self.trainer(GOOD)["samples"] or 0)

    def bad(self, kind: str) -> None:
        """Submit the trainer that attacks, see `scripts/hostile.py`, and wait until it has done its worst."""
        (self.root / kind).unlink(missing_ok=True)
        self.submit(BAD, str(SCRIPTS / "hostile.py"), str(self.root), kind, n_max=1, weight=4)
        self.until((self.root / kind).exists, SOON_S, f"the script has done its worst: {kind}")

    def clear(self) -> None:
        """End all trainers but the one that behaves."""
        for trainer in self.get("trainers"):
            if trainer["name"] != GOOD and not trainer["ended_at"]:
                self.client.call("DELETE", f"trainers/{trainer['id']}")

    def cancel(self, name: str) -> None:
        """End a trainer, and wait until it holds no node any more."""
        self.client.call("DELETE", f"trainers/{name}")
        self.until_ended(name)
        self.until(lambda: not self.trainer(name)["members"], SOON_S, f"{name} has left")

    def left_of(self, word: str) -> list[int]:
        """The processes that have this in their words and do not end."""
        deadline = time.monotonic() + DYING_S
        while (found := self._with(word)) and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def _with(self, word: str) -> list[int]:
        return [pid for pid in self.processes() if word.encode() in read(pid, "cmdline") and alive(pid)]

    def node_of(self, name: str) -> str:
        """A node of a trainer whose agent runs."""
        self.until(lambda: self.agents_of(name), SOON_S, f"{name} has a node")
        return self.agents_of(name)[0]

    def agents_of(self, name: str) -> list[str]:
        """The nodes of a trainer on which agents run."""
        words = b"".join(read(pid, "cmdline") for pid in self.agents())
        return [node for node in self.trainer(name)["nodes"] if f"--node\0{node}\0".encode() in words]

    def other(self, name: str) -> None:
        """Submit a trainer that behaves, and wait until it trains on one node."""
        self.submit(name, str(SCRIPTS / "steady.py"), n_max=1, weight=4)
        self.until(lambda: self.trainer(name)["samples"], SOON_S, f"{name} trains")

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

    def ready(self) -> list[str]:
        """Why the daemon is not ready; empty if it is."""
        found: list[str] = json.loads(self.ask("/readyz")[1])["reasons"]
        return found

    def ask(self, path: str) -> tuple[int, str]:
        """Status and text of what the daemon answers."""

        async def ask() -> tuple[int, str]:
            connector = aiohttp.UnixConnector(path=str(self.socket))
            async with (
                aiohttp.ClientSession(connector=connector) as http,
                http.get(f"http://bftrainer{path}") as answer,
            ):
                return answer.status, await answer.text()

        return asyncio.run(ask())

    def answered(self, path: str) -> bool:
        """Whether the daemon answers this now; not if it refuses the request, or the connection."""
        try:
            return self.ask(path)[0] == 200
        except aiohttp.ClientError:
            return False

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
    def watched(self, every_s: float = JOB_EVERY_S) -> Iterator[Watch]:
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

    def until_jobs(self, count: int) -> None:
        """Wait until so many main jobs have come, or the daemon has ended."""
        self.world.until(
            lambda: len(self.jobs) >= count or not self.world.running(), SOON_S, "main jobs have come"
        )

    def turns(self) -> list[dict[str, Any]]:
        """The turns of the daemon's loop in this time."""
        return [turn for turn in self.world.turns() if self.began <= turn["at"] <= self.ended]

    def assert_unharmed(self) -> None:
        """The daemon answers and is as it was, main jobs were served, and the good trainer has gone on."""
        self.assert_served()
        world = self.world
        world.until(lambda: world.samples() > self.samples, SOON_S, "the good trainer goes on")
        assert world.get("status")["pid"] == self.pid
        for path in ("/v1/trainers", "/v1/events", "/v1/pool", "/v1/reports", "/metrics", "/healthz"):
            # the attack may still have all requests and connections of its user, which is that of the test
            world.until(lambda path=path: world.answered(path), SOON_S, f"{path} is answered")

    def assert_served(self) -> None:
        """The daemon lives, main jobs got their nodes before it did much else, and memory is bounded."""
        world = self.world
        assert world.running(), f"the daemon has ended\n{world.log()[-8000:]}"
        assert world.pid() == self.pid
        world.until(lambda: len(self.served()) == len(self.jobs), SOON_S, "all main jobs have started")
        for job in self.served():
            told = f"{job} {self.waits()}\n{self.slowest()}\n{world.log()[-8000:]}"
            assert job["cpu_s"] <= COMPUTED_S and job["polls"] <= POLLS, told
        assert world.memory_mb() <= MEMORY_MB

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
    world = World.begin(nodes or NODES, **settings)
    try:
        yield world
    finally:
        world.close()
