"""bftrainer events"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli.shared.connection import changes, connect
from bftrainer.cli.shared.figures import figure, speed
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import TrainerName
from bftrainer.messages.commands.lines import NOT_WITH

if TYPE_CHECKING:
    from bftrainer.api.client import Client

COLUMNS = ("id", "time", "event", "pool", "plan", "actions")
LEGEND = """
nodes +n1 -n2     n1 has joined the pool, n2 has left it; pool: so many nodes are in it then
plan              allocator, whether no other split is better (proven), objective, [trainer:nodes ...]
Regroup 1.10 [..] trainer 1 goes on on these nodes, in its tenth generation; -[..]: these leave it
StartWorker 1.9   trainer 1 gets a worker there, which joins it when it is ready; StopWorker: not any more"""
FOLLOW_S = 0.5
"""The daemon is asked for what has happened since when it tells that something has, not more often."""
SOME, MOST = 100, 10_000
"""Events that are asked for then, and at most."""


@click.command("events")
@click.option("--trainer", type=TrainerName(), help="Only what a trainer itself did, by name or number.")
@click.option("-n", "--limit", type=click.IntRange(1, MOST), default=20, show_default=True, help="How many.")
@click.option("-f", "--follow", is_flag=True, help="Go on showing what happens, a line each, until Ctrl-C.")
@client_options
def command(
    trainer: str | None,
    limit: int,
    follow: bool,
    config: Path | None,
    state_dir: str | None,
    as_json: bool,
) -> None:
    """Show the last events, oldest first: what happened, which plan it led to, and the actions.

    A plan is shown with the allocator that made it, whether it is proven optimal, and its objective.
    """
    if follow and as_json:
        raise click.UsageError(NOT_WITH.say(options="--follow", other="--json"))
    client = connect(config, state_dir)
    found = client.rows("events", limit, trainer)
    if as_json:
        print_json(found)
    elif follow:
        _follow(client, found, trainer)
    else:
        print_table(COLUMNS, [_row(e) for e in found], empty="no events yet")
        if found:
            say(LEGEND)


def _follow(client: Client, found: list[dict[str, Any]], trainer: str | None) -> None:
    """Print these events and those that come, for ever."""
    last = _print_lines(found, 0)
    for _ in changes(client, "decisions", every_s=FOLLOW_S):
        asked, found = SOME, client.rows("events", SOME, trainer)
        while len(found) == asked < MOST and found[0]["id"] > last + 1:  # more have come than were asked for
            asked *= 10
            found = client.rows("events", asked, trainer)
        last = _print_lines([e for e in found if e["id"] > last], last)


def _print_lines(found: list[dict[str, Any]], last: int) -> int:
    """Print events, a line each. Returns the number of the latest, `last` if there is none."""
    for e in found:
        id_, moment, event, pool, plan, actions = (str(cell) for cell in _row(e))
        say("  ".join(part for part in (id_, moment, event, f"pool {pool}", plan, actions) if part))
    return max((e["id"] for e in found), default=last)


def _row(e: dict[str, Any]) -> tuple[object, ...]:
    return (
        e["id"],
        datetime.fromtimestamp(e["time"]).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-4],
        _what(e),
        e["pool_size"],
        _plan(e["plan"]),
        "; ".join(_did(a) for a in e["actions"]),
    )


def _what(e: dict[str, Any]) -> str:
    data = e["data"]
    if e["kind"] == "NodesChanged":
        signs = [f"-{n}" for n in data["left"]] + [f"+{n}" for n in data["joined"]]
        signs = signs or [n for own in data.get("jobs", {}).values() for n in own]
        jobs = f" for job {', '.join(data['jobs'])}" if data.get("jobs") else ""
        return "nodes " + " ".join(signs[:8]) + (" ..." if len(signs) > 8 else "") + jobs
    words = [e["kind"]]
    words += [f"trainer {data['trainer']}"] if "trainer" in data else []
    words += [str(data[key]) for key in ("node", "reason", "spec") if data.get(key)]
    words += [f"{data['point'][0]} nodes: {speed(data['point'][1])}/s"] if data.get("point") else []
    words += [f"{way} {data[way]['stall_s']:.3f} s" for way in ("up", "down") if data.get(way)]
    return " ".join(words)


def _plan(plan: dict[str, Any] | None) -> str:
    if plan is None:
        return ""
    sizes = " ".join(f"{trainer}:{len(nodes)}" for trainer, nodes in plan["allocation"].items() if nodes)
    proof = "proven" if plan["proven"] else "not proven"
    made = f"{plan['allocator']} {plan['status']} ({proof}) {figure(plan['objective'])} [{sizes}]"
    return f"{made} fell back: {plan['fallback']}" if plan.get("fallback") else made


def _did(action: dict[str, Any]) -> str:
    data = action["data"]
    what = f"{action['kind']} {action['trainer']}.{action['generation']}"
    if "members" in data:
        return f"{what} [{' '.join(data['members'])}]" + (
            f" -[{' '.join(data['leaving'])}]" if data["leaving"] else ""
        )
    return f"{what} {data['node']}"
