"""Trainers with bars, the last rescales and the last decisions, as parts of a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bftrainer.cli.shared.figures import figures, moment, speed, whole
from bftrainer.cli.shared.live.nodes import WORDS, letter, style
from bftrainer.cli.shared.terminal import printable
from bftrainer.cli.shared.trainers.table import left
from bftrainer.cli.shared.trainers.worker_phases import PhaseTimes
from bftrainer.series.timeline import rescales

BAR, NAME = 16, 24
"""The widths of bars, and of trainers' names at most."""
SHOWN = 5
"""The latest rescales and decisions that are shown."""


def trainers_table(trainers: Sequence[dict[str, Any]], times: PhaseTimes, now_s: float, rows: int) -> Table:
    """Return the trainers that have not ended, and the last that have, at most `rows` in all."""
    in_order = sorted(trainers, key=lambda t: (t["ended_at"] is not None, not t["members"], t["id"]))
    table = _one_line("", "trainer", "", "done", "left", "nodes", "samples/s", "")
    table.expand, table.columns[-1].ratio, table.columns[1].max_width = True, 1, NAME
    for t in in_order[:rows]:
        done = t["samples"] / t["work"] if t["work"] else None
        table.add_row(
            Text(letter(t["id"]), style(t["id"])),
            Text(printable(t["name"])),
            Text(printable(t["status"])) if done is None else ProgressBar(1.0, min(1.0, done), BAR),
            "" if done is None else f"{done:.0%}",
            left(t.get("ends_in_s")),
            f"{len(t['members'])}",
            speed(t["rate"]) or "",
            Text(printable(times.text(t, now_s) or _said(t)), "dim"),
        )
    if len(in_order) > rows:
        table.add_row("", f"{len(in_order) - rows:,} more: bftrainer list")
    return table


def _said(t: Mapping[str, Any]) -> str:
    return figures(t["metrics"]) if t["members"] else str(t.get("reason") or t["status"])


def rescales_table(pauses: Sequence[dict[str, Any]], names: Mapping[int, str], shown: int = SHOWN) -> Table:
    """Return the last rescales with their pauses."""
    table = _one_line("last rescales", "trainer", "nodes", "pause", "steps lost")
    for r in rescales(pauses)[-shown:]:
        lost = whole(r.lost_steps) if r.lost_steps else "none"
        cells = (
            WORDS.get(r.kind, r.kind),
            names.get(r.trainer, r.trainer),
            r.size,
            f"{r.pause_s * 1e3:.0f} ms",
        )
        table.add_row(*(Text(printable(cell)) for cell in (*cells, lost)))
    return table


def decisions_table(events: Sequence[dict[str, Any]], names: Mapping[int, str], shown: int = SHOWN) -> Table:
    """Return the last plans: what led to them, and how many nodes each trainer got."""
    table = _one_line("last decisions", "because", "nodes for")
    for e in [e for e in events if e["plan"]][-shown:]:
        given = {int(id_): len(nodes) for id_, nodes in e["plan"]["allocation"].items() if nodes}
        got = ", ".join(f"{names.get(id_, id_)} {n}" for id_, n in given.items()) or "nobody"
        cells = (moment(e["time"]).partition(" ")[2], cause(e, names), got)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _one_line(*columns: str) -> Table:
    """A table whose rows take one line each."""
    table = Table(*columns, box=None, pad_edge=False)
    for column in table.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    return table


CAUSES = {
    "TrainerSubmitted": "submitted",
    "TrainerEnded": "ended",
    "TrainerCancelled": "cancelled",
    "Measured": "was measured",
    "WorkerLost": "lost a worker",
    "WorkersReady": "has new workers",
    "PriorityChanged": "has another priority",
}


def cause(event: Mapping[str, Any], names: Mapping[int, str]) -> str:
    """Return an event in words."""
    data = event["data"]
    if event["kind"] == "NodesChanged":
        parts = [
            f"{' '.join(data[key][:4])} {word}"
            for key, word in (("joined", "idle"), ("left", "gone"))
            if data[key]
        ]
        parts = parts or [" ".join(own[:4]) for own in data.get("jobs", {}).values()]
        jobs = f" for job {', '.join(data['jobs'])}" if data.get("jobs") else ""
        return ", ".join(parts) + jobs
    word = CAUSES.get(event["kind"])
    if word and "trainer" in data:
        return f"{names.get(data['trainer'], data['trainer'])} {word}"
    return str(event["kind"])
