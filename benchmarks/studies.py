"""How fast a daemon answers on studies, and how much memory it takes, while a large study goes on.

    python benchmarks/studies.py [--trials 1000] [--reports 100] [--seconds 60]

A daemon without nodes runs in a process of its own. Its trials are made up: they report so many times a
second together, and end after a few reports. Meanwhile another process asks for everything that a user can
ask of studies, over the daemon's socket.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bftrainer.api.client import Client, DaemonError
from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.daemon import Daemon
from bftrainer.model.events import TrainerEnded
from bftrainer.model.reports import Progress
from bftrainer.settings.values import Settings
from bftrainer.store.sql import SqlStore
from tests.support.no_nodes import NoNodes

STUDY = """
name: {name}
trainer: {{command: [python, t.py, --lr, "{{lr}}", --width, "{{width}}"], nodes: {{max: 4}}}}
space: {{lr: {{float: [0.0001, 1.0], log: true}}, width: {{int: [8, 512]}}}}
metric: loss
trials: {trials}
budget: 64000
sampler: {sampler}
stopping: {{asha: {{least: 4000, eta: 4}}}}
parallelism: 200
"""
REPORTS_OF_A_RUNG = 25


class Machine:
    """Stands for all nodes and workers: reports, and ends, as fast as it is told."""

    def __init__(self, daemon: Daemon, per_second: float) -> None:
        self._daemon, self._every_s = daemon, 1.0 / per_second
        self._said: dict[int, int] = {}

    async def run(self) -> None:
        """Report for one trainer after the other, for ever."""
        at = time.monotonic()
        while True:
            at += self._every_s
            await asyncio.sleep(max(0.0, at - time.monotonic()))
            runs = self._daemon.studies.runs._runs
            if runs:
                self._report(random.choice(list(runs)))

    def _report(self, trainer: int) -> None:
        found = self._daemon.runner.state.trainer(trainer)
        if found is None:
            return
        said = self._said[trainer] = self._said.get(trainer, 0) + 1
        samples = found.spec.samples or 0
        self._daemon.journal.progressed(
            Progress(
                time=time.time(),
                trainer=trainer,
                generation=0,
                size=1,
                step=said,
                samples=samples * min(said, REPORTS_OF_A_RUNG) // REPORTS_OF_A_RUNG,
                epoch=0,
                rate=1.0,
                metrics={"loss": random.random()},
            )
        )
        if said == REPORTS_OF_A_RUNG:
            self._daemon.mailbox.emit(TrainerEnded(time=time.time(), trainer=trainer, generation=0))


def serve(folder: Path, per_second: float) -> None:
    """Run the daemon, until it is killed."""
    own = Settings(state_dir=folder)
    daemon = Daemon(own, NoNodes(), SqlStore(own.database), WallClock())  # type: ignore[arg-type]

    async def both() -> None:
        machine = asyncio.create_task(Machine(daemon, per_second).run())
        await daemon.run()
        machine.cancel()

    asyncio.run(both())


def memory_mb(pid: int) -> float:
    """The memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1000
    return 0.0


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--reports", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--sampler", default="tpe")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bft-") as text:
        folder = Path(text)
        daemon = multiprocessing.get_context("spawn").Process(target=serve, args=(folder, args.reports))
        daemon.start()
        client = Client(folder / "daemon.sock")
        try:
            measure(client, args, daemon.pid or 0)
        finally:
            daemon.kill()


def measure(client: Client, args: argparse.Namespace, pid: int) -> None:
    """Ask for everything again and again, and print how long it took."""
    deadline = time.monotonic() + 60
    while True:
        try:
            client.call("GET", "status")
            break
        except DaemonError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    before = memory_mb(pid)

    def submit(name: str, trials: int) -> None:
        text = STUDY.format(name=name, trials=trials, sampler=args.sampler)
        client.call("POST", "studies", body={"spec": text, "name": "s.yaml", "base": "/"})

    submit("large", args.trials)
    small = iter(range(10**6))

    def submit_and_cancel() -> None:
        name = f"small-{next(small)}"
        submit(name, 2)
        client.call("POST", f"studies/{name}/cancel")

    asked: dict[str, Callable[[], object]] = {
        "submit and cancel a study": submit_and_cancel,
        "study list": lambda: client.call("GET", "studies"),
        "study show": lambda: client.call("GET", "studies/large"),
        "status": lambda: client.call("GET", "status"),
        "list": lambda: client.call("GET", "trainers", limit=20),
    }
    took: dict[str, list[float]] = {what: [] for what in asked}
    end = time.monotonic() + args.seconds
    most = 0.0
    while time.monotonic() < end:
        for what, ask in asked.items():
            began = time.perf_counter()
            ask()
            took[what].append(1e3 * (time.perf_counter() - began))
            most = max(most, memory_mb(pid))
        time.sleep(0.05)
    found = client.call("GET", "studies/large")
    print(f"{'':28}{'times':>7}{'median ms':>11}{'p99 ms':>9}{'max ms':>9}")
    for what, times in took.items():
        p99 = statistics.quantiles(times, n=100)[-1]
        print(f"{what:28}{len(times):7}{statistics.median(times):11.1f}{p99:9.1f}{max(times):9.1f}")
    ended = sum(count for status, count in found["counts"].items() if status != "running")
    print(f"trials {len(found['table']):,} of {found['trials']:,}, {ended:,} not running: {found['counts']}")
    print(f"memory of the daemon: {before:.0f} MB at first, {most:.0f} MB at most")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
