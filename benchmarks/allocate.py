"""Times decisions: the exact method, the aggregated MILP and the node-level MILP, in one run.

    python benchmarks/allocate.py [--repeat 100]

Prints Markdown tables of milliseconds to a proven optimum on the same random problems (medians and 99th
percentiles), of decisions under side constraints, of trainers that allow some sizes only, of what the older
parts of the exact method cost, and the peak memory of one large decision in a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from bftrainer.allocate import ALLOCATORS, knapsack, milp, solvers, value
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Candidate, Cap, NodeGroup, Plan, Problem
from bftrainer.model.sizes import EVERY_SIZE, AllowedSizes
from bftrainer.model.trainer import Cost, RescaleCosts

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support import oracle  # the published model is a test's oracle

SIZES = ((5, 50), (10, 100), (10, 400), (20, 400), (35, 800), (100, 4608), (1000, 4608))
NODE_LEVEL = SIZES[:4]
"""The published model takes minutes beyond these."""


def curve(rng: random.Random) -> tuple[tuple[int, float], ...]:
    """A curve like those of ImageNet models: roughly Amdahl's law, with the measurements' wiggles."""
    one, serial = rng.uniform(1000, 7000), rng.uniform(0.002, 0.02)
    return tuple(
        (n, one * n / (1 + serial * (n - 1)) * rng.uniform(0.97, 1.03)) for n in (1, 2, 4, 8, 16, 32, 64)
    )


def problem(trainers: int, nodes: int, rng: random.Random) -> Problem:
    """Random trainers that hold much of the pool."""
    candidates, free = [], nodes
    for trainer in range(trainers):
        current = rng.randint(0, min(64, free, 2 * nodes // trainers))
        free -= current
        costs = RescaleCosts(up=Cost(stall_s=rng.uniform(15, 20)), down=Cost(stall_s=rng.uniform(10, 13)))
        candidates.append(
            Candidate(trainer=trainer, n_min=1, n_max=64, current=current, curve=curve(rng), costs=costs)
        )
    return Problem(pool_size=nodes, t_fwd_s=120.0, candidates=tuple(candidates))


def divided(base: Problem, rng: random.Random, *, groups: int, classes: int, remaining: bool) -> Problem:
    """The same problem with its nodes in groups, of which trainers hold whole ones and parts."""
    sizes = [base.pool_size // groups + (g < base.pool_size % groups) for g in range(groups)]
    parts = tuple(
        NodeGroup(
            size=size,
            node_class=f"class{g % classes}" if classes > 1 else "",
            departures=rng.random(),
            remaining_s=rng.choice([float("inf"), float("inf"), 30.0, 75.0]) if remaining else float("inf"),
        )
        for g, size in enumerate(sizes)
    )
    free, candidates = list(sizes), []
    for c in base.candidates:
        own, need, held = rng.randrange(classes), c.current, [0] * groups
        for g in range(own, groups, classes):
            held[g] = min(free[g], need)
            free[g] -= held[g]
            need -= held[g]
        candidates.append(replace(c, current=sum(held), held=tuple(held)))
    return replace(base, candidates=tuple(candidates), groups=parts)


def capped(base: Problem, users: int) -> Problem:
    """Caps per user."""
    ids = [c.trainer for c in base.candidates]
    most = base.pool_size // users
    caps = tuple(Cap(trainers=frozenset(ids[u::users]), n_max=most) for u in range(users))
    return replace(base, caps=caps)


def timed(solve: Callable[[], Plan]) -> tuple[float, Plan]:
    """Return the wall time of one solution in ms, and the plan."""
    begin = time.perf_counter()
    plan = solve()
    return (time.perf_counter() - begin) * 1e3, plan


def quantile(taken: list[float], q: float) -> float:
    """Return the value below which a share `q` of the times lies."""
    return sorted(taken)[min(len(taken) - 1, int(q * len(taken)))]


def shown(taken: list[float]) -> str:
    """Return median and 99th percentile as text."""
    return f"{statistics.median(taken):.2f} / {quantile(taken, 0.99):.2f}" if taken else "-"


def exact(repeat: int) -> None:
    """All methods on the same problems."""
    print("Milliseconds to a proven optimum, median / 99th percentile:\n")
    print(
        "| trainers x nodes | exact | plain recursion | aggregated MILP | node-level MILP "
        "| node-level / exact |"
    )
    print("|---|---|---|---|---|---|")
    for trainers, nodes in SIZES:
        rng = random.Random(f"{trainers} {nodes}")
        few = max(1, min(repeat, 5 if trainers < 100 else 2))
        times: dict[str, list[float]] = {name: [] for name in ("exact", "plain", "milp", "node")}
        ratios = []
        for i in range(repeat):
            one = problem(trainers, nodes, rng)
            taken, plan = timed(partial(knapsack.allocate, one))
            times["exact"].append(taken)
            if i >= few:
                continue
            begin = time.perf_counter()
            best, _ = knapsack.profile(value.tables(one.candidates, nodes, 120.0), nodes)
            times["plain"].append((time.perf_counter() - begin) * 1e3)
            assert oracle.same(float(best[-1]), plan.objective)
            taken, solved = timed(partial(milp.allocate, one, time_limit_s=600.0))
            times["milp"].append(taken)
            assert solved.proven, solved
            assert oracle.same(solved.objective, plan.objective) or trainers >= 1000, (solved.objective, plan)
            if (trainers, nodes) in NODE_LEVEL and i < 2:
                begin = time.perf_counter()
                answer = oracle.node_level(one, oracle.contiguous_map(one))
                times["node"].append((time.perf_counter() - begin) * 1e3)
                ratios.append(times["node"][-1] / times["exact"][-1])
                assert oracle.same(answer.objective, plan.objective)
        ratio = f"{statistics.median(ratios):,.0f}" if ratios else "-"
        columns = [shown(times[name]) for name in ("exact", "plain", "milp", "node")]
        print(f"| {trainers:,} x {nodes:,} | {' | '.join(columns)} | {ratio} |", flush=True)


def constrained(repeat: int) -> None:
    """Decisions under side constraints, as the daemon takes them."""
    print("\n35 trainers on 800 nodes under side constraints, time limit 1 s:\n")
    print("| constraint | ms, median / 99 % | proven | asked the solver | gap, median / worst |")
    print("|---|---|---|---|---|")
    kinds: dict[str, Callable[[random.Random], Problem]] = {
        "caps of 5 users": lambda rng: capped(problem(35, 800, rng), 5),
        "2 node classes": lambda rng: divided(
            problem(35, 800, rng), rng, groups=2, classes=2, remaining=False
        ),
        "20 departure groups": lambda rng: divided(
            problem(35, 800, rng), rng, groups=20, classes=1, remaining=False
        ),
        "20 groups, expected remaining times": lambda rng: divided(
            problem(35, 800, rng), rng, groups=20, classes=1, remaining=True
        ),
        "all together": lambda rng: capped(
            divided(problem(35, 800, rng), rng, groups=20, classes=2, remaining=True), 5
        ),
    }
    settings = EngineSettings(milp_time_limit_s=1.0)
    for name, make in kinds.items():
        rng = random.Random(name)
        taken, plans = [], []
        for _ in range(repeat):
            one = make(rng)
            ms, plan = timed(partial(ALLOCATORS["auto"], one, settings))
            taken.append(ms)
            plans.append(plan)
        gaps = [plan.gap for plan in plans]
        print(
            f"| {name} | {shown(taken)} | {sum(p.proven for p in plans)} of {len(plans)} "
            f"| {sum(p.allocator == 'milp' for p in plans)} "
            f"| {statistics.median(gaps):.1e} / {max(gaps):.1e} |",
            flush=True,
        )


SIZE_SETS = {
    "every size": EVERY_SIZE,
    "multiples of 2": AllowedSizes(multiple_of=2),
    "multiples of 8": AllowedSizes(multiple_of=8),
    "1, 2, 4, 8, 16, 32, 64": AllowedSizes(listed=(1, 2, 4, 8, 16, 32, 64)),
}


def sized(base: Problem, sizes: AllowedSizes) -> Problem:
    """The same problem with trainers that allow these sizes only."""
    least = sizes.above(0)
    return replace(base, candidates=tuple(replace(c, n_min=least, sizes=sizes) for c in base.candidates))


def by_sizes(repeat: int) -> None:
    """The same problems, where trainers allow some sizes only; each beside every size, in turn."""
    print("\nWhere trainers allow some sizes only, ms to a proven optimum, median / 99 %:\n")
    print("| trainers x nodes | sizes | exact | to every size | aggregated MILP | to every size |")
    print("|---|---|---|---|---|---|")
    for trainers, nodes in ((10, 400), (35, 800), (1000, 4608)):
        rng = random.Random(f"sizes {trainers} {nodes}")
        few = 5 if trainers < 100 else 0
        exact_ms: dict[str, list[float]] = {name: [] for name in SIZE_SETS}
        milp_ms: dict[str, list[float]] = {name: [] for name in SIZE_SETS}
        for i in range(repeat):
            base = problem(trainers, nodes, rng)
            for name, sizes in SIZE_SETS.items():
                one = sized(base, sizes)
                taken, plan = timed(partial(knapsack.allocate, one))
                exact_ms[name].append(taken)
                assert not oracle.infeasibilities(one, plan.counts)
                if i < few:
                    taken, solved = timed(partial(milp.allocate, one, time_limit_s=600.0))
                    milp_ms[name].append(taken)
                    assert oracle.same(solved.objective, plan.objective)
        for name in SIZE_SETS:
            ratios = [
                f"{statistics.median(ms[name]) / statistics.median(ms['every size']):.1f}"
                if ms[name]
                else "-"
                for ms in (exact_ms, milp_ms)
            ]
            columns = [shown(exact_ms[name]), ratios[0], shown(milp_ms[name]), ratios[1]]
            print(f"| {trainers:,} x {nodes:,} | {name} | {' | '.join(columns)} |", flush=True)


def by_solver() -> None:
    """The same model on every solver that is installed here."""
    print(
        "\nThe aggregated MILP at 35 x 800 by solver (ms, median of 5):\n\n"
        "| solver | SOS2 | ms |\n|---|---|---|"
    )
    for name, features in solvers.SOLVERS.items():
        if not solvers.available(name):
            continue
        rng = random.Random("solvers")
        taken = []
        for _ in range(5):
            one = problem(35, 800, rng)
            ms, plan = timed(partial(milp.allocate, one, time_limit_s=60.0, solver=name))
            assert plan.proven
            taken.append(ms)
        print(f"| {name} | {'yes' if features.sos2 else 'no'} | {statistics.median(taken):.0f} |", flush=True)


def _peak(queue: multiprocessing.Queue[float]) -> None:
    knapsack.allocate(problem(1000, 4608, random.Random(0)))
    queue.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def memory() -> None:
    """Print the peak memory of a fresh process that decides the largest problem."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_peak, args=(queue,))
    process.start()
    print(f"\nPeak memory of a process that decides 1,000 x 4,608: {queue.get():.0f} MB")
    process.join()


def main() -> None:
    """Print the tables one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=100)
    options = parser.parse_args()
    for name in ("knapsack", "milp"):  # imports are not what is measured
        ALLOCATORS[name](problem(2, 4, random.Random(0)), EngineSettings())
    exact(options.repeat)
    constrained(options.repeat)
    by_sizes(options.repeat)
    by_solver()
    memory()


if __name__ == "__main__":
    main()
