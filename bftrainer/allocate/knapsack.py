"""The exact dynamic programme: a multiple-choice knapsack over node counts.

With one class of nodes and no constraint across trainers besides sum N_j <= |pool|, giving trainer
j exactly one of its sizes is a multiple-choice knapsack:

    best_j[k] = max over n of  best_{j-1}[k - n] + v_j(n)        k = 0..|pool|

v_j may be any function. O(|pool| * sum_j (n_max_j + 1)) operations, vectorised over k and n.
Equal optima: later trainers in the order of the problem are served the larger size first, always
in the same way.
"""

from __future__ import annotations

import numpy as np

from bftrainer import objective
from bftrainer.model import Plan, PlanStatus, Problem


def exact_for(problem: Problem) -> bool:
    """Whether the recursion covers all of the problem's constraints."""
    return not problem.caps


def allocate(problem: Problem) -> Plan:
    """The optimal counts.

    Raises:
        ValueError: the problem has constraints across trainers; take the MILP.
    """
    if not exact_for(problem):
        raise ValueError(f"{len(problem.caps)} caps across trainers: use the allocator milp or auto")
    tables = [objective.values(candidate, problem) for candidate in problem.candidates]
    budget = min(problem.pool_size, sum(len(v) - 1 for v in tables))
    best = np.zeros(budget + 1)
    choices = []
    for v in tables:
        m = min(len(v) - 1, budget)
        padded = np.concatenate((np.full(m, -np.inf), best))
        # row k holds best[k - m] .. best[k]; adding v reversed lines best[k - n] up with v(n)
        stride = padded.strides[0]
        windows = np.lib.stride_tricks.as_strided(
            padded, (budget + 1, m + 1), (stride, stride), writeable=False
        )
        sums = windows + v[m::-1]
        pick = sums.argmax(axis=1)
        best = sums[np.arange(budget + 1), pick]
        choices.append(m - pick)
    counts, k = {}, budget
    for candidate, choice in zip(reversed(problem.candidates), reversed(choices), strict=True):
        n = int(choice[k])
        counts[candidate.trainer] = n
        k -= n
    value = float(best[budget])
    return Plan(allocator="knapsack", status=PlanStatus.OPTIMAL, counts=counts, objective=value, bound=value)
