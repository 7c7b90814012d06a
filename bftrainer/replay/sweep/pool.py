"""The interface of a pool of workers that carries out the runs of a sweep."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from bftrainer.replay.sweep.execute import Row, execute
from bftrainer.replay.sweep.grid import SweepRun

Rows = Generator[Row, None, None]
Pool = Callable[[Sequence[SweepRun], Path | None], Rows]
"""Executes runs, with records in a folder or without, and gives their rows as they end."""


def few_at_once(
    executor: Executor, waiting: deque[SweepRun], workers: int, records: Path | None
) -> Iterator[tuple[SweepRun, Future[Row]]]:
    """Runs as they end, taken from `waiting`.

    The executor never has more of them than `workers`, and gets no more once one of its processes died.
    """
    running: dict[Future[Row], SweepRun] = {}
    broken = False
    while True:
        while waiting and len(running) < workers and not broken:
            try:
                running[executor.submit(execute, waiting[0], records)] = waiting[0]
            except BrokenProcessPool:
                broken = True
            else:
                waiting.popleft()
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            broken = broken or isinstance(future.exception(), BrokenProcessPool)
            yield running.pop(future), future
