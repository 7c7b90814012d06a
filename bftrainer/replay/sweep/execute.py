"""One run of a sweep, in whatever process it takes place."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bftrainer.errors import BftrainerError
from bftrainer.replay.evaluate import evaluate
from bftrainer.replay.record import storage
from bftrainer.replay.scenario import in_words
from bftrainer.replay.sweep.grid import SweepRun

Row = dict[str, Any]
"""Result of a run: parameters, figures, and where it ran or why it failed."""


def execute(run: SweepRun, records: Path | None) -> Row:
    """Replay, keep a record in the folder `records` if there is one, and return the run's row.

    Never raises an `Exception`: a run that fails is a row with an error.
    """
    started = time.perf_counter()
    figures: Mapping[str, object] = {}
    error = None
    try:
        done = evaluate(run.scenario, name=run.name if records else None)
        figures = done.figures
        if records is not None and done.report_data is not None:
            storage.write(done.report_data, records / f"{run.key}{storage.SUFFIX}")
    except BftrainerError as found:
        error = str(found)
    except Exception as found:  # noqa: BLE001  whatever it is, the other runs go on
        error = "".join(traceback.format_exception(found)[-2:]).strip()
    return row(run, error, time.perf_counter() - started) | {
        name: value for name, value in _flat(figures) if value is not None
    }


def row(run: SweepRun, error: str | None, wall_s: float) -> Row:
    """A run's row without figures. Host, MPI rank and process are those of the caller."""
    parameters = {
        name: json.dumps(value) if isinstance(value, dict) else value
        for name, value in in_words(run.scenario.parameters).items()
    }
    mpi = sys.modules.get("mpi4py.MPI")
    return {
        "key": run.key,
        "name": run.name,
        "error": error,
        **parameters,
        "host": socket.gethostname(),
        "rank": mpi.COMM_WORLD.rank if mpi is not None else None,
        "pid": os.getpid(),
        "wall_s": wall_s,
    }


def _flat(figures: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Figures whose parts have names of their own: `runtime_h_mean`."""
    for name, value in figures.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}_")
        else:
            yield prefix + name, value
