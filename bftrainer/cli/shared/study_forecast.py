"""One line on how a study goes on, computed from what the daemon tells of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bftrainer.cli.shared.plan_tables import clock
from bftrainer.search.parse import parse
from bftrainer.search.plan.ahead import Ahead, Progress, ahead
from bftrainer.spec.located_yaml import SpecError

MOVING = ("running", "waiting", "paused")
"""Statuses of trials that go on."""


def forecast(study: dict[str, Any]) -> str:
    """When a study will be done on the nodes of now, and what its deadline needs; empty if it has ended."""
    if study["ended_at"]:
        return ""
    try:
        spec = parse(study["text"], study["name"], Path("/"))
    except SpecError as error:  # of a daemon of another version
        return f"no forecast: {str(error).splitlines()[0]}"
    trials = [
        Progress(
            number=t["number"],
            ended=len(t["results"]),
            samples=t["samples"],
            unfinished=t["status"] in MOVING,
            failed=t["status"] == "failed",
        )
        for t in study["table"]
    ]
    until = None if study["deadline_at"] is None else study["deadline_at"] - time.time()
    found = ahead(spec, trials, study["nodes"], until)
    if found is None:
        return "" if spec.trainer.curve else "no forecast: the study's trainer has no curve"
    return _text(found, study["nodes"], until)


def _text(found: Ahead, nodes: int, until: float | None) -> str:
    now = f"forecast: {sum(s.trials for s in found.experiment.stages)} runs left"
    if found.seconds is None:
        now += ", no nodes now"
    else:
        now += f", done in {clock(found.seconds)} with {nodes} nodes as now"
    if until is None:
        return now
    if found.seconds is not None and found.seconds <= until:
        return f"{now}: on time"
    if found.nodes is None:
        return f"{now}: too late, and so with any number of nodes"
    return f"{now}: too late; on time with {', '.join(map(str, found.nodes))} nodes by stage"
