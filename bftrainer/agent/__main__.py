"""`python -m bftrainer.agent`: the program of a pilot."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import click

from bftrainer.agent.agent import Agent


@click.command()
@click.option("--node", required=True, help="The name of this node.")
@click.option("--tag", required=True, help="The unique name of this pilot.")
@click.option("--socket", "path", required=True, type=click.Path(path_type=Path), help="The daemon's socket.")
@click.option("--address", default="127.0.0.1", show_default=True, help="Where workers listen for peers.")
@click.option("--orphan-s", default=60.0, show_default=True, help="How long to go on without a daemon.")
def main(node: str, tag: str, path: Path, address: str, orphan_s: float) -> None:
    """Serve one node of the pool until told to exit."""
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {node} %(levelname)s %(message)s")
    asyncio.run(Agent(node=node, tag=tag, socket=path, address=address, orphan_s=orphan_s).serve())


main()
