"""python -m lsf.emulator up|down|env|set|feed|play|demo"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from benchmarks.testbeds.options import demo_options
from bftrainer.errors import BftrainerError
from lsf.emulator import sites
from lsf.emulator.clock import RealClock, VirtualClock
from lsf.emulator.commands.context import Lsf
from lsf.emulator.core.cluster import Cluster, Coming
from lsf.emulator.core.model import OnPreempt, Site
from lsf.emulator.emulator import Emulator, EmulatorError
from lsf.emulator.manners import Manners
from lsf.emulator.server import Server

MOST = sites.SUMMIT_HOSTS
PLACE = Path("/tmp/bftrainer-lsf")  # noqa: S108  is created, and refused where it exists
USAGE = """\
{hosts} hosts are idle after {seconds:.1f} s. In a shell:
  export PATH={bin}:$PATH
  bhosts
  bsub -nnodes 2 -W 1 sleep 20        # a job; every process of it runs on this machine
Have it behave badly, and stop it:
  python -m lsf.emulator set --dir {directory} missing=1
  python -m lsf.emulator down --dir {directory}"""
directory = click.option(
    "--dir", "place", type=click.Path(path_type=Path), default=PLACE, show_default=True, help="Where it lies."
)


@click.group()
def main() -> None:
    """An emulated LSF on this machine."""


@main.command()
@directory
@click.option("--hosts", type=click.IntRange(1, sites.SUMMIT_HOSTS), default=4, show_default=True)
@click.option("--slots", type=click.IntRange(1, 1024), default=42, show_default=True, help="Of each host.")
@click.option("--gpus", type=click.IntRange(0, 100), default=0, show_default=True, help="Of each host.")
@click.option("--launch", type=click.IntRange(0, 16), default=0, show_default=True, help="Launch hosts.")
@click.option("--summit", is_flag=True, help="Names, launch hosts and dispatch cycle of Summit.")
@click.option(
    "--preempt",
    type=click.Choice(["requeue", "suspend", "kill", "none"]),
    default="requeue",
    show_default=True,
    help="What happens to jobs of killable whose hosts a job of batch takes.",
)
def up(place: Path, hosts: int, slots: int, gpus: int, launch: int, summit: bool, preempt: str) -> None:
    """Start an emulated LSF, and say how to use it."""
    how = None if preempt == "none" else OnPreempt(preempt)
    if summit:
        site = sites.summit(hosts, preempt=how)
    else:
        site = sites.small(hosts, slots=slots, gpus=gpus, launch=launch, preempt=how)
    begin = time.monotonic()
    found = Emulator(site=site, directory=place)
    found.up(stay=True)
    seconds = time.monotonic() - begin
    click.echo(USAGE.format(hosts=hosts, seconds=seconds, bin=found.bin, directory=found.directory))


@main.command()
@directory
def down(place: Path) -> None:
    """Stop exactly what `up` started, and all jobs."""
    Emulator.at(place).down()


@main.command()
@directory
def env(place: Path) -> None:
    """What to export, for `eval`."""
    click.echo(f"export PATH={Emulator.at(place).bin}:$PATH")


@main.command(name="set")
@directory
@click.argument("manners", nargs=-1, metavar="NAME=VALUE...")
def set_manners(place: Path, manners: tuple[str, ...]) -> None:
    """Switch bad manners, as missing=1 or hang=true, and parameters of the site, as report_s=5; values are
    JSON."""
    changes: dict[str, dict[str, Any]] = {"manners": {}, "site": {}}
    for word in manners:
        name, found, value = word.partition("=")
        if not found:
            raise click.BadParameter(f"{word!r}: write NAME=VALUE, as missing=1")
        changes["manners" if name in Manners.__slots__ else "site"][name] = json.loads(value)
    for action, given in changes.items():
        Emulator.at(place).control(action, **given)


LOADS = (
    click.option("--log", type=click.Path(path_type=Path, exists=True), help="An SWF log; else a seed."),
    click.option("--cores-per-node", type=click.IntRange(1), default=1, help="Of the log."),
    click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="Jobs to leave out."),
    click.option("--jobs", type=click.IntRange(1), default=1000, show_default=True, help="Jobs of the log."),
    click.option("--seed", default=0, show_default=True, help="Of generated jobs."),
    click.option(
        "--load", "share", type=click.FloatRange(0.01, 2), default=0.95, show_default=True,
        help="Of generated jobs, as a share of the hosts.",
    ),
)  # fmt: skip


def loads(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a load."""
    for option in reversed(LOADS):
        command = option(command)
    return command


def _coming(site: Site, hours: float, given: dict[str, Any]) -> list[Coming]:
    from lsf.emulator import load

    if given["log"] is None:
        return load.generated(site, hours * 3600, given["share"], given["seed"])
    options = {"cores_per_node": given["cores_per_node"], "first": given["first"], "count": given["jobs"]}
    return load.of_swf(given["log"], site, **options)


@main.command()
@click.option("--hosts", type=click.IntRange(1, MOST), default=MOST, show_default=True)
@click.option("--hours", type=click.FloatRange(0.1), default=24.0, show_default=True)
@click.option("--poll", type=click.FloatRange(1), help="Ask for hosts, jobs and windows every so many s.")
@loads
def play(hosts: int, hours: float, poll: float | None, **given: Any) -> None:
    """Play a load on a machine like Summit in virtual time."""
    from lsf.emulator import virtual

    site = sites.summit(hosts)
    until = hours * 3600
    asking = None if poll is None else (poll, virtual.Watcher())
    played = virtual.play(site, _coming(site, hours, given), until, poll=asking)
    for line in virtual.lines(played, site, until):
        click.echo(line)


@main.command()
@directory
@click.option(
    "--hours", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Of generated jobs."
)
@click.option("--speed", type=click.FloatRange(0.001), default=1.0, show_default=True)
@loads
def feed(place: Path, hours: float, speed: float, **given: Any) -> None:
    """Submit a load to a running emulator, faster than it was."""
    from lsf.emulator.load import at_speed

    found = Emulator.at(place)
    coming = (entry for entry in _coming(found.site, hours, given) if entry[0] >= 0)
    found.feed(list(at_speed(coming, speed)))  # what fills a machine before that would come all at once


@main.command()
@demo_options
def demo(nodes: int, seconds: float, **wanted: Any) -> None:
    """Main jobs come and go on a new emulated LSF, and the trainers in SPECS fill the holes."""
    from benchmarks.testbeds import demo
    from lsf.impact.machine import LsfMachine

    signal.signal(signal.SIGTERM, _terminated)  # so that contexts are left: nothing stays behind
    with Emulator(hosts=nodes, cycle_s=1.0) as found:
        sys.exit(demo.played(LsfMachine(found), seconds, **wanted))


def _terminated(number: int, frame: object) -> None:
    sys.exit(128 + number)


@main.command(hidden=True)
@directory
@click.option("--until-eof", is_flag=True)
def serve(place: Path, until_eof: bool) -> None:
    """Serve in the foreground what `up` has laid out."""
    start = json.loads((place / "start.json").read_text())
    site = sites.SITE.validate_json((place / "site.json").read_bytes())
    clock = RealClock() if start["virtual"] is None else VirtualClock(start["virtual"])
    lsf = Lsf(Cluster(site, clock.now()), replace(Manners(), **start["manners"]))

    async def whole() -> None:
        """Return when it is told to stop."""
        await Server(place, lsf, clock).serve(until_eof=until_eof)

    asyncio.run(whole())


if __name__ == "__main__":
    try:
        main()
    except (BftrainerError, EmulatorError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
