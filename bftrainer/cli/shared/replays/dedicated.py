"""`bftrainer replay --cluster`: jobs on a dedicated cluster, in place of trainers on a log's idle nodes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from bftrainer.cli.shared.options import given_parameters, option_of, with_options
from bftrainer.cli.shared.progress import progress_bar
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.types import Finite, Input
from bftrainer.messages.commands.lines import NEEDS, NOT_OFFERED, NOT_WITH, ONLY_WITH
from bftrainer.settings.setting import choices_of, facts
from bftrainer.settings.values import Settings

if TYPE_CHECKING:
    from bftrainer.replay.dedicated.cluster import ClusterPolicy

F = TypeVar("F", bound=Callable[..., Any])
ALLOCATORS = ("goodput", "optimus", "tiresias")
SHAPE = re.compile(r"([1-9][0-9]{0,3})x([1-9])")
POLLUX = "pollux:"
MEASUREMENTS = "the folder with the measurements of the workload's programs"
OF_GOODPUT = (
    *("declared_epochs", "shared_profiles", "power", "goodput_objective", "change_cost", "largest_batches"),
    *("low_utility", "high_utility", "min_nodes"),
)
ALSO_OF_CLUSTERS = ("allocator", "low_utility", "high_utility")
"""Settings for which a dedicated cluster has options, too, which say what they do there."""
PAUSES = ("init_s", "stall_up_s", "stall_down_s")
OWN = ("cluster", "interval_s", "workload", "profiles", "allocator", *OF_GOODPUT, *PAUSES, "as_json")


class Shape(click.ParamType[tuple[int, int]]):
    """A cluster as NODESxGPUS, such as 16x4."""

    name = "NODESxGPUS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return nodes and GPUs per node; refuse what is no shape."""
        found = SHAPE.fullmatch(str(value).strip())
        if not found:
            quoted = ascii(value)[:100]
            self.fail(
                f"{quoted} is no cluster; give 16x4 for 16 nodes (at most 9999) of 4 GPUs (9)", param, ctx
            )
        return int(found[1]), int(found[2])


class WorkloadFile(click.ParamType[Path | str]):
    """A file to read, or pollux:FILE."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        """Return the path, or the text pollux:FILE; refuse a file that does not exist."""
        text = str(value)
        path: Path = Input().convert(text.removeprefix(POLLUX), param, ctx)
        return f"{POLLUX}{path}" if text.startswith(POLLUX) else path


def _options() -> list[Callable[[F], F]]:
    of_logs = choices_of(Settings.model_fields["allocator"], facts(Settings)["allocator"])
    help_ = facts(Settings)["allocator"].help
    return [
        click.option(
            "--cluster",
            type=Shape(),
            help="Replay a dedicated cluster, such as 16x4, and no log's idle nodes. A job restarts for 30 s "
            "if its workers change; with --init, --stall-up or --stall-down those that stay train on.",
        ),
        click.option(
            "--profiles",
            type=Input(file_okay=False, dir_okay=True),
            help="With --workload pollux:FILE: a folder with the measurements of each of its programs.",
        ),
        click.option(
            "--interval",
            "interval_s",
            type=Finite(min=1, max=3600),
            metavar="SECONDS",
            help="With --cluster or --iterations: time from decision to decision.  [default: 60]",
        ),
        *_goodput_options(),
        click.option(
            "--allocator",
            type=click.Choice([*(of_logs or ()), *ALLOCATORS]),
            help=f"{help_.capitalize()}; with --cluster {', '.join(ALLOCATORS)}.  "
            f"[default: {Settings.model_fields['allocator'].default}; with --cluster goodput]",
        ),
    ]


def _goodput_options() -> list[Callable[[F], F]]:
    return [
        click.option(
            "--declared-epochs", is_flag=True, help="With --allocator goodput: jobs say how long they train."
        ),
        click.option(
            "--shared-profiles",
            is_flag=True,
            help="With --allocator goodput: jobs of one program share the speeds that they measure.",
        ),
        click.option(
            "--power",
            type=Finite(min=0.05, max=1.0),
            default=0.5,
            show_default=True,
            help="With --allocator goodput: power of speed-ups.",
        ),
        click.option(
            "--goodput-objective",
            type=click.Choice(["ranked", "weighted", "harmonic"]),
            help="With --allocator goodput: speed-ups by rank, or Pollux's means of them.  [default: ranked]",
        ),
        click.option(
            "--change-cost",
            type=click.Choice(["time", "penalty", "factor"]),
            help="With --allocator goodput: a change of workers costs the time in which a job restarts; or, "
            "as in Pollux's versions, 0.25 of its speed-up, or the part of its age that restarts took.  "
            "[default: time]",
        ),
        click.option(
            "--largest-batches",
            is_flag=True,
            help="With --allocator goodput: workers fill their memory, and throughput alone decides.",
        ),
        click.option(
            "--low-utility",
            type=Finite(min=0, max=1),
            help="Give nodes back where they are used less than this: a trainer's, or with --cluster and "
            "--allocator goodput those of all jobs.  [default: none]",
        ),
        click.option(
            "--high-utility",
            type=Finite(min=0, max=1),
            help="And take more where they are used more than this.  [default: all that help]",
        ),
        click.option(
            "--min-nodes", type=click.IntRange(min=1), help="With both: keep so many.  [default: 1]"
        ),
    ]


def dedicated_options(command: F) -> F:
    """Add the options of a dedicated cluster to a command, which is called only where no cluster is given."""

    @wraps(command)
    def either(
        *args: Any,
        cluster: tuple[int, int] | None,
        profiles: Path | None,
        interval_s: float | None,
        **others: Any,
    ) -> Any:
        """Replay the cluster, or call the command."""
        of_goodput = {name: others.pop(name) for name in OF_GOODPUT}
        if cluster is None:
            others |= {name: of_goodput[name] for name in ALSO_OF_CLUSTERS if name in of_goodput}
            others["workload"] = _refuse_without_cluster(profiles, others["workload"], others["allocator"])
            return command(*args, profiles=profiles, **others)
        _refuse_with_cluster(profiles, others["workload"], others["allocator"])
        return _replay(
            Path(others["workload"].removeprefix(POLLUX)),
            Path(profiles or "."),
            cluster,
            others["allocator"] or ALLOCATORS[0],
            of_goodput,
            {name: others[name] for name in PAUSES},
            interval_s,
            as_json=others["as_json"],
        )

    return with_options(cast(F, either), _options())


def _refuse_without_cluster(
    profiles: Path | None, workload: Path | str | None, allocator: str | None
) -> Path | None:
    """The workload's path. Raises `UsageError` for what only a dedicated cluster has."""
    if click.get_current_context().params["log"] is None:
        what = "the log of nodes to replay. Or give --cluster to replay a dedicated cluster"
        raise click.UsageError(NEEDS.say(command="a replay", option="LOG", what=what))
    given = given_parameters()
    own = [name for name in ("interval_s", *OF_GOODPUT) if name not in ALSO_OF_CLUSTERS]
    only = [option_of(name) for name in own if name in given]
    if allocator in ALLOCATORS:
        only.append(f"--allocator {allocator}")
    if only:
        raise click.UsageError(ONLY_WITH.say(options=", ".join(only), other="--cluster"))
    if not isinstance(workload, str):
        if profiles is not None:
            raise click.UsageError(ONLY_WITH.say(options="--profiles", other=f"--workload {POLLUX}FILE"))
        return workload
    if profiles is None:
        raise click.UsageError(
            NEEDS.say(command=f"--workload {POLLUX}FILE", option="--profiles DIR", what=MEASUREMENTS)
        )
    if foreign := sorted(given & {"curves", "model", "knowledge"}):
        raise click.UsageError(NOT_WITH.say(options=", ".join(map(option_of, foreign)), other="--profiles"))
    return Path(workload.removeprefix(POLLUX))


def _refuse_with_cluster(profiles: Path | None, workload: Path | str | None, allocator: str | None) -> None:
    """Raise `UsageError` for what a dedicated cluster lacks or has not."""
    if profiles is None:
        raise click.UsageError(NEEDS.say(command="--cluster", option="--profiles DIR", what=MEASUREMENTS))
    if not isinstance(workload, str):
        what = "the jobs in Pollux' form"
        option = f"--workload {POLLUX}FILE.csv"
        raise click.UsageError(NEEDS.say(command="--cluster", option=option, what=what))
    if allocator is not None and allocator not in ALLOCATORS:
        choices = ", ".join(ALLOCATORS)
        raise click.UsageError(
            NOT_OFFERED.say(what="--allocator", given=allocator, where="--cluster", choices=choices)
        )
    if foreign := sorted(given_parameters() - set(OWN)):
        raise click.UsageError(NOT_WITH.say(options=", ".join(map(option_of, foreign)), other="--cluster"))
    if "power" in given_parameters() and click.get_current_context().params["goodput_objective"] not in (
        None,
        "ranked",
    ):
        raise click.UsageError(ONLY_WITH.say(options="--power", other="--goodput-objective ranked"))
    if allocator in ALLOCATORS[1:] and (own := sorted(given_parameters() & set(OF_GOODPUT))):
        options = ", ".join(map(option_of, own))
        raise click.UsageError(ONLY_WITH.say(options=options, other="--allocator goodput"))


def _replay(
    workload: Path,
    profiles: Path,
    shape: tuple[int, int],
    allocator: str,
    of_goodput: dict[str, Any],
    given: dict[str, float | None],
    interval_s: float | None,
    *,
    as_json: bool,
) -> None:
    from bftrainer.replay.dedicated import cluster, job
    from bftrainer.replay.dedicated.workload import FIXED, read_jobs

    started = time.perf_counter()
    pauses = job.PUBLISHED
    if any(value is not None for value in given.values()):
        pauses = job.Pauses(**{name: value or 0.0 for name, value in given.items()}, rescales=True)
    policy = _policy(allocator, of_goodput, shape[0], pauses.change_s)
    jobs = read_jobs(workload, profiles)
    room, shared = cluster.ClusterShape(*shape), of_goodput["shared_profiles"]
    with progress_bar("replay", shown=not as_json) as progress:
        replayed = cluster.run(
            jobs,
            room,
            policy,
            fixed=FIXED,
            shared=shared,
            pauses=pauses,
            tick_s=interval_s or cluster.TICK_S,
            progress=progress,
        )
    figures = {**cluster.figures_of(replayed, room), "wall_s": time.perf_counter() - started}
    if as_json:
        print_json(figures)
        return
    _print(figures)


def _policy(allocator: str, given: dict[str, Any], nodes: int, change_s: float) -> ClusterPolicy:
    """The allocator of this name; `given` has the options of OF_GOODPUT, a cluster `nodes` nodes."""
    from bftrainer.allocate.goodput.counts import ChangeCost, GoodputAim
    from bftrainer.allocate.goodput.sizes import UtilityBounds
    from bftrainer.replay.dedicated.policies import policy_of

    low, high, least = given["low_utility"], given["high_utility"], given["min_nodes"]
    bounds = {"--low-utility": low, "--high-utility": high}
    named = [option for option, value in {**bounds, "--min-nodes": least}.items() if value is not None]
    if named and (low is None or high is None):
        missing = [option for option, value in bounds.items() if value is None]
        raise click.UsageError(ONLY_WITH.say(options=", ".join(named), other=" and ".join(missing)))
    return policy_of(
        allocator,
        declared=given["declared_epochs"],
        power=given["power"],
        aim=GoodputAim(given["goodput_objective"] or "ranked"),
        cost=ChangeCost(given["change_cost"] or "time"),
        by_throughput=given["largest_batches"],
        utility=None if low is None else UtilityBounds(low, high, least or 1, nodes),
        change_s=change_s,
    )


def _print(figures: dict[str, Any]) -> None:
    rows = [
        ("jobs", f"{figures['jobs']:,}"),
        ("last job ended (h)", f"{figures['end_s'] / 3600:.2f}"),
        ("GPU-hours", f"{figures['gpu_hours']:,.0f} ({figures['gpus_busy']:.0%} of the cluster's)"),
        ("node-hours", f"{figures['node_hours']:,.1f}"),
        ("restarts", f"{figures['restarts']:,}"),
        ("decisions", f"{figures['decisions']:,}"),
        ("decision time (ms)", _line(figures["decision_ms"], 1)),
        ("completion time (s)", _line(figures["completion_s"], 0)),
    ]
    rows += [(f"  of {name}", _line(times, 0)) for name, times in figures["completion_by_program_s"].items()]
    print_table(("", ""), [*rows, ("wall time (s)", f"{figures['wall_s']:.1f}")])


def _line(spread: dict[str, float], digits: int) -> str:
    return ", ".join(f"{name} {value:,.{digits}f}" for name, value in spread.items())
