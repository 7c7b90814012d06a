"""The published baseline: nodes shared out equally (section 5.1).

Every trainer gets the same number of nodes, within its limits; the remaining nodes go one by one in
first-come-first-served order. A trainer that does not allow every size gets as many at once as lead to its
next one, if they are there. If there are too few nodes for the minimum of all, the last in order wait.
The baseline considers neither curves nor rescale costs.
"""

from __future__ import annotations

from bftrainer.allocate import relax, value
from bftrainer.model.problem import Candidate, Plan, PlanStatus, Problem


def allocate(problem: Problem) -> Plan:
    """Equal shares. Where they break a cap, the last trainers in order get fewer.

    Raises:
        ValueError: the nodes are of several classes, which equal shares do not distinguish.
    """
    if len({g.node_class for g in problem.parts}) > 1:
        raise ValueError("equal shares know one class of nodes: use the allocator auto, milp or knapsack")
    counts = dict.fromkeys((c.trainer for c in problem.candidates), 0)
    served: list[Candidate] = []
    free = problem.pool_size
    for candidate in problem.candidates:  # minima first, in order: no trainer may hold fewer
        least = candidate.above(0)
        if 0 < least <= free and value.classes(candidate, problem):
            counts[candidate.trainer] = least
            free -= least
            served.append(candidate)
    while free > 0:  # raise the smallest shares, first come first served among equals
        open_ = [c for c in served if 0 < c.above(counts[c.trainer]) <= counts[c.trainer] + free]
        if not open_:
            break
        lowest = min(counts[c.trainer] for c in open_)
        for candidate in open_:
            larger = candidate.above(lowest)
            if counts[candidate.trainer] == lowest and larger <= lowest + free:
                counts[candidate.trainer] = larger
                free -= larger - lowest
    counts = relax.within_caps(problem, counts)
    into = relax.spread(problem, {t: (problem.parts[0].node_class, n) for t, n in counts.items()})
    return Plan(
        allocator="equal",
        status=PlanStatus.HEURISTIC,
        counts=counts,
        objective=value.total_of(problem, into) if problem.groups else value.total(problem, counts),
        bound=float("inf"),
        note="equal shares claim nothing",
        spread=into if problem.groups else {},
    )
