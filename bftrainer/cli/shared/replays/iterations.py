"""`bftrainer replay --iterations`: jobs that share devices by iteration, and no trainers on idle nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from bftrainer.cli.shared.options import given_parameters, option_of, with_options
from bftrainer.cli.shared.progress import progress_bar
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.types import Finite, Positive
from bftrainer.messages.commands.lines import NEEDS, NOT_INSTALLED, NOT_WITH, ONLY_WITH

F = TypeVar("F", bound=Callable[..., Any])
SHOWN = ("tiresias", "gandiva", "jigsaw")
"""Policies that are compared unless others are named."""
NAMES = (
    *("tiresias", "gandiva", "gang-size", "gang-longest", "gang-shortest"),
    *("full-product", "full-size", "full-las", "full-longest", "full-shortest"),
    *("jigsaw", "jigsaw-size", "jigsaw-literal"),
    *("partial-las", "partial-longest", "partial-searched", "partial-shortest"),
)
OWN = (
    "policies",
    "devices",
    "memory_gb",
    "gamma",
    "weigh",
    "work_hours",
    "longest_hours",
    "every_s",
    "gbit_s",
)
SHARED = ("log", "iterations", "jobs", "seed", "interval_s", "as_json")
"""Parameters of `replay` that hold here, too."""


def _options() -> list[Callable[[F], F]]:
    return [
        click.option(
            "--iterations",
            is_flag=True,
            help="LOG is the log of Philly, from which lengths of jobs are drawn (--jobs, --seed): their "
            "iterations share devices, after Jigsaw.",
        ),
        click.option(
            "--policy",
            "policies",
            type=click.Choice(NAMES),
            multiple=True,
            help=f"With --iterations, as often as you like.  [default: {', '.join(SHOWN)}]",
        ),
        click.option(
            "--devices", type=click.IntRange(1, 4096), help="With --iterations: how many.  [default: 45]"
        ),
        click.option(
            "--device-memory",
            "memory_gb",
            type=Positive(most=1e4),
            metavar="GB",
            help="With --iterations: of each.  [default: 16]",
        ),
        *_workload_options(),
    ]


def _workload_options() -> list[Callable[[F], F]]:
    return [
        click.option(
            "--gamma",
            type=Finite(min=0, max=1e4),
            metavar="SECONDS",
            help="With --iterations: a move takes so long per GB of the model.  [default: 0.8]",
        ),
        click.option(
            "--weigh",
            is_flag=True,
            help="With --iterations: a worker also moves once it has waited longer than a move takes.",
        ),
        click.option(
            "--work-hours",
            type=Positive(most=1e4),
            help="With --iterations: all jobs' work, per device.  [default: 10]",
        ),
        click.option(
            "--longest-hours",
            type=Positive(most=1e4),
            help="With --iterations: no job lasts longer alone.  [default: 2.5]",
        ),
        click.option(
            "--every",
            "every_s",
            type=Finite(min=0, max=1e6),
            metavar="SECONDS",
            help="With --iterations: time between two arrivals.  [default: 30]",
        ),
        click.option(
            "--gbit",
            "gbit_s",
            type=Positive(least=1e-3, most=1e6),
            help="With --iterations: bandwidth of the gradients' exchange, Gbit/s.  [default: no time]",
        ),
    ]


def iterations_options(command: F) -> F:
    """Add these options to a command, which is called only without `--iterations`."""

    @wraps(command)
    def either(*args: Any, iterations: bool, **others: Any) -> Any:
        """Replay the jobs, or call the command."""
        own = {name: others.pop(name) for name in OWN}
        if not iterations:
            if foreign := sorted(map(option_of, given_parameters() & set(OWN))):
                raise click.UsageError(ONLY_WITH.say(options=", ".join(foreign), other="--iterations"))
            return command(*args, **others)
        if foreign := sorted(map(option_of, given_parameters() - {*OWN, *SHARED})):
            raise click.UsageError(NOT_WITH.say(options=", ".join(foreign), other="--iterations"))
        if others["log"] is None or others["log"].is_dir():
            what = "the log of Philly (CSV duration,num_gpus and more)"
            raise click.UsageError(NEEDS.say(command="--iterations", option="LOG", what=what))
        shared = {name: others[name] for name in SHARED if name not in ("log", "iterations", "as_json")}
        given = {name: value for name, value in {**own, **shared}.items() if value is not None}
        return _replay(others["log"], given, as_json=others["as_json"])

    return with_options(cast(F, either), _options())


def _replay(log: Path, given: dict[str, Any], *, as_json: bool) -> None:
    """Replay the jobs under each policy, and print the figures."""
    try:
        from bftrainer.replay.iterations import policies
    except ModuleNotFoundError as error:
        if error.name != "numba":
            raise
        raise click.UsageError(
            NOT_INSTALLED.say(
                what="--iterations", package="Numba", how="pip install '.[iterations]' in the checkout"
            )
        ) from None
    from bftrainer.iterations.model import PlanRules
    from bftrainer.replay.iterations.workload import MixOptions, mix, read_durations

    names = {"jobs": "jobs", "every_s": "every_s", "devices": "devices", "work_hours": "hours"}
    names |= {"longest_hours": "longest_hours", "gbit_s": "gbit_s"}
    options = MixOptions(**{names[name]: value for name, value in given.items() if name in names})
    of_rules = {"gamma": "gamma_s_per_gb", "interval_s": "interval_s", "weigh": "weigh"}
    rules = PlanRules(**{of_rules[name]: value for name, value in given.items() if name in of_rules})
    jobs = mix(read_durations(log), options, given.get("seed", 0))
    found: dict[str, Any] = {}
    with progress_bar("replay", shown=not as_json) as progress:
        chosen = tuple(dict.fromkeys(given["policies"] or SHOWN))
        for place, name in enumerate(chosen):

            def advance(done: float, place: int = place, name: str = name) -> None:
                progress((place + done) / len(chosen), name)

            ended = policies.replay(jobs, options, rules, given.get("memory_gb", 16.0), name, advance)
            found[name] = policies.figures_of(ended, options.devices)
    if as_json:
        print_json({"jobs": options.jobs, "devices": options.devices, "policies": found})
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    first = next(iter(found.values()))["makespan_h"]
    rows = [
        (
            name,
            f"{figures['makespan_h']:.2f}",
            f"{figures['makespan_h'] / first - 1:+.1%}",
            f"{figures['completion_h']['mean']:.2f}",
            f"{figures['completion_h']['p99']:.2f}",
            f"{figures['devices_busy']:.0%}",
            f"{figures['moved']:.0%}",
            f"{figures['decision_s']['max']:.2f}",
        )
        for name, figures in found.items()
    ]
    columns = (
        "makespan (h)",
        "to the first",
        "mean completion (h)",
        "p99 (h)",
        "busy",
        "moved",
        "decision (s)",
    )
    print_table(("policy", *columns), rows, numbers=columns)
