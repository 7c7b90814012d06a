"""`python -m bftrainer.agent`: the program of a pilot."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

import click

from bftrainer.agent.agent import Agent
from bftrainer.agent.process import close_to_tracers

MAX_SECRET = 1024
IN_A_JOB = frozenset({"SLURM_JOB_ID", "LSB_JOBID"})
"""A batch system sets one of these for its jobs."""


@click.command()
@click.option("--node", required=True, help="The name of this node.")
@click.option("--tag", required=True, help="The unique name of this pilot.")
@click.option("--daemon", required=True, help="The daemon: the path of its socket, or host:port.")
@click.option(
    "--address",
    default="",
    help="Where workers listen for peers.  [default: where the node meets the daemon]",
)
@click.option("--orphan-s", default=60.0, show_default=True, help="How long to go on without a daemon.")
def main(node: str, tag: str, daemon: str, address: str, orphan_s: float) -> None:
    """Serve one node of the pool until told to exit. The pilot's secret is read from the standard input."""
    if os.environ.keys() & IN_A_JOB:  # the local scheduler finds its pilots by their owner in /proc
        close_to_tracers()
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {node} %(levelname)s %(message)s")
    agent = Agent(node=node, tag=tag, secret=_secret(), daemon=daemon, address=address, orphan_s=orphan_s)
    asyncio.run(agent.serve())
    logging.shutdown()
    os._exit(0)  # the host waits for the node, and there is nothing left to tidy up


def _secret() -> str:
    """The pilot's secret, after which nothing can be read any more: workers are not to find it."""
    found = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.readline(MAX_SECRET).strip()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if not found:
        raise click.ClickException(
            "no secret on the standard input; a template for pilots (pilot_template) gives it there: see "
            "jobscripts/slurm-pilot.sh.j2, or that of another batch system beside it"
        )
    return found


main()
