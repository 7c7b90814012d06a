"""Lower bounds on the makespan: what no schedule of the jobs can beat, by linear programming."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_matrix, csr_matrix

from bftrainer.iterations.model import Floats, Ints, IterationJob

WINDOWS = 24
"""Windows between the first and the last arrival; jobs may begin with the window in which they arrive."""


def makespan_bound(jobs: Sequence[IterationJob], devices: int) -> float:
    """The soonest end of all jobs (s), if devices and iterations could be divided at will.

    In window t of length l_t, job j runs for x_jt <= l_t and uses u_j devices on average, so that
    sum_j u_j x_jt <= n l_t. The last window begins with the last arrival, and its length is minimised.
    """
    arrival = np.array([job.arrival for job in jobs])
    length = np.array([job.iterations * job.iteration_s for job in jobs])
    use = np.array([job.work_s for job in jobs]) / length
    edges = np.linspace(arrival.min(), arrival.max(), WINDOWS + 1)
    job, window = np.nonzero(edges[1:][None, :] > arrival[:, None])  # windows that end after the arrival
    count, pairs, last = len(jobs), len(job), np.arange(len(jobs))
    rows = _rows(
        [
            (np.concatenate([window, np.full(count, WINDOWS)]), np.concatenate([use[job], use])),
            (np.concatenate([np.full(pairs, -1), WINDOWS + 1 + last]), np.ones(pairs + count)),
        ],
        WINDOWS + 1 + count,
        final=np.concatenate([np.zeros(WINDOWS), [-devices], -np.ones(count)]),
    )
    lengths = np.diff(edges)
    room = np.concatenate([devices * lengths, np.zeros(1 + count)])
    done = coo_matrix(
        (np.ones(pairs + count), (np.concatenate([job, last]), np.arange(pairs + count))),
        shape=(count, pairs + count + 1),
    )
    most = np.concatenate([lengths[window], np.full(count + 1, np.inf)])
    cost = np.zeros(pairs + count + 1)
    cost[-1] = 1.0
    bounds = np.column_stack([np.zeros(len(most)), most])
    found = linprog(cost, A_ub=rows, b_ub=room, A_eq=done.tocsr(), b_eq=length, bounds=bounds, method="highs")
    return float(arrival.max() + found.x[-1])


def _rows(parts: Sequence[tuple[Ints, Floats]], count: int, final: Floats) -> csr_matrix:
    """A sparse matrix: each part says for all columns but the last the row (-1: none) and the value there."""
    columns = np.arange(len(parts[0][0]))
    kept: list[tuple[Ints, Ints, Floats]] = [
        (row[row >= 0], columns[row >= 0], value[row >= 0]) for row, value in parts
    ]
    kept.append((np.arange(count), np.full(count, len(columns)), final))
    row, column, value = (np.concatenate(arrays) for arrays in zip(*kept, strict=True))
    return csr_matrix((value, (row, column)), shape=(count, len(columns) + 1))
