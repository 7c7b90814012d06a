"""A study and its trials as rows of tables."""

from __future__ import annotations

import time
from typing import Any

from bftrainer.cli.shared.figures import figure, whole
from bftrainer.cli.shared.units import units
from bftrainer.cli.studies.words import params_text, sparkline, stalled, study_line
from bftrainer.model.text import duration
from bftrainer.search.trial import NO_VALUE

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
    allowed = study.get("allowed")
    if allowed is not None and not study["ended_at"] and allowed < (study["parallelism"] or study["room"]):
        lines.append(
            f"no more than {allowed} of its trials have a trainer beside the user's others "
            "(max_trainers_per_user, max_trainers)"
        )
    if still := stalled(study, time.time()):
        lines.append(f"{still}: {_why_stalled(study)}")
    if study.get("unmeasured"):
        lines.append(f"warning: {study['unmeasured']}")
    if study["best"]:
        lines.append(f"best so far: {params_text(study['best']['params'])}")
    return lines


def _why_stalled(study: dict[str, Any]) -> str:
    """Return the known reasons why no trial gets further, and where to look."""
    runs = [t for t in study["table"] if _has_trainer(t)]
    holds = next((t for t in runs if t["nodes"]), None)
    if holds is not None:
        return f"its trials report none; see bftrainer study show {study['id']} --trial {holds['number']}"
    return f"its trials have no {units(study)}; bftrainer queue says why" if runs else "no trial runs"


def _storage(own: dict[str, Any], *, ended: bool) -> str:
    """Return the state of the copy in a storage of Optuna."""
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


def _has_trainer(t: dict[str, Any]) -> bool:
    """Return whether a trial has a trainer that runs or waits for nodes."""
    return t["status"] == "running" or (t["status"] == "waiting" and t.get("trainer_id") is not None)


def rung_rows(study: dict[str, Any]) -> list[tuple[object, ...]]:
    """Return the rungs as rows of a table."""
    return [
        (
            i,
            whole(rung["samples"]),
            ", ".join(f"{count} {status}" for status, count in sorted(rung["trials"].items())) or "-",
            rung["ended"],
            "-" if rung["best"] is None else figure(rung["best"]),
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
        return not _has_trainer(t), -reached, float("inf") if value is None else sign * value

    return sorted(rows, key=order)[:most]


def columns(study: dict[str, Any]) -> tuple[str, ...]:
    """Return COLUMNS, with what trials really have: nodes or GPUs."""
    return tuple(units(study) if column == "nodes" else column for column in COLUMNS)


def status_of(t: dict[str, Any]) -> str:
    """Return a trial's status; one whose trainer is completed has not failed, but has no value."""
    done = t["status"] == "failed" and t.get("trainer_id") is not None and not t["failures"]
    return NO_VALUE if done else str(t["status"])


def trial_row(t: dict[str, Any]) -> tuple[object, ...]:
    """Return a trial as a row of COLUMNS."""
    return (
        t["number"],
        status_of(t),
        t["rung"],
        whole(t["samples"]),
        whole(t["until"]),
        t["nodes"] or "-",
        "-" if t["value"] is None else figure(t["value"]),
        sparkline(t["course"]),
        params_text(t["params"]),
        t["reason"],
    )
