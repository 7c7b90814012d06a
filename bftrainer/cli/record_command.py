"""bftrainer record"""

from __future__ import annotations

import asyncio
import signal
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer import __version__
from bftrainer.cli.shared.options import setting_options
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import OutputPath, Positive
from bftrainer.messages.commands.lines import NO_BATCH_SYSTEM
from bftrainer.settings.schedulers import SCHEDULERS
from bftrainer.settings.sources import load
from bftrainer.settings.values import of_command

if TYPE_CHECKING:
    from bftrainer.recording.recorder import SiteRecorder


@click.command("record")
@click.argument("folder", type=OutputPath(file_okay=False))
@click.option(
    "--every",
    "poll_s",
    type=Positive(least=1.0, most=3600.0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Time from one snapshot to the next.",
)
@click.option("--hours", type=Positive(), help="How long.  [default: until it is stopped]")
@click.option(
    "--rotate-mb",
    type=Positive(least=0.01),
    default=64.0,
    show_default=True,
    metavar="MB",
    help="Begin a new file, and pack the old one, after so much or a day.",
)
@click.option(
    "--most-mb",
    type=Positive(least=0.01),
    default=5000.0,
    show_default=True,
    metavar="MB",
    help="End when all files have so much.",
)
@setting_options(*of_command("record"))
def command(
    folder: Path,
    poll_s: float,
    hours: float | None,
    rotate_mb: float,
    most_mb: float,
    config: Path | None,
    **overrides: Any,
) -> None:
    """Record in FOLDER which nodes of this machine are idle, until Ctrl-C or SIGTERM. Needs no daemon,
    submits and changes nothing: it runs the commands with which bftrainer looks at the batch system.

    `bftrainer trace info FOLDER` and `bftrainer replay FOLDER` read what was recorded, also while it goes on.
    No names of users or jobs are written. Where the batch system does not answer or the disk is full, it goes
    on when that is over.
    """
    from bftrainer.daemon.clock import WallClock
    from bftrainer.errors import BftrainerError
    from bftrainer.recording import lines
    from bftrainer.recording.recorder import SiteRecorder
    from bftrainer.recording.series import Series

    settings = load(overrides, file=config)
    kind, clock = SCHEDULERS[settings.scheduler], WallClock()
    if kind.on_this_machine:
        raise BftrainerError(NO_BATCH_SYSTEM.say(scheduler=settings.scheduler))
    scheduler = import_module(kind.module).observer(settings, clock)
    series = Series(folder, rotate_mb=rotate_mb, most_mb=most_mb)
    header = lines.header(settings.scheduler, __version__, poll_s)
    recorder = SiteRecorder(scheduler, series, clock, header=header, poll_s=poll_s, say=_say)
    _say(f"{settings.scheduler} every {poll_s:g} s to {folder}; Ctrl-C or SIGTERM ends it")
    try:
        asyncio.run(_until_stopped(recorder, hours))
    finally:
        series.close()
        counts = recorder.counts
        _say(
            f"ended: {counts.snapshots:,} snapshots, {counts.failed:,} polls without an answer, "
            f"{counts.unwritten:,} snapshots that could not be written"
        )


async def _until_stopped(recorder: SiteRecorder, hours: float | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stop.set)
    await recorder.run(stop, hours)


def _say(sentence: str) -> None:
    say(f"{datetime.now().astimezone().isoformat(timespec='seconds')} {sentence}", err=True)
