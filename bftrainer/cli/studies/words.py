"""The argument of commands on studies, and a study in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from bftrainer.cli.shared.completion import complete_study
from bftrainer.cli.shared.figures import figure
from bftrainer.cli.shared.types import TrainerName
from bftrainer.model.text import counted, duration

study_argument = click.argument("study", type=TrainerName(), shell_complete=complete_study)
BARS = "▁▂▃▄▅▆▇█"
STALLED_S = 600.0
"""Seconds without a report after which a study is said to make no progress."""
WIDTH = 16
"""Points of a course that are shown."""


def study_line(study: Mapping[str, Any]) -> str:
    """Return a study in a line: its status, how many trials do what, and the best so far."""
    counts = ", ".join(f"{count} {status}" for status, count in sorted(study["counts"].items()))
    best = study["best"]
    text = f"{study['name']} ({study['id']}): {study['status']}; {counted(study['trials'], 'trial')}"
    text += f": {counts}" if counts else ""
    if best:
        text += f"; best {study['metric']} {figure(best['value'])} in trial {best['number']}{short(best)}"
    return text + (f" ({study['reason']})" if study["reason"] else "")


def short(best: Mapping[str, Any]) -> str:
    """Return, in brackets, how far the best trial came if it has ended no rung; else nothing."""
    if best.get("short_of") is None:
        return ""
    return f" (not trained to a rung: after {best['samples']:,} of {best['short_of']:,} samples)"


def stalled(study: Mapping[str, Any], now: float) -> str:
    """Return since when no trial of a study that runs has got further, if that is long; else nothing."""
    moved_at = study.get("moved_at")
    if study["status"] != "running" or moved_at is None or now - moved_at < STALLED_S:
        return ""
    return f"no progress for {duration(now - moved_at)}"


def params_text(params: Mapping[str, Any]) -> str:
    """Return parameters as name=value."""
    return " ".join(
        f"{key}={figure(value)}" if isinstance(value, float) else f"{key}={value}"
        for key, value in params.items()
    )


def sparkline(course: Sequence[Sequence[float]], width: int = WIDTH) -> str:
    """Return the values of a course as a line of bars, the lowest value as the lowest bar."""
    values = [value for _, value in course][-width:]
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(BARS[round((value - low) / span * (len(BARS) - 1))] for value in values)
