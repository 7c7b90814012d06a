"""`python -m bftrainer.agent`: the program of a pilot."""

from __future__ import annotations

import asyncio
import logging
import os

import click

from bftrainer.agent.agent import Agent
from bftrainer.wire import seal


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
    """Serve one node of the pool until told to exit. BFTRAINER_SECRET in the environment is the pilot's."""
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {node} %(levelname)s %(message)s")
    known = os.environ.pop(seal.VARIABLE, "")
    agent = Agent(node=node, tag=tag, secret=known, daemon=daemon, address=address, orphan_s=orphan_s)
    asyncio.run(agent.serve())
    logging.shutdown()
    os._exit(0)  # the host waits for the node, and there is nothing left to tidy up


main()
