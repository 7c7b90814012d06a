"""The figures of a demonstration, and the lines that show them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

RESCALES = {"join": "nodes joined", "leave": "nodes given to others", "loss": "nodes killed"}
"""The kinds of pauses that are rescales, and how the summary calls them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The result of a demonstration.

    Attributes:
        joins, leaves: How many times a node joined and left the pool.
        pauses_s: Kind of rescale -> one pause for each, the longest of its surviving members.
        steps_lost: Steps that rescales lost although a member survived.
        steps_repeated: Steps repeated from a checkpoint after a trainer lost all its nodes at once.
        trainers, studies: What the API said of each, just before the daemon stopped.
        strays: Ids of processes that the daemon left behind.
    """

    joins: int
    leaves: int
    pauses_s: dict[str, list[float]]
    steps_lost: int
    steps_repeated: int
    trainers: list[dict[str, Any]]
    studies: list[dict[str, Any]]
    strays: list[int]

    @property
    def good(self) -> bool:
        """Return whether no step was lost and no process was left behind."""
        return self.steps_lost == 0 and not self.strays


def summarise(
    events: Sequence[dict[str, Any]],
    pauses: Sequence[dict[str, Any]],
    trainers: list[dict[str, Any]],
    studies: list[dict[str, Any]],
    strays: list[int],
) -> Summary:
    """Count what the rows of the API tell about the whole demonstration."""
    changes = [e["data"] for e in events if e["kind"] == "NodesChanged"]
    longest: dict[tuple[int, int, str], float] = {}
    for p in pauses:
        key = (p["trainer"], p["generation"], p["kind"])
        longest[key] = max(longest.get(key, 0.0), p["pause_s"])
    return Summary(
        joins=sum(len(c["joined"]) for c in changes),
        leaves=sum(len(c["left"]) for c in changes),
        pauses_s={kind: [s for (_, _, k), s in longest.items() if k == kind] for kind in RESCALES},
        steps_lost=sum(p["lost_steps"] for p in pauses if p["kind"] in RESCALES),
        steps_repeated=sum(p["lost_steps"] for p in pauses if p["kind"] == "restart"),
        trainers=trainers,
        studies=studies,
        strays=strays,
    )


def summary_lines(summary: Summary) -> list[str]:
    """Return the summary as lines of text."""
    every = [s for kind in RESCALES for s in summary.pauses_s[kind]]
    lines = [
        f"node joins {summary.joins}, node leaves {summary.leaves}, rescales {len(every)}",
        f"pause per rescale: {_spread(every)}",
        *(f"  {label}: {_spread(summary.pauses_s[kind])}" for kind, label in RESCALES.items()),
        f"samples trained: {sum(t['samples'] for t in summary.trainers):,}",
        f"steps lost while a member survived: {summary.steps_lost}"
        + f" (repeated from checkpoints after losing all nodes at once: {summary.steps_repeated})",
    ]
    for t in summary.trainers:
        accuracy = t["metrics"].get("accuracy")
        lines.append(
            f"{t['name']}: {t['status']}, {t['samples']:,} samples"
            + (f", accuracy {accuracy:.1%}" if accuracy is not None else "")
        )
    gone = "yes" if not summary.strays else f"no: pids {summary.strays}"
    return [*lines, f"daemon and all workers are gone: {gone}"]


def _spread(pauses: list[float]) -> str:
    if not pauses:
        return "none"
    return f"median {statistics.median(pauses):.3f} s, max {max(pauses):.3f} s ({len(pauses)})"
