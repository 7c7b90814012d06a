"""A sweep's runs on processes of this machine."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path

from bftrainer.replay.sweep.execute import Row, execute, row
from bftrainer.replay.sweep.grid import SweepRun
from bftrainer.replay.sweep.pool import Pool, Rows, few_at_once

SAFE_PATH = "PYTHONSAFEPATH"
"""Keeps a new Python from importing from its working folder, where others may put modules."""


@contextmanager
def processes(workers: int) -> Iterator[Pool]:
    """A pool of this many processes."""
    yield partial(_on_processes, workers)


def _on_processes(workers: int, runs: Sequence[SweepRun], records: Path | None) -> Rows:
    """Rows as they come.

    A process that dies breaks its executor, and all runs under way in it fail: each is tried again alone.
    """
    waiting = deque(runs)
    while waiting:
        suspects = []
        with executor(workers) as pool:
            for run, future in few_at_once(pool, waiting, workers, records):
                if isinstance(future.exception(), BrokenProcessPool):
                    suspects.append(run)
                else:
                    yield future.result()
        for run in suspects:
            yield _alone(run, records)


def _alone(run: SweepRun, records: Path | None) -> Row:
    """The row of a run in a process of its own; an error if that dies, too."""
    with executor(1) as pool:
        try:
            return pool.submit(execute, run, records).result()
        except BrokenProcessPool:
            return row(run, "its process was killed; was there enough memory?", math.nan)


@contextmanager
def executor(workers: int) -> Iterator[Executor]:
    """New processes. An exception, also an interrupt, ends them in the middle of their work."""
    others = set(active_children())
    added = SAFE_PATH not in os.environ
    os.environ.setdefault(SAFE_PATH, "1")
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin_worker)
    try:
        yield pool
    except BaseException:
        for child in set(active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        if added:
            del os.environ[SAFE_PATH]


def _begin_worker() -> None:
    """Make a worker ignore interrupts, which its parent handles, and end when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
