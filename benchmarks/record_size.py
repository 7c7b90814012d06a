"""Measures what `bftrainer record` writes in a day of a log of idle nodes, and its time for that.

python benchmarks/record_size.py LOG --machine-nodes 4734 [--hours 24] [--every 10]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bftrainer.model.machine import Node, NodeState, Snapshot
from bftrainer.recording.lines import RecordedMachine, header, line, machine
from bftrainer.recording.series import Series
from bftrainer.traces.intervals import changes
from bftrainer.traces.logs import Log, LogOptions, cut, load


def main() -> None:
    """Write a series and print how large it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--machine-nodes", type=int)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--every", type=float, default=10.0)
    asked = parser.parse_args()
    log = cut(load(asked.log, LogOptions(machine_nodes=asked.machine_nodes)), None, asked.hours, None)
    with tempfile.TemporaryDirectory() as folder:
        series = Series(Path(folder), rotate_mb=64.0, most_mb=100_000.0)
        series.begin(0.0, header("slurm", "0", asked.every))
        before: RecordedMachine | None = None
        count, told, plain, worked_s = 0, 0, 0, 0.0
        for moment, pool, changed in polls(log, asked.every):
            began = time.perf_counter()
            shown = snapshot(log, moment, pool) if changed or before is None else None
            found = machine(shown) if shown is not None else before
            assert found is not None
            text = line(shown or Snapshot(time=moment, nodes=()), found, before)
            series.append(text)
            worked_s += time.perf_counter() - began
            told += found != before
            plain += len(text)
            count, before = count + 1, found
        series.close()
        packed = sum(path.stat().st_size for path in Path(folder).iterdir())
    print(
        f"{count:,} snapshots of {log.machine_nodes:,} nodes in {asked.hours:g} h, {told:,} with changes: "
        f"{plain / 1e6:.1f} MB, packed {packed / 1e6:.2f} MB; {1000 * worked_s / count:.1f} ms a snapshot"
    )


def polls(log: Log, every_s: float) -> Iterator[tuple[float, frozenset[str], bool]]:
    """Each poll's moment, the idle nodes, and whether they have changed."""
    coming = changes(log.intervals, log.nodes, log.begin, log.end)
    pool: set[str] = set()
    moment, at = log.begin, 0
    while moment < log.end:
        first = at
        while at < len(coming) and coming[at].time <= moment:
            pool = (pool - coming[at].left) | coming[at].joined
            at += 1
        yield moment, frozenset(pool), at > first
        moment += every_s


def snapshot(log: Log, moment: float, pool: frozenset[str]) -> Snapshot:
    """The machine with these nodes idle and jobs on all others."""
    idle, busy = NodeState.IDLE, NodeState.BUSY
    return Snapshot(
        time=moment,
        nodes=tuple(
            Node(name=name, state=idle if name in pool else busy, why="" if name in pool else "job 1")
            for name in sorted(log.nodes)
        ),
    )


if __name__ == "__main__":
    main()
