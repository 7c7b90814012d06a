"""python -m slurm.testbed up|down|status|env"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

import click

from benchmarks.testbeds.options import demo_options
from bftrainer.errors import BftrainerError
from slurm.testbed.bed import Testbed

PLACE = Path("/tmp/bftrainer-testbed")  # noqa: S108  is created, and refused where it exists

USAGE = """\
{nodes} nodes are idle after {seconds:.1f} s. In a shell:
  export SLURM_CONF={conf}
  sinfo
  sbatch --nodes 2 --time 1 --wrap 'sleep 20'        # a main job
A daemon that harvests it, with pilots in the partition `backfill`:
  bftrainer daemon --scheduler slurm --slurm-mode {mode} --slurm-partition backfill{qos}
Its logs are in {directory}/log, finished jobs in {directory}/jobcomp.log, its munge at {munge}.
Stop it:
  python -m slurm.testbed down --dir {directory}"""


class NodeSets(click.ParamType[tuple[str, str]]):
    """`n[1-2]=VALUE`."""

    name = "NODES=VALUE"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The node set and what its nodes have."""
        nodes, found, having = value.partition("=")
        if not (nodes and found and having):
            self.fail(f"{value!r}: write nodes=value, as in n[1-2]=gpu:2", param, ctx)
        return nodes, having


directory = click.option(
    "--dir", "place", type=click.Path(path_type=Path), default=PLACE, show_default=True, help="Where it lies."
)


@click.group()
def main() -> None:
    """A whole Slurm on this machine, from nothing and on loopback."""


@main.command()
@directory
@click.option("--nodes", type=click.IntRange(1, 1024), default=16, show_default=True)
@click.option("--users", default="", metavar="A,B", help="Unix users to make where they are missing.")
@click.option("--no-preemption", is_flag=True, help="A site that preempts nothing (slurm_mode window).")
@click.option("--stock", is_flag=True, help="Slurm's own scheduler parameters, not ones that act at once.")
@click.option("--shared", is_flag=True, help="Main jobs share nodes: each has the cores that it asks for.")
@click.option(
    "--heterogeneous", is_flag=True, help="Keep heterogeneous jobs from preempting pilots; with accounting."
)
@click.option("--slurmdbd", is_flag=True, help="With accounting, on a MariaDB of its own.")
@click.option("--features", multiple=True, type=NodeSets(), help="Features of nodes; may be repeated.")
@click.option("--gres", multiple=True, type=NodeSets(), help="GRES of nodes, as n[1-2]=gpu:2.")
def up(
    place: Path,
    nodes: int,
    users: str,
    no_preemption: bool,
    stock: bool,
    shared: bool,
    heterogeneous: bool,
    slurmdbd: bool,
    features: tuple[tuple[str, str], ...],
    gres: tuple[tuple[str, str], ...],
) -> None:
    """Bring a testbed up, and say how to use it."""
    bed = Testbed(
        nodes,
        directory=place,
        preemption=not no_preemption,
        stock=stock,
        shared=shared,
        heterogeneous=heterogeneous,
        slurmdbd=slurmdbd,
        users=[name for name in users.split(",") if name],
        features=dict(features),
        gres=dict(gres),
    )
    begin = time.monotonic()
    bed.up()
    plan = bed.plan
    words = {"conf": str(plan.conf), "directory": str(plan.directory), "munge": str(plan.munge_socket)}
    words["mode"] = "window" if no_preemption else "preempt"
    words["qos"] = " --slurm-qos bftrainer --slurm-account bftrainer" if plan.heterogeneous else ""
    click.echo(USAGE.format(nodes=nodes, seconds=time.monotonic() - begin, **words))


@main.command()
@directory
@click.option("--keep", is_flag=True, help="Keep the directory with its logs.")
def down(place: Path, keep: bool) -> None:
    """Stop exactly what `up` started, and all jobs."""
    Testbed.at(place).down(keep=keep)


@main.command()
@directory
def status(place: Path) -> None:
    """Which processes are alive, and in which state the nodes are; exit 1 if a process is gone."""
    bed = Testbed.at(place)
    alive = bed.status()
    states = bed.states() if bed.answers(within_s=5) else {}
    for name, lives in alive.items():
        click.echo(f"{name}\t{'alive' if lives else 'gone'}\t{states.get(name, '')}".rstrip())
    sys.exit(0 if all(alive.values()) else 1)


@main.command()
@directory
def env(place: Path) -> None:
    """What to export, for `eval`."""
    bed = Testbed.at(place)
    click.echo(f"export SLURM_CONF={bed.plan.conf}")


@main.command()
@demo_options
def demo(nodes: int, seconds: float, **wanted: Any) -> None:
    """Main jobs come and go on a new testbed, and the trainers in SPECS fill the holes."""
    from benchmarks.testbeds import demo
    from slurm.testbed.machine import SlurmMachine

    with Testbed(nodes) as bed:
        sys.exit(demo.played(SlurmMachine(bed), seconds, **wanted))


def _terminated(number: int, frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)  # so that contexts are left: nothing stays behind
    try:
        main()
    except BftrainerError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
