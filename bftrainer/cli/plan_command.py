"""bftrainer plan"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bftrainer.cli import plan_size
from bftrainer.cli.shared.groups import SuggestingGroup
from bftrainer.cli.shared.options import json_option
from bftrainer.cli.shared.replays.log_options import log_options
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Finite, Input, OutputPath, Span
from bftrainer.messages.commands.lines import NEEDS, NOT_WITH, ONLY_WITH
from bftrainer.messages.files.tables import WRONG_VALUE
from bftrainer.traces.logs import LogOptions

if TYPE_CHECKING:
    from bftrainer.search.plan.baselines import StagePlan
    from bftrainer.search.plan.planner import DeadlineAnswer
    from bftrainer.search.plan.pools.pool import Pool

METHODS = ("exact", "greedy", "greedy-repaired", "static", "naive elastic")


class PlanCommands(SuggestingGroup):
    """The plans. What names none of them is the file of a search: `plan FILE` is `plan search FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command's name before the words of a search."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["search", *args]
        return super().parse_args(ctx, args)


@click.group("plan", cls=PlanCommands)
def command() -> None:
    """Plan a search under a deadline, or the nodes of one training, before anything is run.

    bftrainer plan SEARCH is short for bftrainer plan search SEARCH.
    """


command.add_command(plan_size.command)


@command.command("search")
@click.argument("search", type=Input())
@click.option(
    "--deadline",
    type=Span(),
    help="All is to be done within this, such as 90m or 2h.  [default: the study's]",
)
@click.option(
    "--profile", "profile_path", type=Input(), help="Speed of a trial, latencies and prices (YAML)."
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    help="Show the plan of this planner; exact: the cheapest even one.  [default: the cheapest of all]",
)
@click.option(
    "--chance",
    type=Finite(min=0.0, max=1.0),
    help="On time in so large a share of fresh draws, such as 0.95.  [default: on average]",
)
@click.option("--samples", type=click.IntRange(1, 100_000), default=64, show_default=True, help="Draws.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the draws.")
@click.option("--pool", type=Input(), metavar="LOG", help="Forecast the search on this log of idle nodes.")
@click.option("--pool-nodes", type=click.IntRange(min=1), help="Take N of LOG's nodes.  [default: all]")
@click.option(
    "--starts", type=click.IntRange(1, 100_000), default=200, show_default=True, help="Moments of LOG."
)
@click.option(
    "--buy",
    type=Finite(min=0.0, max=1.0),
    is_flag=False,
    flag_value=0.95,
    metavar="[CHANCE]",
    help="With --pool: the least ordinary node-hours that raise the chance so far.  [with no value: 0.95]",
)
@click.option("--picture", type=OutputPath(".png", ".svg", ".pdf"), help="Draw the plan to this file.")
@log_options
@json_option
def search_command(
    search: Path,
    deadline: float | None,
    profile_path: Path | None,
    method: str | None,
    chance: float | None,
    samples: int,
    seed: int,
    pool: Path | None,
    pool_nodes: int | None,
    starts: int,
    buy: float | None,
    picture: Path | None,
    log_options: LogOptions,
    as_json: bool,
) -> None:
    """Plan SEARCH under a deadline: nodes, time and cost by stage.

    SEARCH is a study, whose trainer says how fast a trial is if the profile does not; or a file that gives
    halving, hyperband or stages. The exit code is 1 if nothing meets the deadline; then the
    fastest plan is shown, and what later deadlines would cost.

    With --pool nothing is bought: LOG says when nodes were idle, and the search is replayed on it from many
    moments on. You see when it would end, and how likely it meets the deadline.
    """
    from bftrainer.cli.shared.replays.log_options import read_log
    from bftrainer.cli.studies import plan_tables
    from bftrainer.search.plan import beside, read
    from bftrainer.search.plan.model.experiment import joined
    from bftrainer.search.plan.model.simulate import Simulator
    from bftrainer.search.plan.pools.execution import side_by_side
    from bftrainer.search.plan.pools.pool import Pool
    from bftrainer.traces.logs import cut

    given = read.search(search, profile_path)
    found, profile = given.experiments, given.profile
    deadline = deadline or given.deadline_s
    if deadline is None:
        raise click.UsageError(NEEDS.say(command="a plan", option="--deadline", what="the search names none"))
    if pool is not None:
        if method is not None or chance is not None:
            raise click.UsageError(NOT_WITH.say(options="--method, --chance", other="--pool"))
        if log_options.share == "gpu" and profile.node_workers > 1:
            wanted = "node_workers: 1, and nodes and workers in GPUs: --share gpu counts each GPU by itself"
            raise click.UsageError(
                WRONG_VALUE.say(name="node_workers:", given=profile.node_workers, wanted=wanted)
            )
        own = Simulator(joined(found), profile, samples=samples, seed=seed)
        log = cut(read_log(pool, log_options), None, None, pool_nodes)
        brackets = side_by_side(len(experiment.stages) for experiment in found)
        _forecast(Pool(own, log, deadline, starts, seed, brackets), buy, picture, as_json=as_json)
        return
    if buy is not None:
        raise click.UsageError(ONLY_WITH.say(options="--buy", other="--pool LOG"))
    question = beside.Question(profile, deadline, chance, method, samples, seed)
    whole = beside.together(found, question)
    parts = whole.parts
    answers = [part.answer for part in parts]
    shown = [question.shown(answer) for answer in answers]
    names = [part.name for part in parts]
    if as_json:
        print_json(plan_tables.as_json(names, answers, shown, profile, whole))
    elif not all(shown):
        plan_tables.print_refusal(whole, question)
    else:
        plans = [plan for plan in shown if plan]
        for name, answer, plan in zip(names, answers, plans, strict=True):
            plan_tables.print_plan(name, answer, plan, profile)
        if len(found) > 1:
            plan_tables.print_sum(plans, profile, whole)
    if picture is not None:
        _draw(names, answers, shown, picture)
    if not all(shown):
        click.get_current_context().exit(1)


def _forecast(pool: Pool, level: float | None, path: Path | None, *, as_json: bool) -> None:
    """Print when the search would end on a pool, and what to buy for the chance that is wanted."""
    from bftrainer.cli.studies import pool_forecast
    from bftrainer.search.plan.buy import buy

    harvested = pool.forecast()
    bought = None if level is None else buy(pool, level)
    if as_json:
        print_json(pool_forecast.as_json(pool, harvested, bought, level))
    else:
        pool_forecast.print_forecast(pool, harvested, bought, level)
    if path is not None:
        from bftrainer.search.plan.picture import draw_ends

        lines = [("harvested nodes only", harvested.seconds)]
        lines += [("with ordinary nodes", bought.forecast.seconds)] if bought else []
        draw_ends(lines, pool.deadline_s, path)
        say(f"picture in {path}", err=True)
    if bought is not None and not bought.reached:
        click.get_current_context().exit(1)


def _draw(names: list[str], answers: list[DeadlineAnswer], shown: list[StagePlan | None], path: Path) -> None:
    from bftrainer.model.text import clock
    from bftrainer.search.plan import picture

    plans = [
        (
            f"{name}: {clock(answer.fresh(plan or answer.fastest).jct_s)}",
            plan or answer.fastest,
            answer.others.get("static"),
        )
        for name, answer, plan in zip(names, answers, shown, strict=True)
    ]
    picture.draw(plans, answers[0].deadline_s, path)
    say(f"picture in {path}", err=True)
