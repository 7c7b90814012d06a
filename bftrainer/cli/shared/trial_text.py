"""One trial of a study in words, with the end of what its trainer printed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from bftrainer.api.client import Client, DaemonError
from bftrainer.cli.shared import worker_output
from bftrainer.cli.shared.studies import sparkline
from bftrainer.cli.shared.terminal import say
from bftrainer.errors import BftrainerError

LINES = 15
"""So many lines of each worker's output are shown."""


def row_of(study: dict[str, Any], number: int) -> dict[str, Any]:
    """Return a trial of a study.

    Raises:
        BftrainerError: it has none of that number yet.
    """
    found = next((t for t in study["table"] if t["number"] == number), None)
    if found is None:
        begun = len(study["table"])
        raise BftrainerError(
            f"{study['name']} has no trial {number}; {begun:,} of {study['trials']:,} have begun"
        )
    return dict(found)


def tell(client: Client, study: dict[str, Any], number: int) -> None:
    """Print a trial: parameters, results, and what its last trainer printed.

    Raises:
        BftrainerError: there is no such trial.
    """
    t = row_of(study, number)
    say(f"trial {number} of {study['name']}: {t['status']}" + (f" ({t['reason']})" if t["reason"] else ""))
    for name, value in t["params"].items():
        say(f"  {name}: {value}")
    for samples, value in t["results"]:
        say(f"{study['metric']} {value:.6g} after {samples:,} samples")
    say(f"{t['samples']:,} of {t['until']:,} samples  {sparkline(t['course'])}")
    if t["failures"]:
        say(f"its trainer has failed {t['failures']} times")
    if t["trainer"] is None:
        return
    say(f"trainer {t['trainer']}: {shlex.join(t['command'])}")
    try:
        folder = Path(client.call("GET", f"trainers/{t['trainer']}")["log_dir"])
        printed = worker_output.last_lines(folder, LINES)
    except (DaemonError, BftrainerError) as error:
        say(f"what it printed cannot be read: {error}")
        return
    for node, part in printed.items():
        for line in part.text.splitlines():
            say(f"{node}: {line}")
    if printed:
        say(f"more: bftrainer logs -n 1000 {t['trainer']}")
