"""Does the daemon's event loop ever wait? What its turns take, and when main jobs get nodes, under attack.

    python benchmarks/loop.py [--seconds 60] [--only locked flood] [--again 1] [--list]

Each condition starts a daemon (local scheduler, three or four idle nodes) with a trainer that behaves, has
main jobs claim nodes again and again, and does what its name says meanwhile. Of the daemon's loop it measures
every turn: its length by the wall clock, without the time in which another process had the core (`own`), and
the CPU time in it. Of a main job it measures how long it waits for its nodes, since it came and since a poll
first showed it. Memory is the most that the daemon's process alone has had resident meanwhile.

With --json the last line is one JSON object. `full` mounts a small file system, and `doors` has
several users, which only root can do. To
fill the store of `events` takes two minutes, once, if --filled names a file to keep it in.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests/ is not installed

from loop_conditions import CONDITIONS, Condition, Options
from loop_measure import Figures, measured

HEAD = (
    f"{'condition':12}{'turns':>9}{'p99 ms':>8}{'max ms':>8}{'own ms':>8}{'CPU ms':>8}{'>50':>5}"
    f"{'jobs':>6}{'seen s':>14}{'came s':>14}{'MB':>6}  readyz"
)


def row(name: str, found: Figures) -> str:
    """One line of the table."""
    readiness = "; ".join(found.reasons) or "ready"
    return (
        f"{name:12}{found.turns:9}{1e3 * found.p99_s:8.1f}{1e3 * found.longest_s:8.0f}"
        f"{1e3 * found.longest_own_s:8.0f}{1e3 * found.longest_cpu_s:8.0f}{found.over:5}"
        f"{found.jobs:6}{found.seen_s[0]:7.2f}{found.seen_s[1]:7.2f}{found.came_s[0]:7.2f}{found.came_s[1]:7.2f}"
        f"{found.memory_mb:6.0f}  {readiness[:200]}"
    )


def run(name: str, condition: Condition, options: Options) -> Figures | None:
    """Measure one condition; None where it cannot be had here."""
    if condition.root and os.geteuid():
        print(f"{name:12} left out: only root can")
        return None
    found = measured(condition, options)
    print(row(name, found), flush=True)
    if own := found.submitted_s:
        taken = sorted(took for took in own if took >= 0)
        print(
            f"{'':12}  another user submitted {len(own)} times: {len(own) - len(taken)} refused, median "
            f"{statistics.median(taken or [0.0]):.2f} s, longest {max(taken, default=0.0):.2f} s"
        )
    for slow in found.slowest[: options.slowest]:
        print(f"{'':12}  {slow}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each condition [60]")
    parser.add_argument("--only", nargs="+", choices=sorted(CONDITIONS), help="only these conditions")
    parser.add_argument("--again", type=int, default=1, help="how often to take each [1]")
    parser.add_argument("--trainers", type=int, default=10_000, help="that wait, in `trainers` [10000]")
    parser.add_argument("--events", type=int, default=1_000_000, help="stored, in `events` [1000000]")
    parser.add_argument(
        "--filled", type=Path, help="keep the filled store in this file, or take it from there"
    )
    parser.add_argument("--slowest", type=int, default=3, help="long turns to explain [3]")
    parser.add_argument("--list", action="store_true", help="say what the conditions are")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    given = parser.parse_args()
    if given.list:
        for name, condition in CONDITIONS.items():
            print(f"{name:12}{condition.says}")
        return
    options = Options(given.seconds, given.trainers, given.events, given.filled, given.slowest)
    found: dict[str, list[dict[str, Any]]] = {}
    print(HEAD)
    for name in given.only or CONDITIONS:
        for _ in range(given.again):
            if (figures := run(name, CONDITIONS[name], options)) is not None:
                found.setdefault(name, []).append(figures.as_json())
    worst = [max(f["longest_own_s"] for f in taken) for taken in found.values()]
    if worst:
        middle = statistics.median(worst)
        print(f"longest turn of all: {1e3 * max(worst):.0f} ms; median {1e3 * middle:.0f} ms")
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
