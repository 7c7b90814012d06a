"""Sweeps: one replay for every combination of parameters, in parallel, resumable.

A sweep is described by a YAML file, see `read`. Every finished run is one row of `results.sqlite`,
stored before the next one is waited for; a run that is there is not run again, one that failed is.
`results.csv` shows the runs of the latest description.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
import signal
import socket
import sqlite3
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any, cast

import yaml

from bftrainer import __version__
from bftrainer.allocate import check_solver
from bftrainer.errors import BftrainerError
from bftrainer.replay import scenario
from bftrainer.replay.evaluate import evaluate, stamp
from bftrainer.replay.record import storage
from bftrainer.replay.scenario import Scenario
from bftrainer.settings.values import Settings

Row = dict[str, Any]
FILES = ("log", "workload", "curves")
PARTS = ("base", "grid", "runs")


class SweepError(BftrainerError, ValueError):
    """A sweep that cannot be read or run. The message names file, value and what to do."""


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One run. `name` and `differs` have the parameters in which it differs from the sweep's base."""

    key: str
    name: str
    scenario: Scenario
    differs: Mapping[str, str]


# --- what is to be run ---------------------------------------------------------------------------


def read(path: Path, settings: Settings | None = None, files: Path | None = None) -> list[SweepRun]:
    """The runs that a YAML file describes, each once.

    `base` has parameters (see `scenario`) of all runs; `grid` has lists of values, and every combination
    of these is a run; `runs` lists further runs by what differs from the base. Files are sought in the
    folder `files`, or beside the YAML file. `settings` hold where nothing is said.

    Raises:
        SweepError, ScenarioError: unreadable, not such a description, or a file in it does not exist.
    """
    try:
        plain = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SweepError(f"{path}: {error}") from error
    base, grid, runs = _parts(plain, path)
    points = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    chosen = [*(points if grid or not runs else []), *runs]
    folder = files or path.parent
    found: dict[str, SweepRun] = {}
    for overrides in chosen:
        values = {**base, **overrides}
        for name in FILES:
            if isinstance(values.get(name), str):
                values[name] = (folder / values[name]).absolute()
        differs = {name: _short(value) for name, value in overrides.items()}
        label = ", ".join(f"{name}={value}" for name, value in differs.items())
        what = scenario.of(values, settings, f"{path}: {label}" if label else str(path))
        for name in FILES:
            file = getattr(what, name)
            if file is not None and not file.is_file():
                raise SweepError(f"{path}: {name}: {file}: there is no such file; paths begin in {folder}")
        key = _key(what)
        found.setdefault(key, SweepRun(key, label or path.stem, what, differs))
    return list(found.values())


def check_solvers(jobs: Iterable[SweepRun]) -> None:
    """Try every solver that runs with the allocator `milp` ask, before the first of them begins.

    Raises:
        SolverError: one does not work.
    """
    asked = {(own.allocator, own.solver): own for own in (job.scenario.settings for job in jobs)}
    for (allocator, _), settings in asked.items():
        if allocator == "milp":
            check_solver(settings.engine)


def _parts(plain: object, path: Path) -> tuple[Row, dict[str, list[Any]], list[Row]]:
    if not isinstance(plain, dict):
        raise SweepError(f"{path}: expected the parts {', '.join(PARTS)}, got {type(plain).__name__}")
    for part in plain:
        if part not in PARTS:
            raise SweepError(f"{path}: unknown part {part!r}; there are: {', '.join(PARTS)}")
    base, grid, runs = plain.get("base") or {}, plain.get("grid") or {}, plain.get("runs") or []
    if not isinstance(base, dict) or not isinstance(grid, dict):
        raise SweepError(f"{path}: base and grid must be lines of 'parameter: value'")
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise SweepError(f"{path}: runs must be a list of lines of 'parameter: value'")
    for where, names in (("base", base), ("grid", grid), *(("runs", run) for run in runs)):
        scenario.check(names, f"{path}: {where}")
    for name, values in grid.items():
        if not isinstance(values, list) or not values:
            raise SweepError(f"{path}: grid: {name}: {values!r} is no list of values such as [1, 2]")
    return base, grid, runs


def _short(value: object) -> str:
    return value.name if isinstance(value, Path) else str(value)


def _key(what: Scenario) -> str:
    """The same for the same parameters, of the same files, with the same version."""
    stamps = [
        stamp(path) if path is not None and path.exists() else None
        for path in (what.log, what.workload, what.curves)
    ]
    plain = json.dumps([what.parameters, stamps, __version__], sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


# --- one run, wherever it is ---------------------------------------------------------------------


def run(job: SweepRun, records: Path | None) -> Row:
    """Replay, and return the run's row: parameters, figures, and where it ran or why it failed."""
    started = time.perf_counter()
    figures: Mapping[str, object] = {}
    error = None
    try:
        done = evaluate(job.scenario, name=job.name if records else None)
        figures = done.figures
        if records is not None and done.report_data is not None:
            storage.write(done.report_data, records / f"{job.key}{storage.SUFFIX}")
    except BftrainerError as found:
        error = str(found)
    except Exception as found:  # noqa: BLE001  whatever it is, the other runs go on
        error = "".join(traceback.format_exception(found)[-2:]).strip()
    return _row(job, error, time.perf_counter() - started) | {
        name: value for name, value in _flat(figures) if value is not None
    }


def _row(job: SweepRun, error: str | None, wall_s: float) -> Row:
    parameters = {
        name: json.dumps(value) if isinstance(value, dict) else value
        for name, value in scenario.in_words(job.scenario.parameters).items()
    }
    mpi = sys.modules.get("mpi4py.MPI")
    return {
        "key": job.key,
        "name": job.name,
        "error": error,
        **parameters,
        "host": socket.gethostname(),
        "rank": mpi.COMM_WORLD.rank if mpi is not None else None,
        "pid": os.getpid(),
        "wall_s": wall_s,
    }


def _flat(figures: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in figures.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}_")
        else:
            yield prefix + name, value


# --- where runs are run --------------------------------------------------------------------------

Rows = Generator[Row, None, None]
Pool = Callable[[Sequence[SweepRun], Path | None], Rows]
"""Runs jobs, with records in a folder or without, and gives their rows as they end."""


@contextmanager
def processes(workers: int) -> Iterator[Pool]:
    """So many processes on this machine."""
    yield partial(_on_processes, workers)


@contextmanager
def ranks(workers: int) -> Iterator[Pool | None]:
    """The MPI processes that mpiexec or srun started, all but the first; these get None when all is over.

    Raises:
        SweepError: no MPI here, or too few processes.
    """
    try:
        from mpi4py import MPI  # noqa: PLC0415  an extra, and it starts MPI
        from mpi4py.futures import MPICommExecutor  # noqa: PLC0415
    except (ImportError, RuntimeError) as error:
        raise SweepError(
            f"no MPI: {error}; install the extra 'mpi' (pip install 'bftrainer[mpi]') and an MPI library"
        ) from error
    size = MPI.COMM_WORLD.size
    if size < 2:
        raise SweepError(
            f"MPI has {size} process; start 2 or more: mpiexec -n 3 bftrainer sweep ... --executor mpi"
        )
    with MPICommExecutor(MPI.COMM_WORLD, root=0) as executor:
        yield None if executor is None else partial(_on_ranks, cast(Executor, executor), size - 1)


EXECUTORS: dict[str, Callable[[int], AbstractContextManager[Pool | None]]] = {
    "processes": processes,
    "mpi": ranks,
}


def _on_ranks(executor: Executor, workers: int, jobs: Sequence[SweepRun], records: Path | None) -> Rows:
    for _, future in _few_at_once(executor, deque(jobs), workers, records):
        yield future.result()


def _on_processes(workers: int, jobs: Sequence[SweepRun], records: Path | None) -> Rows:
    """A process that dies takes all runs with it that its pool was at: each is tried again, alone."""
    waiting = deque(jobs)
    while waiting:
        suspects = []
        with _fresh(workers) as executor:
            for job, future in _few_at_once(executor, waiting, workers, records):
                if isinstance(future.exception(), BrokenProcessPool):
                    suspects.append(job)
                else:
                    yield future.result()
        for job in suspects:
            with _fresh(1) as alone:
                try:
                    row = alone.submit(run, job, records).result()
                except BrokenProcessPool:
                    row = _row(job, "its process was killed; was there enough memory?", math.nan)
            yield row


def _few_at_once(
    executor: Executor, waiting: deque[SweepRun], workers: int, records: Path | None
) -> Iterator[tuple[SweepRun, Future[Row]]]:
    """Runs as they end. No more are handed over than are run at once, and none to a broken pool."""
    running: dict[Future[Row], SweepRun] = {}
    broken = False
    while True:
        while waiting and len(running) < workers and not broken:
            try:
                running[executor.submit(run, waiting[0], records)] = waiting[0]
            except BrokenProcessPool:
                broken = True
            else:
                waiting.popleft()
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            broken = broken or isinstance(future.exception(), BrokenProcessPool)
            yield running.pop(future), future


@contextmanager
def _fresh(workers: int) -> Iterator[Executor]:
    """A pool of processes; an interrupt ends them in the middle of their work."""
    others = set(active_children())
    executor = ProcessPoolExecutor(workers, get_context("spawn"), _serve)
    try:
        yield executor
    except BaseException:
        for child in set(active_children()) - others:
            child.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)


def _serve() -> None:
    """A worker leaves interrupts to its parent, and ends with it, however that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


# --- the whole sweep -----------------------------------------------------------------------------


def sweep(
    jobs: Sequence[SweepRun],
    folder: Path,
    pool: Pool,
    *,
    keep_records: bool = False,
    progress: Callable[[int, int], None] = lambda done, failed: None,
) -> list[Row]:
    """Run what is not done yet, and return the rows of all `jobs`, in their order.

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
                raise SweepError(f"{records}: {error.strerror}; choose another folder with --out") from error
        todo = [job for job in jobs if job.key not in have]
        done, failed = len(jobs) - len(todo), 0
        progress(done, failed)
        try:
            with closing(pool(todo, records)) as rows:
                for row in rows:
                    results.add(row)
                    done, failed = done + 1, failed + (row["error"] is not None)
                    progress(done, failed)
        finally:
            found = results.rows([job.key for job in jobs])
            write_csv(found, folder / "results.csv")
    return found


class Results:
    """The table `runs` of `results.sqlite` in a folder: a row for every run that ended, by its key.

    It gets a column for whatever a row brings. Rows of former sweeps stay.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(folder / "results.sqlite", timeout=60)
            self._db.execute("CREATE TABLE IF NOT EXISTS runs (key TEXT PRIMARY KEY, name, error)")
        except (OSError, sqlite3.Error) as error:
            raise SweepError(f"{folder}: {error}; choose another folder with --out") from error

    def close(self) -> None:
        self._db.close()

    def finished(self) -> set[str]:
        """The keys of the runs that did not fail."""
        return {key for (key,) in self._db.execute("SELECT key FROM runs WHERE error IS NULL")}

    def add(self, row: Row) -> None:
        """Store a row, in place of one that the run had before."""
        try:
            with self._db:
                known = {column for _, column, *_ in self._db.execute("PRAGMA table_info(runs)")}
                for name in (name for name in row if name not in known):
                    self._db.execute(f"ALTER TABLE runs ADD COLUMN {_quoted(name)}")
                names = ", ".join(map(_quoted, row))
                marks = ", ".join("?" * len(row))
                self._db.execute(f"REPLACE INTO runs ({names}) VALUES ({marks})", tuple(row.values()))  # noqa: S608
        except sqlite3.Error as error:
            raise SweepError(f"the results cannot be stored: {error}") from error

    def rows(self, keys: Iterable[str]) -> list[Row]:
        """The rows of these runs, as far as they ended; what a row says nothing of is None."""
        cursor = self._db.execute("SELECT * FROM runs")
        names = [column[0] for column in cursor.description]
        found = {row[0]: dict(zip(names, row, strict=True)) for row in cursor}
        return [found[key] for key in keys if key in found]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """One line a row, under the names of all columns.

    Raises:
        SweepError: the file cannot be written.
    """
    names = list(rows[0]) if rows else []
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
        partial.replace(path)
    except OSError as error:
        raise SweepError(f"{path}: {error.strerror or error}") from error
