"""Costs of the page on a large machine: the first paint in Chromium, updates, memory, the daemon's work.

    python benchmarks/web.py [--nodes 4608] [--trainers 10000] [--turns 5] [--seconds 30] [--profile FILE]

A daemon (local scheduler) shows that many nodes of 6 GPUs; its store has that many trainers that wait. Each
turn opens the page twice in a new headless Chromium with an empty cache: "cold" is the first reader since the
daemon's start, which makes its picture for it, "warm" a later one. The whole picture has the trainers too.

Then nodes come and go, as on Summit or in a storm. The daemon's work is told with a page and without one, by
turns: what the page costs is the difference. Prints a table; with --profile, keeps what Chromium's profiler
saw of the last turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests/ is not installed

import growth

from tests.support.browser import Browser, browser, web
from tests.support.site import Site

GPUS = 6
MOVES = {"as on Summit": (4, 5.0), "in a storm": (32, 1.0)}
"""Nodes that come or go at once, and how often (s). In Summit's published week 2,500 nodes an hour did,
the median change was one of 4 nodes, and there was one in 52 s: so we have as many nodes, in more changes."""
TURNS, SETTLE_S = 3, 3.0
PAINTED = "return document.documentElement.dataset.paintMs"
WHOLE = "return document.documentElement.dataset.wholeMs"


def site(options: argparse.Namespace) -> Site:
    """A daemon that has begun, with all its nodes idle and all trainers in its store."""
    made = Site(
        [],
        max_parallel=1,
        max_trainers=100_000,
        max_trainers_per_user=100_000,
        warm_pool="false",
    )
    made.environ["GPUS_A_NODE"] = str(GPUS)
    made.state.mkdir()
    growth.fill(
        made.state / "bftrainer.db",
        ended=1000,
        unfinished=options.trainers,
        events=1000,
        days=1.0,
        least=10**6,
    )
    made.at_will(*names(options.nodes))
    made.change(give=names(options.nodes))
    begun(made, options)
    return made


def begun(made: Site, options: argparse.Namespace) -> None:
    """Start the daemon; all its nodes are idle."""
    made.start()
    assert made.daemon is not None
    made.until(lambda: made.get("status")["pool"] >= options.nodes, 120, "all are idle")
    growth.settle(made.daemon.pid)


def names(count: int) -> list[str]:
    """Nodes in racks of 18, as on Summit."""
    return [f"r{n // 18:03d}n{n % 18:02d}" for n in range(count)]


def painted(page: Browser, what: str) -> float:
    """Wait for a time that the page notes (ms after it was asked for), and return it."""
    page.until(lambda: page.script(what), "the page is drawn")
    return float(page.script(what))


def opened(url: str, options: argparse.Namespace) -> tuple[float, float]:
    """Open the page in a browser of its own: the times (ms) of its first paint, and of the whole picture."""
    with browser() as page:
        if options.profile:
            for command, given in (("enable", {}), ("setSamplingInterval", {"interval": 500}), ("start", {})):
                page.driver.execute_cdp_cmd(f"Profiler.{command}", given)
        page.open(url)
        found = painted(page, PAINTED), painted(page, WHOLE)
        if options.profile:
            profile = page.driver.execute_cdp_cmd("Profiler.stop", {})["profile"]
            options.profile.write_text(json.dumps(profile))
        return found


def moved(made: Site, options: argparse.Namespace, how: str) -> Iterator[None]:
    """Let nodes come and go for the time in `options`; yield a moment after each change."""
    (count, every_s), every = MOVES[how], names(options.nodes)
    end, turn = time.monotonic() + options.seconds, 0
    while time.monotonic() < end:
        part = every[turn % 8 * count :][:count]
        made.change(**{("take", "give")[turn // 8 % 2]: part})
        turn += 1
        time.sleep(every_s)
        yield
    made.change(give=every[: 8 * count])


def update_ms(page: Browser, seen: set[int]) -> Iterator[float]:
    """Yield the page's time (ms) for the latest change, unless it was seen before."""
    seq, ms = page.script("const d = document.documentElement.dataset; return [d.seq, d.updateMs]")
    if int(seq) not in seen:
        seen.add(int(seq))
        yield float(ms)


def work(made: Site, options: argparse.Namespace, page: Browser, url: str) -> None:
    """Print what the daemon does while nodes move, with a page and without one, by turns."""
    assert made.daemon is not None
    pid, updates, seen = made.daemon.pid, list[float](), set[int]()
    for how in MOVES:
        shares: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(TURNS):
            for there, of in shares.items():
                page.open(url if there else "about:blank")
                if there:
                    painted(page, WHOLE)
                time.sleep(SETTLE_S)
                busy, began = growth.busy_s(pid), time.monotonic()
                for _ in moved(made, options, how):
                    if there:
                        updates += update_ms(page, seen)
                of.append(100 * (growth.busy_s(pid) - busy) / (time.monotonic() - began))
        row(f"the daemon, nodes move {how}", shares[False], "% of a core")
        row("  with a page", shares[True], "% of a core")
        row("  the page's part", [b - a for a, b in zip(*shares.values(), strict=True)], "% of a core")
    row("an update of the page", updates, "ms")


def row(name: str, values: list[float], unit: str) -> None:
    """Print one line: median and extremes."""
    print(f"{name:34}{statistics.median(values):10.1f}{min(values):10.1f}{max(values):10.1f}  {unit}")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (("nodes", 4608), ("trainers", 10_000), ("turns", 5), ("seconds", 30)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--profile", type=Path)
    options = parser.parse_args()
    made = site(options)
    try:
        waiting = made.get("status")["trainers"]["waiting"]
        print(f"{made.get('status')['pool']:,} nodes, {waiting:,} trainers that wait")
        print(f"{'':34}{'median':>10}{'least':>10}{'most':>10}")
        report(made, options)
    finally:
        made.close()


def report(made: Site, options: argparse.Namespace) -> None:
    """Measure, and print the table."""
    assert made.daemon is not None
    times: dict[str, list[Any]] = {"cold": [], "warm": []}
    for turn in range(options.turns):
        if turn:
            made.kill_daemon()
            begun(made, options)
        for found in times.values():
            with web(made.state) as url:
                found.append(opened(url, options))
    for name, found in times.items():
        row(f"first paint, {name}", [first for first, _ in found], "ms")
        row(f"the whole picture, {name}", [whole for _, whole in found], "ms")
    with web(made.state) as url, browser() as page:
        page.open(url)
        painted(page, WHOLE)
        work(made, options, page, url.partition("#")[0])
        page.driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        page.driver.execute_cdp_cmd("Performance.enable", {})
        metrics = page.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        heap = {one["name"]: one["value"] for one in metrics}["JSHeapUsedSize"] / 1e6
        row("memory of the page's objects", [heap], "MB")
        row("memory of bftrainer web", [growth.memory_mb(pid) for pid in web_processes(made)], "MB")


def web_processes(made: Site) -> list[int]:
    """The processes that serve the page of this daemon."""
    from tests.support.processes import pids, read

    wanted = (b"\0web\0", str(made.state).encode())
    return [pid for pid in pids() if all(part in read(pid, "cmdline") for part in wanted)]


if __name__ == "__main__":
    main()
