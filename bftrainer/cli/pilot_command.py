"""bftrainer pilot"""

from __future__ import annotations

import asyncio
import os
import shlex
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli.shared.completion import complete_node
from bftrainer.cli.shared.options import setting_options
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Finite
from bftrainer.messages.commands.lines import NEEDS, NO_BATCH_SYSTEM
from bftrainer.messages.commands.reaching import BATCH_SYSTEM
from bftrainer.settings.sources import load
from bftrainer.settings.values import of_command

if TYPE_CHECKING:
    from bftrainer.ports import Scheduler
    from bftrainer.schedulers.shared.batch import BatchScheduler, BatchView
    from bftrainer.settings.values import Settings

TAG, SECRET, ANY_NODE = "0" * 32, "(secret)", "NODE"


@click.command("pilot")
@click.option("--dry-run", is_flag=True, help="Print the job; submit nothing.")
@click.option(
    "--node",
    default=ANY_NODE,
    show_default=True,
    shell_complete=complete_node,
    help="The node that it is to hold.",
)
@click.option("--user", default="", help="Mode site: as whom it is to run.  [default: you]")
@click.option(
    "--limit",
    type=Finite(min=0, max=1e9),
    metavar="SECONDS",
    help="How long the hole is.  [default: what the batch system expects]",
)
@setting_options(*of_command("pilot"))
def command(
    dry_run: bool, node: str, user: str, limit: float | None, config: Path | None, **overrides: Any
) -> None:
    """Show the batch job that would hold a node: the exact command line of sbatch or bsub, and the script
    that it gets on its standard input, without the secret.

    The command asks the batch system for limits and for the node. A warning on standard error tells if the
    node is not free or the batch system does not answer. Words in capitals stand for what only the daemon
    knows.
    """
    from bftrainer.daemon.clock import WallClock
    from bftrainer.daemon.process.compose import place_for_agents
    from bftrainer.errors import BftrainerError, SchedulerError
    from bftrainer.model.machine import Pilot
    from bftrainer.schedulers.shared.instance import instance
    from bftrainer.settings.schedulers import SCHEDULERS

    if not dry_run:
        raise BftrainerError(
            NEEDS.say(
                command="pilot",
                option="--dry-run",
                what="it shows a pilot, and the daemon alone submits them",
            )
        )
    settings = load(overrides, file=config)
    kind = SCHEDULERS[settings.scheduler]
    if kind.on_this_machine:
        raise BftrainerError(NO_BATCH_SYSTEM.say(scheduler=settings.scheduler))
    pilot = Pilot(tag=TAG, node=node, user=user or _pilot_user(settings))
    agents_at = ":".join(place_for_agents(settings))
    own = instance(settings.state_dir, create=False)
    make = import_module(kind.module).batch
    scheduler: BatchScheduler[BatchView] = make(settings, agents_at, own, WallClock())
    hole_s, warning = _hole(scheduler, node)
    try:
        request = scheduler.request(pilot, SECRET, hole_s if limit is None else limit)
    except SchedulerError as error:
        raise BftrainerError(BATCH_SYSTEM.ends(str(error))) from error
    if warning:
        say(f"warning: {warning}", err=True)
    before = "".join(f"{name}={shlex.quote(value)} " for name, value in request.environ.items())
    say(f"{before}{shlex.join(request.words)} <<'EOF'\n{request.stdin.rstrip()}\nEOF")


def _pilot_user(settings: Settings) -> str:
    """Return the user that a pilot of the caller's trainers runs as; empty for the daemon's own user.

    Raises:
        BftrainerError: The caller is root, which trains nothing.
    """
    from bftrainer.errors import BftrainerError
    from bftrainer.schedulers.shared.users import own_name

    if settings.mode != "site":
        return ""
    if os.geteuid() == 0:
        raise BftrainerError(
            NEEDS.say(command="mode site", option="--user NAME", what="pilots run as users, and none as root")
        )
    return own_name()


def _hole(scheduler: Scheduler, node: str) -> tuple[float | None, str]:
    """Return for how long a node stays idle, and why the daemon would submit no pilot there now.

    None if the batch system plans no job there, or does not tell.
    """
    from ClusterShell.NodeSet import NodeSet

    from bftrainer.errors import SchedulerError

    try:
        snapshot = asyncio.run(scheduler.poll())
    except SchedulerError as error:
        return None, BATCH_SYSTEM.ends(f"{error}; so neither limits nor the node are known")
    found = next((n for n in snapshot.nodes if n.name == node), None)
    if found is None:
        names = NodeSet.fromlist([n.name for n in snapshot.nodes])
        return (
            None,
            "" if node == ANY_NODE else f"there is no node {node!r} where pilots go, only {names}",
        )
    against = f"{node} is not free: {found.why}; the daemon would submit nothing now" if found.why else ""
    return None if found.until is None else found.until - snapshot.time, against
