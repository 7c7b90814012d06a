"""bftrainer sweep"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli.shared.options import config_option, json_option
from bftrainer.cli.shared.progress import Advance, progress_bar
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Input
from bftrainer.messages.commands.lines import RUNS_FAILED, WITHOUT_MILP
from bftrainer.settings.sources import load

if TYPE_CHECKING:
    from bftrainer.replay.sweep.grid import SweepRun

COLUMNS = {
    "efficiency_u": "U",
    "linear_efficiency": "E",
    "completed": "completed",
    "turnaround_h_mean": "mean turnaround (h)",
    "rescales": "rescales",
    "wall_s": "wall time (s)",
}


@click.command("sweep")
@click.argument("grid", type=Input())
@click.option(
    "--out",
    type=Input(file_okay=False, dir_okay=True, exists=False),
    help="Folder for results.csv and results.sqlite.  [default: GRID without its ending]",
)
@click.option(
    "--files",
    type=Input(file_okay=False, dir_okay=True),
    help="Folder of the files that GRID names.  [default: GRID's]",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 4096),
    help="Runs at once on this machine.  [default: its cores]",
)
@click.option(
    "--executor",
    type=click.Choice(["processes", "mpi"]),
    default="processes",
    show_default=True,
    help="mpi: over the processes that mpiexec or srun started.",
)
@click.option("--record", "keep_records", is_flag=True, help="Keep each run's record for bftrainer report.")
@config_option
@json_option
def command(
    grid: Path,
    out: Path | None,
    files: Path | None,
    jobs: int | None,
    executor: str,
    keep_records: bool,
    config: Path | None,
    as_json: bool,
) -> None:
    """Replay for every combination of parameters in GRID, a YAML file:

    \b
    base: {log: idle.csv.xz, workload: jobs.csv, curves: curves.csv, nodes: 1024, hours: 24}
    grid: {allocator: [knapsack, equal], t_fwd_s: [10, 60, 120]}

    An interrupted sweep goes on where it was when the same command is given again; runs that failed are
    tried again. Over nodes: mpiexec -n 9 bftrainer sweep GRID --executor mpi
    """
    from bftrainer.replay.sweep import grid as description
    from bftrainer.replay.sweep import sweep

    with sweep.EXECUTORS[executor](jobs or len(os.sched_getaffinity(0))) as pool:
        if pool is None:  # this process only did runs for the first one
            return
        with progress_bar("read", shown=not as_json) as advance:

            def reading(done: int, total: int) -> None:
                if not done and not as_json:  # to read very many takes a while
                    say(f"{_runs(total)} in {grid}", err=True)
                advance(done / total)

            todo = description.read(grid, load({}, file=config), files, reading)
        sweep.check_solvers(todo)
        folder = out or grid.with_suffix("")
        reached = Reached(len(todo))
        try:
            with progress_bar("sweep", shown=not as_json) as advance:
                progress = partial(reached.update, advance)
                rows = sweep.sweep(todo, folder, pool, keep_records=keep_records, progress=progress)
        except KeyboardInterrupt:
            say(f"interrupted: {reached.text()} are done; repeat the command to go on", err=True)
            sys.exit(130)
    if as_json:
        print_json(rows)
    else:
        _print(todo, rows)
        say(f"{_runs(len(rows))} in {folder / 'results.csv'} and {folder / 'results.sqlite'}")
    _warn(rows)
    if any(row["error"] is not None for row in rows):
        sys.exit(1)


@dataclass
class Reached:
    """Counts the finished runs of `total`."""

    total: int
    done: int = 0

    def update(self, advance: Advance, done: int, failed: int) -> None:
        """Note that `done` runs are done, `failed` of them in vain, and show it in a progress bar."""
        self.done = done
        advance(done / self.total, self.text() + f", {failed} failed" * bool(failed))

    def text(self) -> str:
        """Return "3 of 8 runs"."""
        return f"{self.done} of {self.total} runs"


def _runs(number: int) -> str:
    return "1 run" if number == 1 else f"{number:,} runs"


def _warn(rows: Sequence[dict[str, Any]]) -> None:
    """Print on standard error how many runs fell back to another allocator, and how many failed."""
    fallen = sum(bool(row.get("fallbacks")) for row in rows)
    if fallen:
        told = WITHOUT_MILP.say(
            what=f"in {fallen} of {len(rows)} runs, decisions were",
            why="column fallbacks has how many, and bftrainer replay with the same parameters says why",
        )
        say(f"warning: {told}", err=True)
    failed = sum(row["error"] is not None for row in rows)
    if failed:
        say(f"error: {RUNS_FAILED.say(failed=failed, runs=len(rows))}", err=True)


def _print(jobs: Sequence[SweepRun], rows: Sequence[dict[str, Any]]) -> None:
    """Print a table with a column for each parameter that differs between runs, then the errors."""
    differs = {job.key: job.differs for job in jobs}
    parameters = list(dict.fromkeys(name for own in differs.values() for name in own))
    shown = [
        [
            *(differs[row["key"]].get(name) or _cell(row.get(name)) for name in parameters),
            *(_cell(row.get(name)) for name in COLUMNS),
        ]
        for row in rows
    ]
    print_table([*parameters, *COLUMNS.values()], shown)
    for row in rows:
        if row["error"] is not None:
            say(f"{row['name']}: {row['error']}")


def _cell(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else "" if value is None else str(value)
