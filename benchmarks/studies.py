"""Measures a daemon's answers on studies, and its memory, while a large study goes on.

    python -m benchmarks.studies [--trials 1000] [--reports 100] [--seconds 60] [--settle 5]

A daemon without nodes runs in a process of its own, set as `bftrainer daemon` sets it. Its trials are made
up: they report at a fixed rate together, and end after a few reports. Meanwhile another process asks for
everything that a user can ask of studies, over the daemon's socket. The daemon begins with a study of whose
trials four fifths have been made. Beside the times it prints the CPU seconds of each of the daemon's threads,
which another load on the machine does not change much.
"""

from __future__ import annotations

import argparse
import asyncio
import getpass
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from bftrainer.api.client import Client, DaemonError
from bftrainer.cli.daemon_command import in_short_turns
from bftrainer.cli.studies.show import ASKED
from bftrainer.cli.studies.words import WIDTH
from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.daemon import Daemon
from bftrainer.model.events import TrainerEnded
from bftrainer.model.reports import Progress
from bftrainer.search.files.parse import parse
from bftrainer.search.rows import stored_study, stored_trial
from bftrainer.search.trial import RungResult, Study, StudyFile, Trial, TrialStatus
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
MADE = 0.8
"""Share of the trials that have been made when the daemon begins."""
WARM = 195
"""Trials running when measuring begins: Optuna is loaded, and no more trainers may be submitted."""
TICKS_A_SECOND = 100
CPU = "cpu.json"


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
        samples, most = found.spec.samples or 0, REPORTS_OF_A_RUNG
        self._daemon.journal.progressed(
            Progress(
                time=time.time(),
                trainer=trainer,
                generation=0,
                size=1,
                step=said,
                samples=samples * min(said, most) // most,
                epoch=0,
                rate=1.0,
                metrics={"loss": random.random()},
            )
        )
        if said >= most:
            self._daemon.mailbox.emit(TrainerEnded(time=time.time(), trainer=trainer, generation=0))


def seed(folder: Path, trials: int, sampler: str) -> None:
    """Store a study most of whose trials have paused at the first rung."""
    text = STUDY.format(name="large", trials=trials, sampler=sampler)
    source = StudyFile(text=text, file="s.yaml", base="/")
    study = Study.new(1, parse(text, "s.yaml", Path("/")), getpass.getuser(), time.time(), source)
    draw, rung = random.Random(0), study.brackets[0].budgets[0]
    made = [made_trial(number, rung, draw) for number in range(int(MADE * trials))]
    store = SqlStore(Settings(state_dir=folder).database)
    store.studies.keep(stored_study(study), [stored_trial(t) for t in made])
    store.close()


def made_trial(number: int, samples: int, draw: random.Random) -> Trial:
    """A trial that has ended its first rung."""
    at = [samples * (i + 1) // REPORTS_OF_A_RUNG for i in range(REPORTS_OF_A_RUNG)]
    course = tuple((samples, draw.random()) for samples in at)
    return Trial(
        number=number,
        params=(("lr", 10 ** draw.uniform(-4, 0)), ("width", draw.randint(8, 512))),
        status=TrialStatus.PAUSED,
        run=1,
        samples=samples,
        value=course[-1][1],
        results=(RungResult(rung=0, samples=samples, value=course[-1][1]),),
        course=course,
    )


def serve(folder: Path, per_second: float) -> None:
    """Run the daemon, until it is killed."""
    own = Settings(state_dir=folder)
    daemon = Daemon(own, NoNodes(), SqlStore(own.database), WallClock())  # type: ignore[arg-type]

    async def both() -> None:
        tasks = [
            asyncio.create_task(Machine(daemon, per_second).run()),
            asyncio.create_task(tell_cpu(folder)),
        ]
        await daemon.run()
        for task in tasks:
            task.cancel()

    in_short_turns()
    asyncio.run(both())


async def tell_cpu(folder: Path) -> None:
    """Write down again and again how many CPU seconds each thread of this process has used."""
    while True:
        used = {t.name: cpu_s(t.native_id) for t in threading.enumerate() if t.native_id}
        folder.joinpath(CPU + ".new").write_text(json.dumps(used))
        folder.joinpath(CPU + ".new").replace(folder / CPU)
        await asyncio.sleep(0.5)


def cpu_s(thread: int) -> float:
    """The CPU seconds that a thread of this process has used."""
    fields = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND


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
    parser.add_argument("--settle", type=float, default=0.0, help="wait so long (s) after the trials began")
    parser.add_argument("--sampler", default="tpe")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bft-") as text:
        folder = Path(text)
        seed(folder, args.trials, args.sampler)
        daemon = multiprocessing.get_context("spawn").Process(target=serve, args=(folder, args.reports))
        daemon.start()
        client = Client(folder / "daemon.sock")
        try:
            measure(client, args, daemon.pid or 0, folder)
        finally:
            daemon.kill()


def measure(client: Client, args: argparse.Namespace, pid: int, folder: Path) -> None:
    """Ask for everything again and again, and print how long it took."""
    wait_for(lambda: answers(client), 60)
    before = memory_mb(pid)

    def submit(name: str, trials: int) -> None:
        text = STUDY.format(name=name, trials=trials, sampler=args.sampler)
        client.call("POST", "studies", body={"spec": text, "name": "s.yaml", "base": "/"})

    wait_for(lambda: counts(client).get("running", 0) > WARM, 120)
    time.sleep(args.settle)
    small = count()
    newest = ""

    def submit_small() -> None:
        nonlocal newest
        newest = f"small-{next(small)}"
        submit(newest, 2)

    asked: dict[str, Callable[[], object]] = {
        "study submit": submit_small,
        "study cancel": lambda: client.call("POST", f"studies/{newest}/cancel"),
        "study list": lambda: client.call("GET", "studies"),
        "study show": lambda: client.study("large", course=WIDTH, trials=ASKED),
        "status": lambda: client.call("GET", "status"),
        "list": lambda: client.call("GET", "trainers", limit=20),
    }
    took: dict[str, list[float]] = {what: [] for what in asked}
    used = json.loads((folder / CPU).read_text())
    began_at = time.monotonic()
    most = 0.0
    while time.monotonic() < began_at + args.seconds:
        for what, ask in asked.items():
            began = time.perf_counter()
            ask()
            took[what].append(1e3 * (time.perf_counter() - began))
            most = max(most, memory_mb(pid))
        time.sleep(0.05)
    seconds = time.monotonic() - began_at
    print(f"{'':28}{'times':>7}{'median ms':>11}{'p99 ms':>9}{'max ms':>9}")
    for what, times in took.items():
        p99 = statistics.quantiles(times, n=100)[-1]
        print(f"{what:28}{len(times):7}{statistics.median(times):11.1f}{p99:9.1f}{max(times):9.1f}")
    print(f"trials: {counts(client)} of {args.trials:,}")
    print(f"memory of the daemon: {before:.0f} MB at first, {most:.0f} MB at most")
    tell_threads(used, json.loads((folder / CPU).read_text()), seconds, len(took["study show"]))


def tell_threads(before: dict[str, float], after: dict[str, float], seconds: float, rounds: int) -> None:
    """Print what part of a core each thread has used, and for each round of questions."""
    print(f"{'thread':28}{'% of a core':>12}{'ms a round':>12}")
    own = {name: cpu - before.get(name, 0.0) for name, cpu in after.items()}
    for name, cpu in sorted({**own, "all": sum(own.values())}.items(), key=lambda one: -one[1])[:9]:
        print(f"{name:28}{100 * cpu / seconds:12.1f}{1e3 * cpu / rounds:12.2f}")


def answers(client: Client) -> bool:
    """Return whether the daemon answers."""
    try:
        client.call("GET", "status")
    except DaemonError:
        return False
    return True


def counts(client: Client) -> dict[str, int]:
    """Return how many trials of the large study are in which status."""
    found: dict[str, int] = next(s for s in client.call("GET", "studies") if s["name"] == "large")["counts"]
    return found


def wait_for(what: Callable[[], bool], seconds: float) -> None:
    """Wait until `what` is true.

    Raises:
        TimeoutError: it is not after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError("the daemon is not as far as it should be")
        time.sleep(0.1)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
