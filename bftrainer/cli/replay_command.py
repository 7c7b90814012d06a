"""bftrainer replay"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from bftrainer.cli.shared.groups import ManyOptions
from bftrainer.cli.shared.options import json_option, setting_options
from bftrainer.cli.shared.progress import progress_bar
from bftrainer.cli.shared.replays import calibration
from bftrainer.cli.shared.replays.dedicated import ALSO_OF_CLUSTERS, WorkloadFile, dedicated_options
from bftrainer.cli.shared.replays.figures import print_figures
from bftrainer.cli.shared.replays.iterations import iterations_options
from bftrainer.cli.shared.replays.log_options import log_options, print_notes
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Finite, Input, OutputPath, Positive, parse_utc
from bftrainer.messages.commands.lines import NEEDS, NOT_RECORDED, WITHOUT_MILP
from bftrainer.messages.files.tables import WRONG_VALUE
from bftrainer.settings.sources import load
from bftrainer.settings.values import Settings, of_command
from bftrainer.traces import recorded
from bftrainer.traces.logs import LogOptions

DEFAULTS = asdict(LogOptions())
"""Defaults of the options for reading a log."""


@click.command("replay", cls=ManyOptions)
@click.argument("log", type=Input(dir_okay=True), required=False)
@click.option(
    "--workload",
    type=WorkloadFile(),
    help="Job table (CSV job,Tcup,Tcdw,Jmin,Jmax,Pmax,Tsub,model) or YAML list of trainer specs; with "
    "--profiles pollux:FILE (CSV name,time,application,num_replicas,batch_size).",
)
@click.option(
    "--curves",
    type=Input(),
    help="Scalability curves of a job table's models (CSV model,nodes,images_per_s).",
)
@click.option(
    "--model", metavar="NAME", help="All trainers of a job table train this model.  [default: their own]"
)
@click.option("--nodes", type=click.IntRange(min=1), help="Take N of the log's nodes.  [default: all]")
@click.option(
    "--pick",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="Choose these at random, by a seed.  [default: the first by name]",
)
@click.option("--from", "begin", metavar="ISO", help="Where to begin, UTC.  [default: where the log does]")
@click.option("--hours", type=Positive(), help="How long.  [default: to the log's end]")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Only the first N trainers.  [default: all; with --iterations 500]",
)
@click.option("--cost-scale", type=Finite(min=0, max=1e6), help="All rescale costs times this.  [default: 1]")
@click.option(
    "--stall-up",
    "stall_up_s",
    type=Finite(min=0, max=1e6),
    metavar="SECONDS",
    help="All members stand still so long when nodes join.  [default: as in the workload]",
)
@click.option(
    "--stall-down",
    "stall_down_s",
    type=Finite(min=0, max=1e6),
    metavar="SECONDS",
    help="All members stand still so long when nodes leave.  [default: as in the workload]",
)
@click.option(
    "--init",
    "init_s",
    type=Finite(min=0, max=1e6),
    metavar="SECONDS",
    help="New nodes initialise so long while the members train on.  [default: as in the workload]",
)
@click.option(
    "--knowledge",
    type=click.Choice(["all", "none"]),
    help="Whether decisions know curves and costs, or have to learn them.  [default: all]",
)
@click.option(
    "--noise",
    type=Finite(min=0, max=10),
    help="With --knowledge none: relative spread of the speeds that are measured.  [default: 0]",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed of this noise, or with --iterations of the jobs.  [default: 0]",
)
@click.option(
    "--jct-first",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show mean runtime and turnaround of the first N trainers, if they all complete.",
)
@click.option(
    "--out",
    type=OutputPath(),
    help="Keep a record for bftrainer report in this file (NAME.json.gz).",
)
@log_options
@setting_options(*(name for name in of_command("replay") if name not in ALSO_OF_CLUSTERS))
@json_option
@iterations_options
@dedicated_options
def command(
    log: Path,
    log_options: LogOptions,
    begin: str | None,
    out: Path | None,
    as_json: bool,
    config: Path | None,
    **given: Any,
) -> None:
    """Replay LOG, which says when nodes were idle, with the trainers of a workload.

    LOG is a CSV of idle intervals (idle_start,idle_end,node in Unix seconds), or a log of a scheduler's
    jobs, see bftrainer trace; plain, .gz or .xz. The same engine that the daemon runs decides; everything
    between its decisions is simulated.

    LOG may also be a daemon's state directory, or the database in it. Then what it recorded is replayed,
    without any other option. The samples that this predicts are shown beside those of the record.

    With --cluster there is no LOG: jobs have a dedicated cluster, and their speeds and gradient noise are
    those that --profiles has. Without --cluster they have LOG's nodes, of --gpus-per-node each.

    With --iterations, jobs of lengths drawn from LOG share devices by iteration.
    """
    from bftrainer.replay.calibrate import history

    if history.is_history(log):
        asked = {name: value for name, value in asdict(log_options).items() if value != DEFAULTS[name]}
        calibration.refuse_options(**{**given, **asked, "from": begin, "out": out})
        _replay_history(log, as_json=as_json)
        return
    if log.is_dir() and not recorded.is_series(log):
        raise click.UsageError(f"LOG {log}: {NOT_RECORDED.say()}")
    if given["workload"] is None:
        raise click.UsageError(
            NEEDS.say(command="a replay", option="--workload", what="what is to be trained on LOG's nodes")
        )
    settings = load({name: given.pop(name) for name in of_command("replay")}, file=config)
    parameters = {"log": log, "begin": parse_utc(begin), **given, **asdict(log_options)}
    _replay_log(parameters, settings, out, as_json=as_json)


def _replay_history(log: Path, *, as_json: bool) -> None:
    """Replay what a daemon recorded, and print predicted beside recorded samples."""
    from bftrainer.replay.calibrate import history
    from bftrainer.replay.calibrate.compare import compare

    with progress_bar("replay", shown=not as_json) as progress:
        past = history.load(log)
        span = max(1e-9, past.end - past.begin)
        comparison = compare(past, lambda now: progress((now - past.begin) / span))
    calibration.show(comparison, as_json=as_json)


def _replay_log(parameters: dict[str, Any], settings: Settings, out: Path | None, *, as_json: bool) -> None:
    """Replay a log with a workload, write a record to `out`, and print the figures."""
    from bftrainer.replay import scenario
    from bftrainer.replay.evaluate import evaluate
    from bftrainer.replay.inputs import load_log
    from bftrainer.replay.record import storage

    if out is not None and not out.name.endswith(storage.SUFFIX):
        raise click.UsageError(
            WRONG_VALUE.say(name="--out", given=out, wanted=f"a name that ends in {storage.SUFFIX}")
        )
    started = time.perf_counter()
    asked = scenario.of(parameters, settings, "replay")
    print_notes(load_log(asked))
    with progress_bar("replay", shown=not as_json) as progress:
        done = evaluate(asked, progress, name=out.name.removesuffix(storage.SUFFIX) if out else None)
    if out is not None and done.report_data is not None:
        storage.write(done.report_data, out)
    figures = {**done.figures, "wall_s": time.perf_counter() - started}
    if done.fallbacks:
        what = f"{figures['fallbacks']} of {figures['decisions']} decisions were"
        say(f"warning: {WITHOUT_MILP.say(what=what, why=done.fallbacks[0])}", err=True)
    if as_json:
        print_json(figures)
    else:
        print_figures(figures)
