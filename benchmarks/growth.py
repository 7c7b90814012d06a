"""Costs of a large store: the daemon's answers, its memory, and the growth of the database.

    python benchmarks/growth.py asked [--ended 100000] [--unfinished 1000] [--events 1000000] [--requests 300]
    python benchmarks/growth.py waiting [--sizes 1000 2000 4000]
    python benchmarks/growth.py day [--hours 24] [--seed 1]

`asked` fills a store, starts a daemon on it (local scheduler, no idle nodes), asks it again and again over
its socket and prints the median and the 99th percentile of each question, the memory and the time of the
start; then the same while old events are deleted. `waiting` asks a daemon for which nothing but that many
trainers wait. `day` runs the engine over a generated log like Summit's, stores its decisions as the daemon
does and prints what that takes.

With --json before them, the last line is one JSON object. To fill a store of a million events takes two
minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pwd
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import sqlalchemy as sa

from bftrainer.engine.state import State, Step
from bftrainer.model.actions import StartWorker
from bftrainer.model.events import Event, NodesChanged
from bftrainer.model.problem import Plan, PlanStatus
from bftrainer.model.reports import Progress
from bftrainer.model.trainer import TrainerSpec, TrainerStatus
from bftrainer.replay.loop import replay
from bftrainer.replay.trainers.launcher import SimulatedLauncher
from bftrainer.replay.workload import Submission
from bftrainer.settings.values import Settings
from bftrainer.store import rows
from bftrainer.store import tables as t
from bftrainer.store.database import open_database
from bftrainer.store.sql import SqlStore
from bftrainer.traces import intervals
from bftrainer.traces.synthetic import generate, profiles

DAY_S = 86_400.0
BATCH = 20_000
REPORT_S = 5.0
"""Seconds between two writes of a trainer's reports."""
START_S = 120.0
WAIT_S = 600.0
SETTLE_S, SETTLE_TRIES = 0.5, 10


# --- a large store -------------------------------------------------------------------------------


def spec(number: int, user: str, least: int = 1) -> TrainerSpec:
    """A spec of ordinary length, with a curve and settings of its own; it needs `least` nodes."""
    return TrainerSpec(
        name=f"trial-{number}",
        command=("python", "train.py", "--lr", f"{1e-4 * (number % 97 + 1):.4g}", "--width", "256"),
        n_min=least,
        n_max=max(16, least),
        samples=50_000_000,
        curve=((1, 900.0), (2, 1700.0), (4, 3100.0), (8, 5600.0), (16, 9000.0)),
        user=user,
        workdir=f"/home/{user}/search",
        env=(("OMP_NUM_THREADS", "4"),),
    )


def fill(path: Path, ended: int, unfinished: int, events: int, days: float, least: int = 1) -> None:
    """Make a database with these trainers and events of the last `days`, as a daemon would have left it; each
    trainer needs `least` nodes."""
    engine = open_database(path)
    now = time.time()
    with engine.begin() as c:
        # a crash while it is filled loses nothing of worth
        c.exec_driver_sql("PRAGMA cache_size=-200000")
        insert(c, t.trainers, trainers(ended, unfinished, now, days, least), ended + unfinished)
        c.execute(t.ended.insert(), [{"user": own_name(), "status": "completed", "count": ended}])
        for table, generated in zip(
            (t.events, t.plans, t.actions), decisions(events, now, days), strict=True
        ):
            insert(c, table, generated, events)
    engine.dispose()


def insert(c: sa.Connection, table: sa.Table, generated: Iterator[dict[str, Any]], count: int) -> None:
    """Insert in batches, and say how far it is."""
    done = 0
    while batch := [row for _, row in zip(range(BATCH), generated, strict=False)]:
        c.execute(table.insert(), batch)
        done += len(batch)
        print(f"{table.name}: {done:,} of {count:,}", end="\r", file=sys.stderr, flush=True)
    print(file=sys.stderr)


def trainers(
    ended: int, unfinished: int, now: float, days: float, least: int = 1
) -> Iterator[dict[str, Any]]:
    """First those that have ended, then those that wait: all of one user, the caller."""
    user = own_name()
    for number in range(ended + unfinished):
        submitted = now - days * DAY_S * (1 - number / (ended + unfinished))
        row = rows.of_new_trainer(spec(number, user, least), submitted)
        if number < ended:
            row |= {
                "status": TrainerStatus.COMPLETED.value,
                "reason": "its work is done",
                "ended_at": min(now, submitted + 3600.0),
                "samples": 50_000_000,
                "step": 390_625,
                "metrics": {"loss": 0.125, "accuracy": 0.9375},
            }
        else:
            row["ended_at"] = None
        yield row


def decisions(events: int, now: float, days: float) -> tuple[Iterator[dict[str, Any]], ...]:
    """The rows of events, of their plans, and of their actions."""
    plan = Plan(
        allocator="knapsack",
        status=PlanStatus.OPTIMAL,
        counts={},
        objective=12_345.678,
        bound=12_345.678,
        allocation={
            number: frozenset({f"node{4 * number + i:04d}" for i in range(4)}) for number in range(10)
        },
        solve_s=0.004,
    )
    change = NodesChanged(time=0.0, joined=frozenset({"node0001", "node0002"}), left=frozenset({"node0003"}))
    start = StartWorker(trainer=1, generation=12, node="node0001")
    event_row, plan_row, action_row = (
        rows.of_event(change, 40),
        rows.of_plan(plan, 0),
        rows.of_action(start, 0),
    )
    step_s = days * DAY_S / max(events, 1)
    ids = range(1, events + 1)
    return (
        ({**event_row, "time": now - days * DAY_S + id_ * step_s} for id_ in ids),
        ({**plan_row, "event": id_} for id_ in ids),
        ({**action_row, "event": id_, "performed_at": now} for id_ in ids),
    )


def own_name() -> str:
    """The user of this process, as the daemon names its own user."""
    return pwd.getpwuid(os.geteuid()).pw_name


# --- a daemon that is asked ----------------------------------------------------------------------


@contextlib.contextmanager
def daemon(root: Path, **settings: object) -> Iterator[tuple[int, dict[str, float]]]:
    """A daemon on the store in `root`, where no node is idle: its pid, and what its start took (s)."""
    log = root / "log.csv"
    log.write_text("idle_start,idle_end,node\n0,0,~anchor\n1000000,1000001,n1\n")
    words = [sys.executable, "-m", "bftrainer", "daemon", "--scheduler", "local", "--state-dir", str(root)]
    words += ["--log", str(log), "--nodes", "1", "--from", "1970-01-01T00:00:00"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("BFTRAINER_")}
    settings = {"max_requests_per_second": 100_000, **settings}  # what asks here asks faster than users may
    environ |= {f"BFTRAINER_{k.upper()}": str(v) for k, v in settings.items()}
    environ |= {"XDG_CONFIG_HOME": str(root), "BFTRAINER_SITE_CONFIG": str(root / "none")}
    began = time.perf_counter()
    with (root / "daemon.log").open("ab") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, env=environ)
    try:
        asyncio.run(ready(root, process))
        yield process.pid, {"wall_s": time.perf_counter() - began, "cpu_s": busy_s(process.pid)}
    finally:
        process.terminate()
        process.wait(WAIT_S)


async def ready(root: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the daemon has recovered."""
    deadline = time.perf_counter() + START_S
    while time.perf_counter() < deadline and process.poll() is None:
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with session(root) as http, http.get("http://bftrainer/readyz") as answer:
                if answer.status == 200:
                    return
        await asyncio.sleep(0.01)
    raise SystemExit(f"the daemon does not come up:\n{(root / 'daemon.log').read_text()[-2000:]}")


@contextlib.asynccontextmanager
async def session(root: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """Connections to the daemon's socket that are kept."""
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=str(root / "daemon.sock"))) as http:
        yield http


Ask = Callable[[aiohttp.ClientSession, int], Awaitable[int]]
"""Asks for the n-th time; returns the bytes of the answer."""


def getting(path: Callable[[int], str]) -> Ask:
    """Questions by GET."""

    async def ask(http: aiohttp.ClientSession, n: int) -> int:
        async with http.get(f"http://bftrainer{path(n)}") as answer:
            answer.raise_for_status()
            return len(await answer.read())

    return ask


async def submitting(http: aiohttp.ClientSession, n: int) -> int:
    """Submit one more trainer."""
    text = json.dumps(
        {"name": f"new-{time.time_ns()}", "command": ["python", "train.py"], "nodes": {"max": 4}}
    )
    body = {"spec": text, "name": "new.yaml", "base": "/nowhere"}
    async with http.post("http://bftrainer/v1/trainers", json=body) as answer:
        answer.raise_for_status()
        return len(await answer.read())


def questions(trainers: int) -> dict[str, Ask]:
    """Return the questions, by the names of their commands."""
    some = random.Random(0)
    return {
        "list": getting(lambda n: "/v1/trainers"),
        "show": getting(lambda n: f"/v1/trainers/trial-{some.randrange(trainers)}"),
        "status": getting(lambda n: "/v1/status"),
        "events": getting(lambda n: "/v1/events"),
        "metrics": getting(lambda n: "/metrics"),
        "submit": submitting,
    }


async def ask(root: Path, pid: int, asked: dict[str, Ask], times: int) -> dict[str, dict[str, float]]:
    """Ask every question `times` times: the median and 99th percentile until the answer is there, and the
    daemon's CPU time (ms), and the size of the last answer (bytes)."""
    found: dict[str, dict[str, float]] = {}
    async with session(root) as http:
        for name, question in asked.items():
            seconds, size, cpu_s = [], 0, busy_s(pid)
            for n in range(times):
                began = time.perf_counter()
                size = await question(http, n)
                seconds.append(time.perf_counter() - began)
            found[name] = {
                "p50_ms": 1e3 * statistics.median(seconds),
                "p99_ms": 1e3 * statistics.quantiles(seconds, n=100, method="inclusive")[98],
                "cpu_ms": 1e3 * (busy_s(pid) - cpu_s) / times,
                "bytes": size,
            }
    return found


def busy_s(pid: int) -> float:
    """The CPU time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def settle(pid: int) -> None:
    """Wait, for some seconds at most, until a daemon that has just started has loaded its solver."""
    for _ in range(SETTLE_TRIES):
        before = busy_s(pid)
        time.sleep(SETTLE_S)
        if busy_s(pid) - before < SETTLE_S / 10:
            return


def memory_mb(pid: int, key: str = "VmHWM") -> float:
    """The most memory that a process has had resident so far, in MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition(f"{key}:")[2].split()[0]) * 1024 / 1e6


def show(title: str, answers: dict[str, dict[str, float]]) -> None:
    """Print a table of what was asked."""
    print(f"\n{title}\n{'':10}{'median ms':>10}{'p99 ms':>10}{'CPU ms':>10}{'answer kB':>11}")
    for name, found in answers.items():
        times = "".join(f"{found[key]:10.1f}" for key in ("p50_ms", "p99_ms", "cpu_ms"))
        print(f"{name:10}{times}{found['bytes'] / 1e3:11.1f}")


def took(start: dict[str, float]) -> str:
    """Return the times of a start, in words."""
    return f"started in {start['wall_s']:.2f} s, {start['cpu_s']:.2f} s of CPU"


def asked(options: argparse.Namespace) -> dict[str, Any]:
    """A large store: questions, then the same while what is old is deleted."""
    with tempfile.TemporaryDirectory(prefix="bft-") as folder:
        root = Path(folder)
        database = root / Settings(state_dir=root).database.name
        if options.filled is None or not options.filled.exists():
            fill(database, options.ended, options.unfinished, options.events, options.days)
            if options.filled is not None:
                shutil.copyfile(database, options.filled)
        else:
            shutil.copyfile(options.filled, database)
        found: dict[str, Any] = {"database_mb": database.stat().st_size / 1e6}
        every = questions(options.ended + options.unfinished)
        with daemon(root) as (pid, start):
            settle(pid)
            found |= {"start": start, "asked": asyncio.run(ask(root, pid, every, options.requests))}
            found["memory_mb"] = memory_mb(pid)
        show(f"asked {options.requests} times each", found["asked"])
        print(f"{took(start)}; at most {found['memory_mb']:.0f} MB resident")
        with daemon(root, keep_events_days=options.days / 2) as (pid, _):
            settle(pid)
            found["while_pruning"] = asyncio.run(ask(root, pid, every, options.requests))
            found["memory_pruning_mb"] = memory_mb(pid)
        left = (
            sa.create_engine(f"sqlite:///{database}")
            .connect()
            .execute(sa.select(sa.func.count()).select_from(t.events))
            .scalar_one()
        )
        found["events_left"] = left
        show("while events are deleted", found["while_pruning"])
        print(
            f"{left:,} of {options.events:,} events left; "
            f"at most {found['memory_pruning_mb']:.0f} MB resident"
        )
    return found


def waiting(options: argparse.Namespace) -> dict[str, Any]:
    """Daemons for which nothing but trainers wait."""
    found: dict[str, Any] = {}
    for size in options.sizes:
        with tempfile.TemporaryDirectory(prefix="bft-") as folder:
            root = Path(folder)
            fill(root / Settings(state_dir=root).database.name, 0, size, 0, 1.0)
            every = questions(size)
            with daemon(root) as (pid, start):
                settle(pid)
                chosen = {name: every[name] for name in ("list", "status", "show", "metrics")}
                answers = asyncio.run(ask(root, pid, chosen, options.requests))
                found[str(size)] = {"start": start, "asked": answers, "memory_mb": memory_mb(pid)}
            show(f"{size:,} wait ({took(start)})", answers)
    return found


# --- growth in a day -----------------------------------------------------------------------------


class Stored:
    """Observes a replay and stores every decision, as the daemon does; counts what trainers would report."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self.running_s = 0.0
        self.events = self.actions = 0
        self._running = 0
        self._now: float | None = None

    def wait(self, until: float, launcher: SimulatedLauncher) -> None:
        """Time passes, in which those that run report."""
        if self._now is not None:
            self.running_s += self._running * (until - self._now)
        self._now = until

    def note(self, event: Event, before: State, step: Step, launcher: SimulatedLauncher) -> None:
        """As `daemon` does with a decision."""
        after = step.state
        changed = [
            trainer for trainer in after.active.values() if before.active.get(trainer.id) is not trainer
        ]
        ids = self._store.record(event, changed, step.plan, step.actions, step.ended, after.pool)
        self._store.performed(ids, event.time)
        self._running = sum(bool(trainer.members) for trainer in after.active.values())
        self.events += 1
        self.actions += len(step.actions)


def day(options: argparse.Namespace) -> dict[str, Any]:
    """The bytes that a day of Summit's events takes, and a day of reports."""
    profile = profiles.SUMMIT
    log = list(generate.generate(profile, profile.nodes, options.hours, options.seed))
    nodes = frozenset(i.node for i in log)
    begin, end = 0.0, options.hours * 3600.0
    changes = intervals.changes(log, nodes, begin, end)
    with tempfile.TemporaryDirectory(prefix="bft-") as folder:
        path = Path(folder) / "bftrainer.db"
        store = SqlStore(path)
        workload = [Submission(begin, spec(n, "alice")) for n in range(options.trainers)]
        for submission in workload:
            store.submit(submission.spec, begin)
        observer = Stored(store)
        before = used(path)
        replay(changes, workload, Settings().engine, begin, end, observer=observer)
        decided = used(path) - before
        reports = 20_000
        report = Progress(
            time=1.7e9,
            trainer=1,
            generation=1234,
            size=12,
            step=123_456,
            samples=12_345_678,
            epoch=3,
            rate=5432.1,
            metrics={"loss": 0.12345678, "accuracy": 0.98765432},
        )
        before = used(path)
        for _ in range(100):
            store.progress([report] * (reports // 100))
        per_report = (used(path) - before) / reports
        store.close()
    days = options.hours / 24
    found = {
        "nodes_events_per_h": len(changes) / options.hours,
        "events_per_day": observer.events / days,
        "actions_per_day": observer.actions / days,
        "bytes_per_event": decided / observer.events,
        "decisions_mb_per_day": decided / days / 1e6,
        "bytes_per_report": per_report,
        "running": observer.running_s / (end - begin),
        "reports_per_day": observer.running_s / REPORT_S / days,
        "reports_mb_per_day": observer.running_s / REPORT_S / days * per_report / 1e6,
    }
    for name, value in found.items():
        print(f"{name:24}{value:12,.1f}")
    return found


def used(path: Path) -> float:
    """The bytes of the database that hold something."""
    with sa.create_engine(f"sqlite:///{path}").connect() as c:
        pages, free, size = (
            c.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("page_count", "freelist_count", "page_size")
        )
    return float((pages - free) * size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    what = parser.add_subparsers(dest="what", required=True)
    one = what.add_parser("asked", help="a large store")
    one.add_argument("--ended", type=int, default=100_000, help="trainers that have ended [100000]")
    one.add_argument("--unfinished", type=int, default=1_000, help="trainers that wait [1000]")
    one.add_argument("--events", type=int, default=1_000_000, help="events [1000000]")
    one.add_argument("--days", type=float, default=20.0, help="over how many days they are spread [20]")
    one.add_argument("--requests", type=int, default=300, help="how often each question is asked [300]")
    one.add_argument("--filled", type=Path, help="keep the filled store in this file, or take it from there")
    one = what.add_parser("waiting", help="more and more trainers that wait")
    one.add_argument("--sizes", type=int, nargs="+", default=[1000, 2000, 4000], help="[1000 2000 4000]")
    one.add_argument("--requests", type=int, default=200, help="how often each question is asked [200]")
    one = what.add_parser("day", help="growth at Summit's event rate")
    one.add_argument("--hours", type=float, default=24.0, help="of the log [24]")
    one.add_argument("--seed", type=int, default=1, help="of the log [1]")
    one.add_argument("--trainers", type=int, default=40, help="that are submitted [40]")
    options = parser.parse_args()
    found = {"asked": asked, "waiting": waiting, "day": day}[options.what](options)
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
