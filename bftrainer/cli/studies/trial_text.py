"""One trial of a study in words, with the end of what its trainer printed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bftrainer import worker_output
from bftrainer.api.client import Client, DaemonError
from bftrainer.cli.shared.figures import figure
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.studies.tables import status_of
from bftrainer.cli.studies.words import sparkline
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.lines import NO_TRIAL

LINES = 15
"""Lines shown of each worker's output, at most."""


def row_of(study: dict[str, Any], number: int) -> dict[str, Any]:
    """Return a trial of a study.

    Raises:
        BftrainerError: it has none of that number yet.
    """
    found = next((t for t in study["table"] if t["number"] == number), None)
    if found is None:
        begun = len(study["table"])
        raise BftrainerError(
            NO_TRIAL.say(study=study["name"], number=number, begun=begun, trials=study["trials"])
        )
    return dict(found)


def trainer_of(trial: Mapping[str, Any]) -> int | str:
    """Return the number of a trial's trainer: its name may be that of a trial of an older study, too.

    A daemon of an earlier version tells the name alone.
    """
    number: int | None = trial.get("trainer_id")
    return trial["trainer"] if number is None else number


def command_line(trial: Mapping[str, Any]) -> str:
    """Return the number and name of a trial's trainer, and its command."""
    which = dict.fromkeys((str(trainer_of(trial)), f"({trial['trainer']})"))
    return f"trainer {' '.join(which)}: {shlex.join(trial['command'])}"


def tell(client: Client, study: dict[str, Any], number: int) -> None:
    """Print a trial: parameters, results, and what its last trainer printed.

    Raises:
        BftrainerError: there is no such trial.
    """
    t = row_of(study, number)
    say(f"trial {number} of {study['name']}: {status_of(t)}" + (f" ({t['reason']})" if t["reason"] else ""))
    for name, value in t["params"].items():
        say(f"  {name}: {value}")
    for samples, value in t["results"]:
        say(f"{study['metric']} {figure(value)} after {samples:,} samples")
    say(f"{t['samples']:,} of {t['until']:,} samples  {sparkline(t['course'])}")
    if t["failures"]:
        say(f"its trainer has failed {t['failures']} times")
    if t["trainer"] is None:
        return
    say(command_line(t))
    try:
        shown = client.call("GET", f"trainers/{trainer_of(t)}")
        of = worker_output.owner(shown["user"])
        printed = worker_output.last_lines(Path(shown["log_dir"]), LINES, of=of)
    except (DaemonError, BftrainerError) as error:
        say(f"what it printed cannot be read: {error}")
        return
    for node, part in printed.items():
        for line in part.text.splitlines():
            say(f"{node}: {line}")
    if printed:
        say(f"more: bftrainer logs -n 1000 {trainer_of(t)}")
