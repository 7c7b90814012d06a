"""Writes one poll as a line of the format `traces.formats.snapshots`. Pure.

No names of users or jobs are in it: of jobs it says how many wait, and which nodes are in use.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from bftrainer.model.machine import NodeState, Snapshot, Totals
from bftrainer.nodesets import folded
from bftrainer.traces.formats.snapshots import MARK, VERSION

OF_JOB = re.compile(r"(claimed by job|job)\b.*")


@dataclass(frozen=True, slots=True)
class RecordedMachine:
    """A machine as a snapshot tells of it, nodes as lists with ranges. Its totals change more often than its
    nodes: two that differ in these alone are equal."""

    idle: str
    busy: Mapping[str, str]
    until: tuple[tuple[str, str], ...] = field(default=())
    totals: Totals | None = field(default=None, compare=False)


def header(scheduler: str, version: str, poll_s: float) -> str:
    """The first line of a file."""
    return _line({MARK: VERSION, "scheduler": scheduler, "version": version, "poll_s": poll_s})


def machine(snapshot: Snapshot) -> RecordedMachine:
    """Reads a snapshot's nodes."""
    idle = [node.name for node in snapshot.nodes if node.state is NodeState.IDLE]
    busy: dict[str, list[str]] = defaultdict(list)
    until: dict[float, list[str]] = defaultdict(list)
    for node in snapshot.nodes:
        if node.state is not NodeState.IDLE:
            busy[_reason(node.why)].append(node.name)
        elif node.until is not None:
            until[node.until].append(node.name)
    return RecordedMachine(
        folded(idle),
        {why: folded(busy[why]) for why in sorted(busy)},
        tuple((_iso(at), folded(until[at])) for at in sorted(until)),
        snapshot.totals,
    )


def line(snapshot: Snapshot, found: RecordedMachine, before: RecordedMachine | None) -> str:
    """The line of a snapshot, whose machine was the one `before` at the last one (None: there is none)."""
    told: dict[str, Any] = {"time": _iso(snapshot.time)}
    if found == before:
        told["same"] = True
    else:
        told |= {"idle": found.idle, "busy": found.busy}
        if found.until:
            told["until"] = found.until
    told["waiting"] = len(snapshot.waiting)
    if found.totals != (before.totals if before else None):
        told["totals"] = _counts(found.totals)
    return _line(told)


def _counts(totals: Totals | None) -> Mapping[str, int] | None:
    if totals is None:
        return None
    return {name: value for name, value in asdict(totals).items() if value is not None}


def failed(time: float) -> str:
    """The line of a poll that failed. Why it did is not in it: messages may name users."""
    return _line({"time": _iso(time), "failed": True})


def _reason(why: str) -> str:
    """Reason why a node is not idle, without the number of the job."""
    match = OF_JOB.fullmatch(why)
    if match:
        return "claimed" if match[1].startswith("claimed") else "job"
    return why or "busy"


def _iso(time: float) -> str:
    """A time in this machine's zone, which it names."""
    return datetime.fromtimestamp(time).astimezone().isoformat(timespec="milliseconds")


def _line(told: Mapping[str, Any]) -> str:
    return json.dumps(told, separators=(",", ":")) + "\n"
