"""Lines of bftrainer's own in what a worker prints, each with its time."""

from __future__ import annotations

import sys
from datetime import datetime


def note(text: str) -> None:
    """Print a line on standard error, which the worker's log has: "2026-01-31 12:00:00 bftrainer: ..."."""
    moment = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
    print(f"{moment} bftrainer: {text}", file=sys.stderr, flush=True)


def begun(step: int) -> str:
    """What is noted where a training begins, at a step of a checkpoint or at 0."""
    return f"resumed from step {step}" if step else "begins anew: there is no checkpoint"
