"""Plans for searches as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bftrainer.cli.shared.tables import print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.model.text import clock
from bftrainer.search.plan.baselines import Plan
from bftrainer.search.plan.planner import Answer, Later
from bftrainer.search.plan.profile import Profile


def print_plan(
    name: str, answer: Answer, plan: Plan | None, later: Sequence[Later], profile: Profile
) -> None:
    """Print one experiment's plan and how other planners do; if nothing is on time, what would be."""
    unit = profile.billing.unit
    shown = plan or answer.fastest
    if plan is None:
        say(
            f"{name}: nothing meets the deadline of {clock(answer.deadline_s)}. With at most "
            f"{profile.nodes} nodes the fastest plan takes {clock(shown.estimate.jct_s)}:\n"
        )
    else:
        say(f"{name}: {plan.method} plan for a deadline of {clock(answer.deadline_s)}\n")
    _stages(shown, profile)
    own = shown.estimate
    say(
        f"\ntime {clock(own.jct_s)} (std {own.jct_std_s:.0f} s), cost {money(own.total, unit)} (std "
        f"{own.total_std:.2f}), on time in {own.chance(answer.deadline_s):.0%} of {own.cost.shape[1]} draws\n"
    )
    if plan is None:
        columns = ("deadline", _cost(unit), "most nodes")
        rows = [(clock(one.deadline_s), _cell(one.cost, unit), str(one.nodes)) for one in later]
    else:
        columns = ("planner", "time", _cost(unit))
        rows = [(method, *_figures(found, unit)) for method, found in answer.others.items()]
    print_table(columns, rows, numbers=columns[1:])
    say()


def print_sum(plans: Sequence[Plan], profile: Profile) -> None:
    """Print what several experiments beside each other take and cost."""
    longest = max(plan.estimate.jct_s for plan in plans)
    total = sum(plan.estimate.total for plan in plans)
    most = sum(max(step.nodes for step in plan.steps) for plan in plans)
    say(
        f"all {len(plans)} beside each other: time {clock(longest)}, "
        f"cost {money(total, profile.billing.unit)}, "
        f"at most {most} nodes"
    )


def _figures(plan: Plan | None, unit: str) -> tuple[str, str]:
    return (clock(plan.estimate.jct_s), _cell(plan.estimate.total, unit)) if plan else ("-", "-")


SIGNS = ("$", "€", "£")
"""Units that stand before their amount, in every cell; others stand once, in the head of a column."""


def money(amount: float, unit: str) -> str:
    """An amount in its unit: $12.30, or 12.30 node-hours."""
    number = f"{amount:,.2f}" if amount >= 0.1 or not amount else f"{amount:.2g}"
    return f"{unit}{number}" if unit in SIGNS else f"{number} {unit}".rstrip()


def _cell(amount: float, unit: str) -> str:
    return money(amount, unit if unit in SIGNS else "")


def _cost(unit: str) -> str:
    return "cost" if unit in SIGNS or not unit else f"cost ({unit})"


def as_json(
    names: Sequence[str],
    answers: Sequence[Answer],
    shown: Sequence[Plan | None],
    later: Sequence[Sequence[Later]],
    profile: Profile,
) -> dict[str, Any]:
    """Everything that the tables say, as plain data."""
    found = zip(names, answers, shown, later, strict=True)
    return {
        "unit": profile.billing.unit,
        "feasible": all(shown),
        "experiments": [
            {
                "name": name,
                "deadline_s": answer.deadline_s,
                "plan": _plan(plan, answer.deadline_s) if plan else None,
                "lower_bound": answer.bound,
                "planners": {
                    method: {"jct_s": other.estimate.jct_s, "cost": other.estimate.total} if other else None
                    for method, other in answer.others.items()
                },
                "fastest": _plan(answer.fastest, answer.deadline_s),
                "later": [
                    {"deadline_s": one.deadline_s, "cost": one.cost, "nodes": one.nodes} for one in costs
                ],
            }
            for name, answer, plan, costs in found
        ],
    }


def _plan(plan: Plan, deadline_s: float) -> dict[str, Any]:
    own = plan.estimate
    return {
        "method": plan.method,
        "jct_s": own.jct_s,
        "jct_std_s": own.jct_std_s,
        "cost": own.total,
        "cost_std": own.total_std,
        "on_time": own.chance(deadline_s),
        "stages": [
            {
                "trials": step.stage.trials,
                "iterations": step.stage.iterations,
                "parallel": step.parallel,
                "workers_per_trial": step.workers,
                "nodes": step.nodes,
                "seconds": float(seconds),
                "cost": float(cost),
            }
            for step, seconds, cost in zip(
                plan.steps, own.seconds.mean(axis=1), own.cost.mean(axis=1), strict=True
            )
        ],
    }


def _stages(plan: Plan, profile: Profile) -> None:
    what = "nodes" if profile.node_workers == 1 else "workers"
    columns = (
        "stage",
        "trials",
        "iterations",
        "at a time",
        f"{what} per trial",
        "cluster (nodes)",
        "time",
        _cost(profile.billing.unit),
    )
    times, costs = plan.estimate.seconds.mean(axis=1), plan.estimate.cost.mean(axis=1)
    rows = [
        (
            k + 1,
            step.stage.trials,
            f"{step.stage.iterations:g}",
            step.parallel,
            step.workers,
            step.nodes,
            clock(float(times[k])),
            _cell(float(costs[k]), profile.billing.unit),
        )
        for k, step in enumerate(plan.steps)
    ]
    print_table(columns, rows, numbers=columns)
