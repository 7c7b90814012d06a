"""A sweep's runs on the MPI processes that mpiexec or srun started."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import cast

from bftrainer.messages.commands.lines import NOT_INSTALLED
from bftrainer.messages.files.replays import FEW_PROCESSES
from bftrainer.replay.sweep.grid import SweepError, SweepRun
from bftrainer.replay.sweep.pool import Pool, Rows, few_at_once


@contextmanager
def ranks(workers: int) -> Iterator[Pool | None]:
    """A pool of all MPI processes but the first, however many `workers` are asked for.

    Only the first process gets it. The others work within this call, and get None when all is done.

    Raises:
        SweepError: no MPI here, or too few processes.
    """
    try:
        from mpi4py import MPI  # noqa: PLC0415  an extra, and it starts MPI
        from mpi4py.futures import MPICommExecutor  # noqa: PLC0415
    except (ImportError, RuntimeError) as error:
        what, how = f"--executor mpi ({error})", "pip install mpi4py, and an MPI library beside it"
        raise SweepError(NOT_INSTALLED.say(what=what, package="mpi4py", how=how)) from error
    size = MPI.COMM_WORLD.size
    if size < 2:
        raise SweepError(FEW_PROCESSES.say(count=size))
    with MPICommExecutor(MPI.COMM_WORLD, root=0) as executor:
        yield None if executor is None else partial(_on_ranks, cast(Executor, executor), size - 1)


def _on_ranks(executor: Executor, workers: int, runs: Sequence[SweepRun], records: Path | None) -> Rows:
    for _, future in few_at_once(executor, deque(runs), workers, records):
        yield future.result()
