"""Cost of a change of membership: our three launchers beside plain torchrun and plain Elastic Horovod.

    python benchmarks/elastic.py                                  # 1 to 4 workers, 10 million parameters
    python benchmarks/elastic.py --only native --repeat 10        # enough pauses for a 99th percentile
    python benchmarks/elastic.py --only native --each 2 --workers 2   # two processes on each of two nodes

All in one run on this machine; the two runtimes by themselves are those of elastic_baselines.py. `pause` is
the longest gap between two steps of a member that stays (so it holds a whole step as well; what members
measure themselves, without it, is printed in lines that begin with #), `first step`
the time from the change to the first step at the new size. `join`: on a node that has just become idle,
where everything has to start; `join, warm`: on a node whose agent is there already.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/ is not installed

import elastic_baselines as baselines
from elastic_baselines import Change, System

from tests.support.site import Site

HERE = Path(__file__).resolve().parent
RESCALE = {"up": {"stall_s": 0.05, "init_s": 0.5}, "down": {"stall_s": 0.05}}
NODES = tuple(f"h{i}" for i in range(4))


class Ours(System):
    """A trainer of bftrainer on a real daemon whose nodes come and go as the benchmark says."""

    nodes: tuple[str, ...] = NODES

    def __init__(self, where: Path, parameters: int, launcher: str, each: int = 1) -> None:
        super().__init__(where, parameters)
        self.name = f"bftrainer {launcher}"
        self._launcher = launcher
        self._site = Site([], poll_s=0.01, t_fwd_s=60)
        self._rivals: list[Path] = []
        self._given: list[str] = []  # the nodes that these took
        self._count = 0
        self._site.at_will(*self.nodes)
        self._site.start()
        self._submit(
            "ours",
            self.command(),
            launcher=launcher,
            nodes={"min": 1, "max": 4, "workers": each},
            curve=[[1, 100], [4, 400]],
            scalability="given",
            workdir=str(HERE),
            env={"BENCHMARK_WHERE": str(where), "OMP_NUM_THREADS": "1"},
        )

    def command(self) -> list[str]:
        """Return the command of each worker."""
        return ["python", f"elastic_worker_{self._launcher}.py", str(self.parameters)]

    def _submit(self, name: str, command: list[str], **more: object) -> None:
        spec = {"name": name, "command": command, "rescale": RESCALE, **more}
        body = {"spec": json.dumps(spec), "name": name, "base": str(self._site.root)}
        self._site.client.call("POST", "trainers", body=body)

    def join(self, host: str) -> None:
        """Make a node idle, so that the trainer gets it."""
        self.hosts.append(host)
        self._site.change(give=[host])

    def kill(self, host: str) -> None:
        """Take a node with everything that runs on it."""
        self.hosts.remove(host)
        self._site.change(take=[host])

    def leave(self, host: str) -> None:
        """A heavier trainer takes one node, whichever the plan gives it."""
        self._count += 1
        over = self._site.root / f"over{self._count}"
        self._rivals.append(over)
        wait = ["sh", "-c", f"until [ -e {over} ]; do sleep 0.02; done"]
        curve = [[1, 1000]]
        self._submit(over.name, wait, nodes={"min": 1, "max": 1}, weight=1000.0, curve=curve)
        size = len(self.hosts) - 1
        self._site.until(lambda: len(self._members()) == size, 60, "a node has left")
        there = self._members()
        self._given += [host for host in self.hosts if host not in there]
        self.hosts = list(there)

    def come_back(self) -> None:
        """The last of those that took a node ends, and gives it back."""
        self._rivals.pop().touch()
        self.hosts.append(self._given.pop())

    def _members(self) -> list[str]:
        members: list[str] = self._site.trainer("ours")["members"]
        return members

    def logs(self) -> Path:
        """The folder of its workers' logs."""
        (folder,) = self._site.trainers.glob("1-ours-*")
        return folder

    def told(self) -> list[tuple[str, float]]:
        """Return the members' own measurements: kind of change, and the seconds that they stood still."""
        pauses = self._site.get("pauses", limit=10_000, trainer="ours")
        return [(p["kind"], p["pause_s"]) for p in pauses if p["kind"] != "restart"]

    def close(self) -> None:
        """Print the members' own figures and end everything."""
        own: dict[str, list[float]] = {}
        for kind, pause_s in self.told():
            own.setdefault(kind, []).append(pause_s)
        for kind, pauses in own.items():
            print(f"# {self.name}: the members' own figures, {kind}: {spread(pauses)} s ({len(pauses)})")
        self._site.close()

    def measure(self, workers: int) -> Iterator[Change]:
        """Yield one change after the other: joins, leaves, joins of warm nodes, and kills."""
        for host in NODES[1:workers]:
            count = len(self.hosts)
            yield baselines.changed(self, "join", count, count + 1, lambda host=host: self.join(host))
        for _ in range(1, workers):
            count = len(self.hosts)
            yield baselines.changed(self, "leave", count, count - 1, lambda: self.leave(""))
        for _ in range(1, workers):
            count = len(self.hosts)
            yield baselines.changed(self, "join, warm", count, count + 1, self.come_back)
        for _ in range(1, workers):
            count, host = len(self.hosts), self.hosts[-1]
            yield baselines.changed(self, "SIGKILL", count, count - 1, lambda host=host: self.kill(host))


def main() -> None:
    """Measure the chosen systems and print a line per change."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ours = ("native", "torchrun", "horovod")
    names = [*ours, *(f"plain-{name}" for name in baselines.SYSTEMS)]
    parser.add_argument("--parameters", type=lambda text: int(float(text)), default=10_000_000)
    parser.add_argument("--workers", type=int, default=4, choices=range(2, 5), help="the largest number")
    parser.add_argument("--each", type=int, default=1, help="processes on each node, of our launchers")
    parser.add_argument("--only", action="append", choices=names, help="measure this one; may be repeated")
    parser.add_argument("--repeat", type=int, default=1, help="go up and down so many times")
    parser.add_argument("--json", action="store_true", help="a line of JSON per change instead of a table")
    options = parser.parse_args()
    changes: list[Change] = []
    if not options.json:
        print(f"{'system':20}{'change':12}{'workers':>9}{'pause s':>10}{'first step s':>14}")
    for name in options.only or names:
        with tempfile.TemporaryDirectory(prefix="elastic-") as where:
            for change in measured(name, Path(where), options):
                print(json.dumps(asdict(change)) if options.json else row(change), flush=True)
                changes.append(change)
            if not options.json:
                baselines.tell(name, Path(where))
    if not options.json:
        print("\n".join(["", *summary(changes)]))
    os._exit(0)  # Horovod's driver has threads that nothing ends


def measured(name: str, where: Path, options: argparse.Namespace) -> Iterator[Change]:
    """Yield the changes of one system, which starts on one node and is closed in the end."""
    if name.startswith("plain-"):
        system: System = baselines.SYSTEMS[name.removeprefix("plain-")](where, options.parameters)
        measure: Callable[[Any, int], Iterator[Change]] = baselines.measure
    else:
        system, measure = Ours(where, options.parameters, name, options.each), Ours.measure
    try:
        system.join(NODES[0])
        baselines.until(system, time.time(), 1)
        for _ in range(options.repeat):
            yield from measure(system, options.workers)
    finally:
        system.close()


def row(change: Change) -> str:
    """Return a change as a line of the table."""
    pause, first = (
        "never" if value is None else f"{value:.3f}" for value in (change.pause_s, change.first_step_s)
    )
    sizes = f"{change.before} -> {change.after}"
    return f"{change.system:20}{change.kind:12}{sizes:>9}{pause:>10}{first:>14}"


def summary(changes: list[Change]) -> Iterator[str]:
    """A line per system and kind: median and largest, and the 99th percentile where there are enough."""
    yield f"{'system':20}{'change':12}{'n':>4}  pause s; first step s: median, max"
    for system, kind in dict.fromkeys((c.system, c.kind) for c in changes):
        own = [c for c in changes if (c.system, c.kind) == (system, kind)]
        pauses = sorted(c.pause_s for c in own if c.pause_s is not None)
        firsts = sorted(c.first_step_s for c in own if c.first_step_s is not None)
        if not pauses:
            yield f"{system:20}{kind:12}{len(own):>4}  never came to a step at the new size"
            continue
        first = f"{statistics.median(firsts):.3f}, {firsts[-1]:.3f}"
        yield f"{system:20}{kind:12}{len(own):>4}  {spread(pauses)}; {first}"


def spread(values: list[float]) -> str:
    """Median, 99th percentile (of few values: the largest) and largest."""
    ordered = sorted(values)
    p99 = ordered[math.ceil(0.99 * len(ordered)) - 1]
    return f"median {statistics.median(ordered):.3f}, p99 {p99:.3f}, max {ordered[-1]:.3f}"


if __name__ == "__main__":
    main()
