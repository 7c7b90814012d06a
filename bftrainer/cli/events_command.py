"""bftrainer events"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.types import TrainerName


@click.command("events")
@click.option("--trainer", type=TrainerName(), help="Only what a trainer itself did, by name or number.")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many."
)
@client_options
def command(
    trainer: str | None, limit: int, config: Path | None, state_dir: str | None, as_json: bool
) -> None:
    """Show the last events, oldest first: what happened, which plan it led to, and the actions.

    A plan is shown with the allocator that made it, whether it is proven optimal, and its objective.
    """
    found = connect(config, state_dir).rows("events", limit, trainer)
    if as_json:
        print_json(found)
    else:
        columns = ("id", "time", "event", "pool", "plan", "actions")
        print_table(columns, [_row(e) for e in found], empty="no events yet")


def _row(e: dict[str, Any]) -> tuple[object, ...]:
    moment = datetime.fromtimestamp(e["time"]).astimezone().strftime("%H:%M:%S.%f")[:-4]
    return (
        e["id"],
        moment,
        _what(e),
        e["pool_size"],
        _plan(e["plan"]),
        "; ".join(_did(a) for a in e["actions"]),
    )


def _what(e: dict[str, Any]) -> str:
    data = e["data"]
    if e["kind"] == "NodesChanged":
        signs = [f"-{n}" for n in data["left"]] + [f"+{n}" for n in data["joined"]]
        return "nodes " + " ".join(signs[:8]) + (" ..." if len(signs) > 8 else "")
    words = [e["kind"]]
    words += [f"trainer {data['trainer']}"] if "trainer" in data else []
    words += [str(data[key]) for key in ("node", "reason", "spec") if data.get(key)]
    words += [f"{data['point'][0]} nodes: {data['point'][1]:,.0f}/s"] if data.get("point") else []
    words += [f"{way} {data[way]['stall_s']:.3f} s" for way in ("up", "down") if data.get(way)]
    return " ".join(words)


def _plan(plan: dict[str, Any] | None) -> str:
    if plan is None:
        return ""
    sizes = " ".join(f"{trainer}:{len(nodes)}" for trainer, nodes in plan["allocation"].items() if nodes)
    proof = "proven" if plan["proven"] else "not proven"
    made = f"{plan['allocator']} {plan['status']} ({proof}) {plan['objective']:.4g} [{sizes}]"
    return f"{made} fell back: {plan['fallback']}" if plan.get("fallback") else made


def _did(action: dict[str, Any]) -> str:
    data = action["data"]
    what = f"{action['kind']} {action['trainer']}.{action['generation']}"
    if "members" in data:
        return f"{what} [{' '.join(data['members'])}]" + (
            f" -[{' '.join(data['leaving'])}]" if data["leaving"] else ""
        )
    return f"{what} {data['node']}"
