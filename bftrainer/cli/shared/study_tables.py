"""A study and its trials as rows of tables."""

from __future__ import annotations

import time
from typing import Any

from bftrainer.cli.shared.studies import params_text, sparkline, study_line

COLUMNS = ("trial", "status", "rung", "samples", "of", "nodes", "value", "course", "parameters", "")


def head(study: dict[str, Any]) -> list[str]:
    """Return what to say of a study before its tables."""
    used = f"{study['nodes']} nodes now, {study['node_s'] / 3600:.2f} node-hours"
    most = f" of {study['node_hours']:g}" if study["node_hours"] else ""
    ends = ""
    if study["deadline_at"] and not study["ended_at"]:
        ends = f"; deadline in {(study['deadline_at'] - time.time()) / 60:.0f} min"
    lines = [study_line(study), f"{study['sampler']}, {study['stopping']}; {used}{most}{ends}"]
    if study["best"]:
        lines.append(f"best so far: {params_text(study['best']['params'])}")
    return lines


def rung_rows(study: dict[str, Any]) -> list[tuple[object, ...]]:
    """Return the rungs as rows of a table."""
    return [
        (
            i,
            f"{rung['samples']:,}",
            ", ".join(f"{count} {status}" for status, count in sorted(rung["trials"].items())) or "-",
            rung["ended"],
            "-" if rung["best"] is None else f"{rung['best']:.5g}",
        )
        for i, rung in enumerate(study["rungs"])
    ]


def chosen(study: dict[str, Any], most: int) -> list[dict[str, Any]]:
    """Return the trials to show: those that run, then the others from the best on; by number if all fit."""
    rows: list[dict[str, Any]] = study["table"]
    if len(rows) <= most:
        return rows
    sign = -1.0 if study["direction"] == "maximize" else 1.0

    def order(t: dict[str, Any]) -> tuple[bool, float, float]:
        value = t["results"][-1][1] if t["results"] else None
        reached = t["results"][-1][0] if t["results"] else 0
        return t["status"] != "running", -reached, float("inf") if value is None else sign * value

    return sorted(rows, key=order)[:most]


def trial_row(t: dict[str, Any]) -> tuple[object, ...]:
    """Return a trial as a row of COLUMNS."""
    return (
        t["number"],
        t["status"],
        t["rung"],
        f"{t['samples']:,}",
        f"{t['until']:,}",
        t["nodes"] or "-",
        "-" if t["value"] is None else f"{t['value']:.5g}",
        sparkline(t["course"]),
        params_text(t["params"]),
        t["reason"],
    )
