"""A whole sweep.

Every finished run is one row of `results.sqlite`, stored before the next one is waited for. A run that
has a row is not run again, unless it failed. `results.csv` shows the runs of the latest description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path

from bftrainer.allocate import check_solver
from bftrainer.messages.files.places import UNWRITABLE
from bftrainer.replay.record import storage
from bftrainer.replay.sweep.execute import Row
from bftrainer.replay.sweep.grid import SweepError, SweepRun
from bftrainer.replay.sweep.mpi import ranks
from bftrainer.replay.sweep.pool import Pool
from bftrainer.replay.sweep.processes import processes
from bftrainer.replay.sweep.results import Results, write_csv

EXECUTORS: Mapping[str, Callable[[int], AbstractContextManager[Pool | None]]] = {
    "processes": processes,
    "mpi": ranks,
}
"""Name -> makes a pool from its number of workers; None in a process that has worked for another one."""


def check_solvers(runs: Iterable[SweepRun]) -> None:
    """Try every solver that runs with the allocator `milp` need, before the first of them begins.

    Raises:
        SolverError: one does not work.
    """
    asked = {(own.allocator, own.solver): own for own in (run.scenario.settings for run in runs)}
    for (allocator, _), settings in asked.items():
        if allocator == "milp":
            check_solver(settings.engine)


def sweep(
    runs: Sequence[SweepRun],
    folder: Path,
    pool: Pool,
    *,
    keep_records: bool = False,
    progress: Callable[[int, int], None] = lambda done, failed: None,
) -> list[Row]:
    """Execute what is not done yet, and return the rows of all `runs`, in their order.

    `progress` takes how many are done, and how many of these failed. With `keep_records`, the folder
    `records` in `folder` gets a record of every run, under its key.

    Raises:
        SweepError: the folder cannot be written.
    """
    records = folder / "records" if keep_records else None
    with closing(Results(folder)) as results:
        have = results.finished()
        if records is not None:
            have = {key for key in have if (records / f"{key}{storage.SUFFIX}").exists()}
            try:
                records.mkdir(exist_ok=True)
            except OSError as error:
                raise SweepError(UNWRITABLE.say(path=records, why=error.strerror)) from error
        todo = [run for run in runs if run.key not in have]
        done, failed = len(runs) - len(todo), 0
        progress(done, failed)
        try:
            with closing(pool(todo, records)) as rows:
                for row in rows:
                    results.add(row)
                    done, failed = done + 1, failed + (row["error"] is not None)
                    progress(done, failed)
        finally:
            found = results.rows([run.key for run in runs])
            write_csv(found, folder / "results.csv")
    return found
