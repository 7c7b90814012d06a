"""bftrainer daemon"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from bftrainer.cli.shared.groups import ManyOptions
from bftrainer.cli.shared.options import setting_options
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Input, Positive, parse_utc
from bftrainer.messages.commands.lines import NOT_WITH, ONLY_WITH
from bftrainer.settings.sources import load
from bftrainer.settings.values import of_command

SWITCH_S = 0.0001
"""Seconds until a thread that makes a plan or a large answer yields the interpreter to the event loop."""
COLLECTED_AT = (5_000, 5, 5)
"""Garbage is collected in small portions: all that a flood leaves would stop everything for seconds."""

LOCAL = ("log", "main_jobs", "speed", "nodes", "gpus", "start", "seed")
"""The options of the log that the local scheduler replays."""


@click.command("daemon", cls=ManyOptions)
@click.option(
    "--log",
    type=Input(),
    help="local: play this log of idle nodes (any format of `bftrainer trace`) instead of a generated one.",
)
@click.option(
    "--main-jobs",
    type=Input(),
    help="local: instead of a log, take main jobs from lines that are added to this file: `ask JOB n01 n02` "
    "waits for these nodes, `take JOB n01` takes them at once, `end JOB`.",
)
@click.option(
    "--speed",
    type=Positive(most=100_000),
    default=1.0,
    show_default=True,
    help="local: seconds of the log per second.",
)
@click.option(
    "--nodes",
    type=click.IntRange(min=1, max=1024),
    default=4,
    show_default=True,
    help="local: number of nodes (slots of this machine).",
)
@click.option(
    "--gpus",
    type=click.IntRange(min=0, max=64),
    default=0,
    show_default=True,
    help="local: GPUs of each node, which are simulated where this machine has too few.",
)
@click.option("--from", "start", metavar="ISO", help="local: where in the log to begin, UTC.")
@click.option("--seed", default=0, show_default=True, help="local: of the generated log.")
@click.pass_context
@setting_options(*of_command("daemon"))
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def command(
    ctx: click.Context,
    /,
    log: Path | None,
    main_jobs: Path | None,
    speed: float,
    nodes: int,
    gpus: int,
    seed: int,
    start: str | None,
    verbose: bool,
    config: Path | None,
    **overrides: Any,
) -> None:
    """Run the daemon until SIGTERM or Ctrl-C; every trainer then writes a checkpoint and waits for the
    next start. Killed without notice, a new daemon takes over what it left running.

    On Slurm it holds idle nodes with preemptible jobs of one node each; `bftrainer pilot --dry-run`
    prints one.

    The local scheduler makes a cluster of this machine: its nodes are idle when a log says so, or while no
    main job wants them. At the end of an idle interval everything on the node is killed.
    """
    from bftrainer.background import end_others
    from bftrainer.daemon.lanes import READ_S
    from bftrainer.daemon.process.compose import compose
    from bftrainer.daemon.process.reloading import try_solver
    from bftrainer.daemon.process.serve import serve
    from bftrainer.daemon.systemd import Systemd
    from bftrainer.schedulers.shared.context import PlayedLog
    from bftrainer.state_dir.folder import make_state_dir
    from bftrainer.state_dir.lock import exclusively
    from bftrainer.state_dir.risks import risks
    from bftrainer.store.sql import SqlStore
    from bftrainer.telemetry.log import configure, note
    from bftrainer.threads import loop_with_gaps

    settings = load(overrides, file=config)
    if gpus and settings.share == "gpu":  # of each of the local scheduler's nodes
        overrides["gpus_per_node"] = gpus
        settings = load(overrides, file=config)
    _check_local(ctx, settings.scheduler, log, main_jobs, start)
    configure(settings.log_format, verbose=verbose, bounded=True)
    faulthandler.enable()  # systemd ends a daemon that is stuck by SIGABRT: its stacks are worth having
    if settings.allocator == "milp":  # else `serve` tries it: to load it takes longer than all the rest
        try_solver(settings)
    shared = settings.state_dir_on_network
    site = settings.mode == "site"
    make_state_dir(settings.state_dir, private=site, on_network=shared, say=_say)
    for sentence in risks(settings.state_dir, os.geteuid(), site=site):
        note(logging.getLogger(__name__), "risk", logging.WARNING, reason=sentence)
    with exclusively(settings.state_dir, on_network=shared):
        store = SqlStore(settings.database, query_s=READ_S / 2)
        try:
            played = PlayedLog(
                path=log,
                nodes=nodes,
                speed=speed,
                seed=seed,
                begin=parse_utc(start),
                gpus=gpus,
                main_jobs=main_jobs,
            )
            daemon = compose(settings, store, played, _say)
            systemd = Systemd.of(os.environ, os.getpid())
            in_short_turns()
            with asyncio.Runner(loop_factory=loop_with_gaps) as runner:
                try:
                    runner.run(serve(daemon, lambda: load(overrides, file=config), systemd))
                finally:
                    runner.run(end_others())
        finally:
            store.close()


def _check_local(
    ctx: click.Context, scheduler: str, log: Path | None, main_jobs: Path | None, start: str | None
) -> None:
    """Refuse options of the local scheduler that do not go together, or with the scheduler."""
    from bftrainer.settings.schedulers import SCHEDULERS

    if log is None and start is not None:
        raise click.UsageError(ONLY_WITH.say(options="--from", other="--log"))
    if log is not None and main_jobs is not None:
        raise click.UsageError(NOT_WITH.say(options="--log", other="--main-jobs"))
    if not SCHEDULERS[scheduler].on_this_machine:
        here = " or ".join(name for name, kind in SCHEDULERS.items() if kind.on_this_machine)
        for name in LOCAL:
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                option = "from" if name == "start" else name.replace("_", "-")
                raise click.UsageError(ONLY_WITH.say(options=f"--{option}", other=f"--scheduler {here}"))


def in_short_turns() -> None:
    """Set this process's interpreter so that its event loop never waits for long."""
    gc.set_threshold(*COLLECTED_AT)
    gc.freeze()  # to go through all modules again and again takes longer than most answers
    sys.setswitchinterval(SWITCH_S)


def _say(sentence: str) -> None:
    say(sentence, err=True)
