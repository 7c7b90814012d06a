"""Splits the time from a change of nodes until a newcomer's first step: a bar of its parts.

    python benchmarks/elastic_join.py                        # 10 million parameters, 5 cold and 5 warm joins
    python benchmarks/elastic_join.py --only warm --repeat 9

One node trains, and a second joins and leaves, again and again, under a real daemon, with real agents and
workers, all on this machine. `cold`: the node has just become idle, and nothing runs there. `warm`: another
trainer has just ended on it. The parts are those that the newcomer notes in its log
(`elastic/process/startup_times.py`):
differences of one clock. `decided` is what came before: from the change until its agent began to start it.
Medians of all joins, in seconds; `gap` is the longest time between two steps of the member that stays.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests/ is not installed

import elastic_baselines as baselines
from elastic import Ours

from bftrainer.elastic.process.startup_times import PARTS

NOTE = re.compile(r"takes part since step \d+, ([\d.]+) s after it was started \((.*)\)")
STAYS, COMES = "h0", "h1"
WIDTH = 60
PAUSED_S = 1.0


class Joins:
    """A trainer on one node, which a second node joins."""

    def __init__(self, where: Path, parameters: int) -> None:
        self._system = Ours(where, parameters, "native")
        self._system.join(STAYS)
        if baselines.until(self._system, time.time(), 1) is None:
            raise RuntimeError("nothing trains: see the workers' logs")

    def cold(self) -> dict[str, float]:
        """The parts of a join of a node that has just become idle, which is taken again in the end."""
        found = self._measured(lambda: self._system.join(COMES))
        self._system.kill(COMES)
        self._alone()
        return found

    def warm_up(self) -> None:
        """Have the second node there, with its agent and its warm process."""
        self._measured(lambda: self._system.join(COMES))

    def warm(self) -> dict[str, float]:
        """The parts of a join of a node on which another trainer has just ended."""
        self._system.leave("")
        self._alone()
        return self._measured(self._system.come_back)

    def close(self) -> None:
        """End everything."""
        self._system.close()

    def _alone(self) -> None:
        if baselines.until(self._system, time.time(), 1) is None:
            raise RuntimeError("the member that stays takes no step")

    def _measured(self, change: Callable[[], None]) -> dict[str, float]:
        time.sleep(PAUSED_S)
        seen = len(self._notes())
        found = baselines.changed(self._system, "join", 1, 2, change)
        if found.first_step_s is None:
            raise RuntimeError("the newcomer took no step")
        total, parts = self._notes()[seen]
        whole, gap = found.first_step_s, found.pause_s or 0.0
        return {"decided": whole - total, **parts, "total": whole, "gap": gap}

    def _notes(self) -> list[tuple[float, dict[str, float]]]:
        """Return the newcomers' notes, in order."""
        found = []
        for log in sorted(self._system.logs().glob("h*.log")):
            for total, parts in NOTE.findall(log.read_text(errors="replace")):
                each = (part.split() for part in parts.split(", "))
                found.append((float(total), {name: float(seconds) for name, seconds in each}))
        return found


def table(rows: dict[str, list[dict[str, float]]]) -> str:
    """The parts of every kind of join as a table, with a bar of each."""
    lines = []
    for kind, joins in rows.items():
        totals, gaps = [join["total"] for join in joins], [join["gap"] for join in joins]
        total, gap = statistics.median(totals), statistics.median(gaps)
        spread = f"{total:.2f} s in the median, {min(totals):.2f} to {max(totals):.2f} s"
        lines.append(f"{kind}: {len(joins)} joins, {spread}; gap {gap:.2f} s")
        for name in ("decided", *PARTS):
            found = [join[name] for join in joins if name in join]
            if found:
                seconds = statistics.median(found)
                bar = "#" * round(WIDTH * seconds / total)
                lines.append(f"  {name:10}{seconds:7.3f}  {bar or '|'}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parameters", type=lambda text: int(float(text)), default=10_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", choices=("cold", "warm"))
    parser.add_argument("--json", action="store_true", help="a line of JSON per join instead of the table")
    options = parser.parse_args()
    rows: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="elastic-") as where:
        joins = Joins(Path(where), options.parameters)
        try:
            for kind in [options.only] if options.only else ["cold", "warm"]:
                if kind == "warm":
                    joins.warm_up()
                for _ in range(options.repeat):
                    found = getattr(joins, kind)()
                    rows.setdefault(kind, []).append(found)
                    if options.json:
                        print(json.dumps({"kind": kind, **found}), flush=True)
        finally:
            joins.close()
    if not options.json:
        print(table(rows))


if __name__ == "__main__":
    main()
