"""Plans for searches as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

from bftrainer.cli.shared.tables import print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.model.text import clock, counted
from bftrainer.search.plan.baselines import StagePlan
from bftrainer.search.plan.beside import Question, Whole
from bftrainer.search.plan.model.profile import ExperimentProfile
from bftrainer.search.plan.model.simulate import PlanEstimate
from bftrainer.search.plan.planner import DeadlineAnswer
from bftrainer.search.plan.soonest import Order


def print_plan(name: str, answer: DeadlineAnswer, plan: StagePlan, profile: ExperimentProfile) -> None:
    """Print one experiment's plan and how other planners do."""
    unit = profile.billing.unit
    say(f"{name}: {plan.method} plan for a deadline of {clock(answer.deadline_s)}\n")
    _print_figures(answer, plan, profile)
    say(_proof(answer, unit))
    say()
    columns = ("planner", "time", _cost(unit), "late draws")
    rows = [(method, *_figures(answer, found, unit)) for method, found in answer.others.items()]
    print_table(columns, rows, numbers=columns[1:])
    say()


def print_refusal(whole: Whole, question: Question) -> None:
    """Print that nothing is on time, the fastest plan, and what later deadlines cost.

    A planner that was asked for may have no plan on time where others have one.
    """
    profile, method, chance = question.profile, question.method, question.chance
    what, of_any = (f"no {method} plan", " of any planner") if method else ("nothing", "")
    often, on_average = ("", "") if chance is None else (f" in {chance:.6g} of the draws", ", on average")
    parts = [(part.name, part.answer, part.answer.fastest) for part in whole.parts]
    name = parts[0][0] if len(parts) == 1 else f"{len(parts)} brackets, {whole.order}"
    longest = ceil(max(answer.fresh(plan).jct_s for _, answer, plan in parts))
    say(
        f"{name}: {what} meets the deadline of {clock(parts[0][1].deadline_s)}{often}. With at most "
        f"{counted(profile.nodes, 'node')} the fastest plan{of_any} takes {clock(longest)}{on_average}:\n"
    )
    for own, answer, plan in parts:
        if len(parts) > 1:
            say(f"{own}:\n")
        _print_figures(answer, plan, profile)
        say()
    columns = (f"deadline{on_average}", _cost(profile.billing.unit), "most nodes")
    rows = [
        (clock(ceil(one.deadline_s)), _cell(one.cost, profile.billing.unit), str(one.nodes))
        for one in whole.later
    ]
    print_table(columns, rows, numbers=columns[1:])
    if why := whole.untried:
        say(f"\nnot tried: trial by trial on nodes that are held all the time, as {why}")
    say()


def _print_figures(answer: DeadlineAnswer, plan: StagePlan, profile: ExperimentProfile) -> None:
    fresh = answer.fresh(plan)
    if plan.steps:
        _stages(plan, fresh, profile)
    else:
        say(
            f"{counted(plan.nodes, 'node')} from begin to end; all trials share them as in a daemon: whoever "
            "waits has the next node that becomes free"
        )
    say(
        f"\ntime {clock(fresh.jct_s)} (std {fresh.jct_std_s:.0f} s), "
        f"cost {money(fresh.total, profile.billing.unit)} (std {fresh.total_std:.2f}); "
        f"of {fresh.cost.shape[1]:,} fresh draws {late(answer, plan):.1%} are late"
    )


def late(answer: DeadlineAnswer, plan: StagePlan) -> float:
    """The share of fresh draws in which a plan misses the deadline."""
    return 1.0 - answer.fresh(plan).chance(answer.deadline_s)


def _proof(answer: DeadlineAnswer, unit: str) -> str:
    """Return what is known of how much cheaper a plan could be."""
    if "exact" not in answer.others:
        return "not proven: of plans that share nodes trial by trial, only fixed numbers of nodes are tried"
    if answer.others["exact"] is None:
        return "exact: no even plan was found that is on time"
    if answer.proven:
        return "exact: proven, no even plan that is on time on average is cheaper"
    bound = "" if answer.bound is None else f"; none costs less than {money(answer.bound, unit)}"
    return f"exact: not proven to be the cheapest even plan{bound}"


def print_sum(plans: Sequence[StagePlan], profile: ExperimentProfile, whole: Whole) -> None:
    """Print what several experiments take and cost together, and what is proven of that."""
    if len(plans) > 1:
        fresh = [part.answer.fresh(plan) for part, plan in zip(whole.parts, plans, strict=True)]
        longest = max(one.jct_s for one in fresh)
        total = sum(one.total for one in fresh)
        most = sum(plan.nodes for plan in plans)
        say(
            f"all {len(plans)} {whole.order}: time {clock(longest)}, "
            f"cost {money(total, profile.billing.unit)}, "
            f"at most {counted(most, 'node')}; of fresh draws {late_of_all(whole, plans):.1%} are late"
        )
    if whole.proven:
        say("proven: in no other order of the brackets is an even plan cheaper")
    else:
        others = [order for order in Order if order not in whole.tried]
        untried = ", ".join([*others, "mixtures"])
        say(f"the cheapest of what was tried: {', '.join(whole.tried)}; {untried} are not tried")


def late_of_all(whole: Whole, plans: Sequence[StagePlan]) -> float:
    """The share of fresh draws in which not all of several plans meet the deadline: each draws for itself."""
    return 1.0 - prod(1.0 - late(part.answer, plan) for part, plan in zip(whole.parts, plans, strict=True))


def _figures(answer: DeadlineAnswer, plan: StagePlan | None, unit: str) -> tuple[str, str, str]:
    """Time, cost and late draws. A plan is chosen as the best by the draws that it was made with, so these
    flatter it."""
    if plan is None:
        return "-", "-", "-"
    fresh = answer.fresh(plan)
    return clock(fresh.jct_s), _cell(fresh.total, unit), f"{late(answer, plan):.1%}"


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
    answers: Sequence[DeadlineAnswer],
    shown: Sequence[StagePlan | None],
    profile: ExperimentProfile,
    whole: Whole,
) -> dict[str, Any]:
    """Everything that the tables say, as plain data."""
    later = [{"deadline_s": one.deadline_s, "cost": one.cost, "nodes": one.nodes} for one in whole.later]
    found = zip(names, answers, shown, strict=True)
    return {
        "unit": profile.billing.unit,
        "feasible": all(shown),
        "order": str(whole.order),
        "proven": whole.proven,
        "late": late_of_all(whole, [plan for plan in shown if plan]) if all(shown) else None,
        "later": later,
        "experiments": [
            {
                "name": name,
                "deadline_s": answer.deadline_s,
                "plan": _plan(plan, answer) if plan else None,
                "lower_bound": answer.bound,
                "proven": answer.proven,
                "planners": {
                    method: _summary(answer, other) if other else None
                    for method, other in answer.others.items()
                },
                "fastest": _plan(answer.fastest, answer),
                "later": later if len(answers) == 1 else [],
            }
            for name, answer, plan in found
        ],
    }


def _summary(answer: DeadlineAnswer, plan: StagePlan) -> dict[str, float]:
    fresh = answer.fresh(plan)
    return {"jct_s": fresh.jct_s, "cost": fresh.total, "late": late(answer, plan)}


def _plan(plan: StagePlan, answer: DeadlineAnswer) -> dict[str, Any]:
    own, late_share = answer.fresh(plan), late(answer, plan)
    return {
        "method": plan.method,
        "jct_s": own.jct_s,
        "cost": own.total,
        "late": late_share,
        "jct_std_s": own.jct_std_s,
        "cost_std": own.total_std,
        "nodes": plan.nodes,
        "on_time": 1.0 - late_share,
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
                plan.steps, own.seconds.mean(axis=1), own.cost.mean(axis=1), strict=False
            )
        ],
    }


def _stages(plan: StagePlan, own: PlanEstimate, profile: ExperimentProfile) -> None:
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
    times, costs = own.seconds.mean(axis=1), own.cost.mean(axis=1)
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
