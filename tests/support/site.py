"""A daemon of its own for a test: started, killed and restarted as an operator or a fault would."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from bftrainer.api.client import Client, DaemonError
from tests.support.processes import alive, parent, pids, read
from tests.support.waiting import LONG_S, until

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
"""The checkout."""
SCRIPTS = HERE / "scripts"
"""Training scripts that write down what they did."""
DYING_S = 5.0


class Site:
    """`intervals` are (start, end, node) in seconds after the daemon's first start; or see `at_will`."""

    def __init__(self, intervals: list[tuple[float, float, str]], **settings: object) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="bft-"))  # short: sockets have short paths
        self.state = self.root / "state"
        log = self.root / "log.csv"
        nodes = sorted({node for _, _, node in intervals})
        lines = [f"{a},{b},{node}" for a, b, node in sorted(intervals)]
        log.write_text("\n".join(["idle_start,idle_end,node", "0,0,~anchor", *lines]) + "\n")
        self.command = [sys.executable, "-m", "bftrainer", "daemon", "--scheduler", "local"]
        self.command += ["--state-dir", str(self.state)]
        self.command += ["--log", str(log), "--nodes", str(len(nodes)), "--from", "1970-01-01T00:00:00"]
        self.trainers = self.root / "trainers"
        values = {
            "trainer_dir": self.trainers,
            "poll_s": 0.1,
            "reconnect_s": 30,  # on a slow machine agents take longer than by default
            "t_fwd_s": 20,
            "rejoin_s": 0,  # nodes of a log come back when it says so
            "objective": "efficiency",
            **settings,
        }
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith("BFTRAINER_") or "SITE" in k}
        self.environ |= {f"BFTRAINER_{k.upper()}": str(v) for k, v in values.items()}
        self.environ["XDG_CONFIG_HOME"] = str(self.root)  # no user's own settings
        self.client = Client(self.state / "daemon.sock")
        self.folder: Path | None = None  # in which the daemon starts
        self.daemon: subprocess.Popen[bytes] | None = None

    def at_will(self, *nodes: str) -> None:
        """Before the first start: these nodes come and go as `change` says, and none is idle at first."""
        self._orders = self.root / "orders"
        self._orders.touch()
        program = HERE / "daemon_at_will.py"
        self.command = [sys.executable, str(program), str(self.state), str(self._orders), *nodes]

    def change(self, *, give: Collection[str] = (), take: Collection[str] = ()) -> None:
        """Nodes become idle, and others are taken with all that runs there: one change, and at once."""
        with self._orders.open("a") as file:
            file.write(json.dumps({"give": list(give), "take": list(take)}) + "\n")

    def start(self) -> None:
        with (self.root / "daemon.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                self.command, stdout=log, stderr=log, env=self.environ, cwd=self.folder
            )
        self.until(self.answers, LONG_S, "the daemon answers")

    def answers(self) -> bool:
        assert self.daemon is not None
        assert self.daemon.poll() is None, (self.root / "daemon.log").read_text()
        with contextlib.suppress(DaemonError):
            return bool(self.get("status"))
        return False

    def kill_daemon(self) -> None:
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait()

    def stop(self) -> None:
        """As an operator would; what the daemon has told to end gets a moment for it."""
        assert self.daemon is not None
        self.daemon.terminate()
        self.daemon.wait(LONG_S)
        deadline = time.monotonic() + DYING_S
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)

    def close(self) -> None:
        if self.daemon is not None and self.daemon.poll() is None:
            self.kill_daemon()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.root, ignore_errors=True)

    # asking

    def get(self, path: str, **query: object) -> Any:
        return self.client.call("GET", path, **query)

    def submit(
        self, name: str, *words: str, samples: int | None = None, n_min: int = 1, n_max: int = 4, **more: Any
    ) -> None:
        spec = {
            "name": name,
            "command": ["python", *words],
            "nodes": {"min": n_min, "max": n_max},
            "work": {"samples": samples} if samples else "until_exit",
            "curve": [[n_max, 1000.0 * n_max]],
            "scalability": "given",  # sizes follow from the pool alone
            **more,
        }
        body = {"spec": json.dumps(spec), "name": name, "base": str(SCRIPTS)}
        self.client.call("POST", "trainers", body=body)

    def trainer(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"trainers/{name}")
        return found

    def until(
        self, condition: Callable[[], object], seconds: float, what: str, every_s: float | None = None
    ) -> None:
        """Wait for a condition; where it does not come true, the error tells the site's story."""
        until(condition, what, seconds=seconds, every_s=every_s, story=self.story)

    def until_members(self, name: str, *nodes: str, seconds: float = LONG_S) -> None:
        self.until(
            lambda: sorted(self.trainer(name)["members"]) == sorted(nodes) and self._joined(name, len(nodes)),
            seconds,
            f"{name} on {nodes}",
        )

    def _joined(self, name: str, size: int) -> bool:
        """Whether all members have taken part in the last published generation."""
        workers = self.trainer(name)["workers"]
        return sum(phase == "member" for phase in workers.values()) == size

    def until_ended(self, name: str, seconds: float = LONG_S) -> dict[str, Any]:
        self.until(lambda: self.trainer(name)["ended_at"], seconds, f"{name} has ended")
        return self.trainer(name)

    def until_ended_in_memory(self, name: str, seconds: float = LONG_S) -> None:
        """The engine is done with a trainer, whether or not the store knows."""
        self.until(
            lambda: (t := self.trainer(name))["samples"] == t["work"] and not t["workers"],
            seconds,
            f"{name} is done",
        )

    def story(self) -> str:
        """What there is to know when a test fails."""
        parts = [(self.root / "daemon.log").read_text()]
        with contextlib.suppress(DaemonError):
            parts += [str(t) for t in self.get("trainers")]
            parts += [str(e) for e in self.get("events", limit=30)]
            parts += [str(node) for node in self.get("pool")["nodes"]]
        for log in [*self.state.glob("logs/*.log"), *self.trainers.glob("*/*.log")]:
            parts += [f"--- {log.name}", log.read_text()[-2000:]]
        return "\n".join(parts)

    # processes

    def processes(self) -> list[int]:
        """Every process of this site but the daemon: by their words, or workers by their environment."""
        mine = str(self.root).encode()
        return [
            pid
            for pid in pids()
            if mine in read(pid, "cmdline") + read(pid, "environ")
            and (self.daemon is None or pid != self.daemon.pid)
        ]

    def agents(self) -> list[int]:
        return [pid for pid in self.processes() if b"bftrainer.agent" in read(pid, "cmdline")]

    def workers(self) -> list[int]:
        return [
            pid
            for pid in self.processes()
            if b"(bftrainer: trainer " in read(pid, "cmdline") or b"BFTRAINER_WORKER" in read(pid, "environ")
        ]

    def workers_on(self, node: str) -> list[int]:
        """The process that trains on a node, and what it has forked."""
        forked, started = f" on {node}, ".encode(), f'"node": "{node}"'.encode()
        return [
            pid for pid in self.workers() if forked in read(pid, "cmdline") or started in read(pid, "environ")
        ]

    def worker_on(self, node: str) -> int:
        """The process that trains on a node, not what it may have forked just now to run something else.

        What a worker forked belongs to the agent once that worker has ended, and takes a moment to end as
        well: this waits until there is one process.
        """
        return self.trains_on(node, 1)[0]

    def trains_on(self, node: str, count: int) -> list[int]:
        """The `count` processes that train on a node, as `worker_on`, in the order of their starts."""
        found: list[int] = []

        def all_there() -> bool:
            there = set(self.workers_on(node))
            found[:] = sorted(pid for pid in there if alive(pid) and parent(pid) not in {*there, None})
            return len(found) == count

        self.until(all_there, LONG_S, f"{count} processes train on {node}")
        return found

    def warm_on(self, node: str) -> int | None:
        """The process that workers are forked from on a node, if it is there yet."""
        wanted = (b"bftrainer.elastic.programs.warm", f"\0{node} ".encode())
        found = (pid for pid in self.processes() if all(part in read(pid, "cmdline") for part in wanted))
        return next(found, None)

    def agent_on(self, node: str) -> int:
        wanted = f"--node\0{node}\0".encode()
        (pid,) = (pid for pid in self.agents() if wanted in read(pid, "cmdline"))
        return pid


@contextlib.contextmanager
def running(intervals: list[tuple[float, float, str]], *options: str, **settings: object) -> Iterator[Site]:
    """`options` are more of the daemon's."""
    site = Site(intervals, **settings)
    site.command += options
    with _started(site):
        yield site


@contextlib.contextmanager
def running_at_will(*nodes: str, **settings: object) -> Iterator[Site]:
    """Nodes come and go as the test says with `Site.change`; none is idle at first. None is left to main jobs
    either, however often the test takes some: unless it says so with `headroom`."""
    site = Site([], **{"headroom": 0, **settings})
    site.at_will(*nodes)
    with _started(site):
        yield site


@contextlib.contextmanager
def _started(site: Site) -> Iterator[Site]:
    try:
        site.start()
        yield site
    finally:
        site.close()


def always(*nodes: str) -> list[tuple[float, float, str]]:
    """Intervals of nodes that are idle for as long as a test can last."""
    return [(0.0, 1e6, node) for node in nodes]
