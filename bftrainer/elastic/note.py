"""Lines of bftrainer's own in what a worker prints, each with its time."""

from __future__ import annotations

import sys
from datetime import datetime


def note(text: str) -> None:
    """Print a line on standard error, which the worker's log has: "2026-01-31 12:00:00 bftrainer: ..."."""
    moment = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
    print(f"{moment} bftrainer: {text}", file=sys.stderr, flush=True)
