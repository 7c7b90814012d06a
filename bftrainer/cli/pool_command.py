"""bftrainer pool"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.figures import brief_moment
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.units import units


@click.command("pool")
@click.option(
    "--long", "-l", "long", is_flag=True, help="Phase, partitions, features, GRES and GPUs as well."
)
@client_options
def command(config: Path | None, state_dir: str | None, as_json: bool, long: bool) -> None:
    """Show every node: idle or busy and why, its pilot, and the trainer that has it.

    Until is when a job or a reservation is expected to take the node. Where a main job has it, until is when
    that job ends at the latest; in quarantine, when a pilot is tried there again.

    With --long, phase is where a node is in its life with bftrainer, and since when. First it is free (in the
    pool, without a pilot), ordered, starting, or up. Then it is releasing (its workers leave) or clearing
    (its pilot has ended). It may be resting (it may join later) or quarantined (pilots failed there). Nodes
    without one are the main scheduler's.
    """
    found = connect(config, state_dir).call("GET", "pool")
    if as_json:
        print_json(found)
        return
    columns = ["node", "state", "pilot", "trainer", "role", "until", "why"]
    if long:
        columns[2:2] = ["phase", "since", "partitions", "features", "gres", "gpus", "devices"]
    now = time.time()
    rows = [
        {
            **n,
            "gpus": _gpus(n),
            "since": "" if n["since"] is None else brief_moment(n["since"], now),
            "why": _why(n),
            "until": "" if n["until"] is None else brief_moment(n["until"], now),
            "partitions": ",".join(n["partitions"]),
            "features": ",".join(n["features"]),
        }
        for n in found["nodes"]
    ]
    names = [found.get("unit", column) if column == "node" else column for column in columns]
    print_table(names, [[n[column] for column in columns] for n in rows])
    say(f"{found['size']} of {len(rows)} {units(found)} in the pool")


def _why(node: dict[str, Any]) -> str:
    """Return why a node is not ours, with the main job that has it."""
    why, job = node["why"], node.get("job", "")
    return why if not job or job in why else ", ".join(filter(None, (why, f"job {job}")))


def _gpus(node: dict[str, Any]) -> str:
    """Return how many GPUs a node has, and had, if these were more."""
    had = node["gpus_had"]
    return f"{node['gpus']} (had {had})" if had > node["gpus"] else str(node["gpus"])
