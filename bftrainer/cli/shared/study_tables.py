"""A study and its trials as rows of tables."""

from __future__ import annotations

import time
from typing import Any

from bftrainer.cli.shared.studies import params_text, sparkline, stalled, study_line
from bftrainer.cli.shared.units import units
from bftrainer.model.text import duration

COLUMNS = ("trial", "status", "rung", "samples", "of", "nodes", "value", "course", "parameters", "")


def head(study: dict[str, Any]) -> list[str]:
    """Return what to say of a study before its tables."""
    counted = units(study)
    used = f"{study['nodes']} {counted} now, {study['node_s'] / 3600:.2f} {counted[:-1]}-hours"
    most = f" of {study['node_hours']:g}" if study["node_hours"] else ""
    ends = ""
    if study["deadline_at"] and not study["ended_at"]:
        ends = f"; deadline in {(study['deadline_at'] - time.time()) / 60:.0f} min"
    lines = [study_line(study), f"{study['sampler']}, {study['stopping']}; {used}{most}{ends}"]
    if study["storage"]:
        lines.append(_storage(study["storage"], ended=bool(study["ended_at"])))
    if still := stalled(study, time.time()):
        lines.append(f"{still}: {_why_stalled(study)}")
    if study["best"]:
        lines.append(f"best so far: {params_text(study['best']['params'])}")
    return lines


def _why_stalled(study: dict[str, Any]) -> str:
    """What is known of why no trial gets further, and where there is more to see."""
    runs = [t for t in study["table"] if t["status"] == "running"]
    holds = next((t for t in runs if t["nodes"]), None)
    if holds is not None:
        return f"its trials report none; see bftrainer study show {study['name']} --trial {holds['number']}"
    return f"its trials have no {units(study)}; bftrainer queue says why" if runs else "no trial runs"


def _storage(own: dict[str, Any], *, ended: bool) -> str:
    """How the copy in a storage of Optuna is."""
    text = f"storage {own['url']}"
    if own["error"]:
        again = ""
        if own["since"]:
            again = f" (not written for {duration(time.time() - own['since'])}; it is tried again)"
        return f"{text}: {own['error'].removeprefix(own['url'] + ': ')}{again}"
    if own["at"] is None:
        return text if ended else f"{text}: not written yet"
    if ended:
        return f"{text}: written to the end, as {own['name']}"
    return f"{text}: written {time.time() - own['at']:.0f} s ago as {own['name']}"


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
        reached, value = t["results"][-1] if t["results"] else (0, t["value"])
        return t["status"] != "running", -reached, float("inf") if value is None else sign * value

    return sorted(rows, key=order)[:most]


def columns(study: dict[str, Any]) -> tuple[str, ...]:
    """Return COLUMNS, with what trials really have: nodes or GPUs."""
    return tuple(units(study) if column == "nodes" else column for column in COLUMNS)


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
