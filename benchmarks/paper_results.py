"""Results of the sweeps of the paper's evaluation."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np

from bftrainer.replay.record import storage
from bftrainer.replay.record.data import ReportData
from bftrainer.traces import intervals, logs
from bftrainer.traces.logs import LogOptions

LOG = "idle_intervals_2021-02-10_16.csv.xz"
MACHINE_NODES = 4734
BEGIN, HOURS = 1613004528.0, 143
"""The published setting's: 2021-02-11 00:48:48 UTC."""
Row = dict[str, Any]
"""A run: parameters and figures; what is left open is not there."""


@dataclass(frozen=True)
class Results:
    """Results of the sweeps in the folder `out`."""

    traces: Path
    out: Path

    def rows(self, grid: str, **wanted: object) -> list[Row]:
        """The runs of a sweep with these parameters; None: left open."""
        return [row for row in _rows(self.out / grid / "results.csv") if _fits(row, wanted)]

    def row(self, grid: str, **wanted: object) -> Row:
        """The one run with these parameters."""
        (found,) = self.rows(grid, **wanted)
        return found

    def record(self, grid: str, row: Row) -> ReportData:
        """Return the record of a run."""
        return _record(self.out / grid / "records" / f"{row['key']}{storage.SUFFIX}")

    def trace(self) -> dict[str, Any]:
        """Return the figures of the log."""
        info: list[str | Path] = ["trace", "info", self.traces / LOG, "--machine-nodes", str(MACHINE_NODES)]
        command = [sys.executable, "-m", "bftrainer", *info, "--json"]
        done = subprocess.run(command, check=True, capture_output=True)
        return cast(dict[str, Any], json.loads(done.stdout))


@cache
def _rows(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return [{name: _value(text) for name, text in row.items() if text} for row in csv.DictReader(file)]


@cache
def _record(path: Path) -> ReportData:
    return storage.read(path)


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _fits(row: Row, wanted: Mapping[str, object]) -> bool:
    return all(row.get(name) == value for name, value in wanted.items())


# --- what the paper's figures are of ---------------------------------------------------------------


def per_decision(row: Row) -> float:
    """Figure 7b: what a decision costs, in samples."""
    return float(row["rescale_samples"] / row["decisions"])


@cache
def left_within(traces: Path, spans: tuple[float, ...]) -> list[float]:
    """Share of the changes of the whole machine's pool after which a node leaves within each span (s)."""
    log = logs.load(traces / LOG, LogOptions())
    changes = intervals.changes(log.intervals, frozenset(log.nodes), BEGIN, BEGIN + HOURS * 3600)
    leaves = np.array([*(change.time for change in changes if change.left), np.inf])
    times = np.array([change.time for change in changes])
    wait = leaves[np.searchsorted(leaves, times, side="right")] - times
    return [float((wait <= span).mean()) for span in spans]


def weeks(results: Results) -> tuple[ReportData, ReportData]:
    """The week of the published policy, and that of equal shares."""
    ours = results.row("hpo", allocator="knapsack", t_fwd_s=120)
    return results.record("hpo", ours), results.record("hpo", results.row("hpo", allocator="equal"))


def between_events(ours: ReportData, equal: ReportData) -> np.ndarray[Any, Any]:
    """Section 5.1.2: samples from one change of the pool to the next, ours over those of equal shares.

    Where both processed nothing there is no value.
    """
    pool = ours.stays.trainer == 0
    times = np.unique(np.concatenate([ours.stays.begin[pool], ours.stays.end[pool]]))
    done = [np.diff(np.interp(times, r.moments.time, r.moments.samples)) for r in (ours, equal)]
    some = (done[0] > 0) | (done[1] > 0)
    with np.errstate(divide="ignore"):
        return np.asarray(done[0][some] / done[1][some])


def node_hours_until_done(run: ReportData) -> float:
    """Figure 14a: node-hours in the pool until the last trainer is over."""
    end = max(t.ended for t in run.trainers if t.ended is not None)
    times = np.append(run.moments.time, np.inf)
    return float((run.moments.pool * np.diff(np.minimum(times, end))).sum() / 3600)


def together_rows(results: Results) -> tuple[list[Row], list[Row]]:
    """Those with a fixed number, and those that follow the pool."""
    rows = results.rows("together")
    return [r for r in rows if "max_parallel" in r], [r for r in rows if "max_parallel" not in r]
