"""bftrainer plan"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrainer.cli.shared.options import json_option
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Input, Output, Span

if TYPE_CHECKING:
    from bftrainer.search.plan.baselines import Plan
    from bftrainer.search.plan.planner import Answer

METHODS = ("exact", "greedy", "static", "naive elastic")


@click.command("plan")
@click.argument("search", type=Input())
@click.option(
    "--deadline", type=Span(), required=True, help="All is to be done within this, such as 90m or 2h."
)
@click.option(
    "--profile", "profile_path", type=Input(), help="Speed of a trial, latencies and prices (YAML)."
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    help="Show the plan of this planner.  [default: the cheapest of all]",
)
@click.option("--samples", type=click.IntRange(1, 100_000), default=64, show_default=True, help="Draws.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the draws.")
@click.option("--picture", type=Output(".png", ".svg", ".pdf"), help="Draw the plan to this file.")
@json_option
def command(
    search: Path,
    deadline: float,
    profile_path: Path | None,
    method: str | None,
    samples: int,
    seed: int,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Plan SEARCH, a file with the stages of a search, under a deadline: nodes, time and cost.

    SEARCH gives halving, hyperband or stages. The exit code is 1 if nothing meets the deadline; then the
    fastest plan is shown, and what later deadlines would cost.
    """
    from bftrainer.cli.shared import plan_tables
    from bftrainer.search.plan import planner, read
    from bftrainer.search.plan.simulate import Simulator

    found = read.experiments(read.document(search))
    profile = read.profile(read.document(profile_path) if profile_path else None)
    simulators = [Simulator(experiment, profile, samples=samples, seed=seed) for experiment in found]
    answers = [planner.plan(simulator, deadline) for simulator in simulators]
    shown = [_shown(answer, method) for answer in answers]
    later = [
        planner.later(simulator, answer) if plan is None else []
        for simulator, answer, plan in zip(simulators, answers, shown, strict=True)
    ]
    names = [experiment.name for experiment in found]
    if as_json:
        print_json(plan_tables.as_json(names, answers, shown, later, profile))
    else:
        for name, answer, plan, costs in zip(names, answers, shown, later, strict=True):
            plan_tables.print_plan(name, answer, plan, costs, profile)
        if len(found) > 1 and all(shown):
            plan_tables.print_sum([plan for plan in shown if plan], profile)
    if picture is not None:
        _draw(names, answers, shown, picture)
    if not all(shown):
        click.get_current_context().exit(1)


def _shown(answer: Answer, method: str | None) -> Plan | None:
    return answer.others[method] if method else answer.chosen


def _draw(names: list[str], answers: list[Answer], shown: list[Plan | None], path: Path) -> None:
    from bftrainer.cli.shared.plan_tables import clock
    from bftrainer.search.plan import picture

    plans = [
        (
            f"{name}: {clock((plan or answer.fastest).estimate.jct_s)}",
            plan or answer.fastest,
            answer.others["static"],
        )
        for name, answer, plan in zip(names, answers, shown, strict=True)
    ]
    picture.draw(plans, answers[0].deadline_s, path)
    say(f"picture in {path}", err=True)
