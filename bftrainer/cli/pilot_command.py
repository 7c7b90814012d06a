"""bftrainer pilot"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from bftrainer.cli.options import complete_node, load_settings, setting_options

TAG, SECRET = "0" * 32, "(secret)"


@click.command("pilot")
@click.option("--dry-run", is_flag=True, help="Print the job; submit nothing.")
@click.option(
    "--node",
    default="NODE",
    show_default=True,
    shell_complete=complete_node,
    help="The node that it is to hold.",
)
@click.option("--user", default="", help="As whom it is to run (mode site).")
@click.option("--limit", type=click.FloatRange(min=0), metavar="SECONDS", help="How long the hole is.")
@setting_options("state_dir", "slurm_partition", "slurm_qos", "slurm_account", "slurm_mode")
def command(
    dry_run: bool, node: str, user: str, limit: float | None, config: Path | None, **overrides: Any
) -> None:
    """Show the batch job that would hold a node on Slurm: the exact command line of sbatch, and the script
    that it gets on its standard input, without the secret.
    """

    from bftrainer.cli import machines
    from bftrainer.errors import BftrainerError
    from bftrainer.model import Pilot
    from bftrainer.ports import SchedulerError
    from bftrainer.schedulers import slurm_pilot

    if not dry_run:
        raise BftrainerError("pilots are submitted by the daemon; see one with --dry-run")
    settings = load_settings(config, overrides)
    pilot = Pilot(tag=TAG, node=node, user=user)
    agents_at = settings.listen or f"{settings.address}:PORT"
    job = machines.pilot_job(settings, agents_at, machines.instance(settings))
    try:
        words = slurm_pilot.command(job, pilot, limit, None)
        said = shlex.join(slurm_pilot.as_user(job, user, words))
        script = slurm_pilot.script(job, pilot, SECRET)
    except SchedulerError as error:
        raise BftrainerError(str(error)) from error
    click.echo(f"{said} <<'EOF'\n{script.rstrip()}\nEOF")
