"""bftrainer list"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from bftrainer.api.listing import ENDED
from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.units import units
from bftrainer.cli.shared.worker_phases import phases
from bftrainer.model.text import duration
from bftrainer.model.trainer import TrainerStatus

COLUMNS = (
    "id",
    "name",
    "status",
    "nodes",
    "workers",
    "step",
    "samples",
    "done",
    "left",
    "samples/s",
    "metrics",
)

WARNED = "(!)"
"""Beside the status of a trainer whose script has been warned of something."""

METRICS = 4
"""So many metrics of a trainer are listed, those of the shortest names; show has all."""

EXPLAINED = 10
"""Of so many trainers the list says why they wait, or what is odd."""


@click.command("list")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    default=ENDED,
    show_default=True,
    help="How many of the trainers that have ended: the last ones.",
)
@click.option("--all", "every", is_flag=True, help="All that have ended, and all that wait.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice([status.value for status in TrainerStatus]),
    help="Only trainers in this status; may be given several times.",
)
@click.option("--name", help="Only trainers of this name; * stands for any characters.")
@client_options
def command(
    limit: int,
    every: bool,
    statuses: tuple[str, ...],
    name: str | None,
    config: Path | None,
    state_dir: str | None,
    as_json: bool,
) -> None:
    """List your trainers in the order of their arrival; admins see those of all users.

    All that hold nodes are listed, those that wait unless there are very many, and the last ones that have
    ended; the last lines say how many are left out.

    Workers: those that do not train, such as "starting 2, ready 1". A worker that is ready joins at the end
    of a step. "No worker" counts nodes whose pilots are still starting.
    """
    listed = connect(config, state_dir).trainers(limit, every=every)
    found = [t for t in listed.trainers if _is_wanted(t, statuses, name)]
    if as_json:
        print_json(found)
    elif len({t["user"] for t in found}) > 1:
        _print(("user", *columns(found)), [(t["user"], *row(t)) for t in found])
    else:
        none = "no such trainers" if statuses or name else "no trainers; bftrainer submit SPEC adds one"
        empty = none if not listed.ended_left_out else ""
        _print(columns(found), [row(t) for t in found], empty=empty)
    for t in [t for t in found if t.get("note")][: 0 if as_json else EXPLAINED]:
        say(f"{t['name']} ({t['id']}): {t['note']}")
    if not as_json and any(t.get("warned") for t in found):
        say(f"{WARNED} its script was warned of something; bftrainer show tells of what")
    never = [t for t in found if t["status"] == "waiting" and t["reason"]]
    if not as_json:
        for t in never[:EXPLAINED]:
            say(f"{t['name']} ({t['id']}) waits: {t['reason']}")
        if len(never) > EXPLAINED:
            say(f"{len(never) - EXPLAINED:,} more wait for such reasons; bftrainer show tells them")
    if listed.waiting_left_out:
        say(f"{listed.waiting_left_out:,} more wait; --all lists them", err=as_json)
    if listed.ended_left_out:
        more = "--all lists them, -n as many as you like"
        say(f"{listed.ended_left_out:,} more have ended; {more}", err=as_json)


def _print(columns: tuple[str, ...], rows: list[tuple[object, ...]], empty: str = "") -> None:
    """Print a table without the columns of which no trainer has anything."""
    kept = [i for i in range(len(columns)) if not rows or any(row[i] not in (None, "") for row in rows)]
    print_table([columns[i] for i in kept], [[row[i] for i in kept] for row in rows], empty=empty)


def columns(trainers: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Return COLUMNS, with what trainers really have: nodes or GPUs."""
    counted = units(trainers[0]) if trainers else "nodes"
    return tuple(counted if column == "nodes" else column for column in COLUMNS)


def _is_wanted(t: dict[str, Any], statuses: tuple[str, ...], name: str | None) -> bool:
    return (not statuses or t["status"] in statuses) and (name is None or fnmatchcase(t["name"], name))


def row(t: dict[str, Any]) -> tuple[object, ...]:
    """Return a trainer's row of the API as cells of COLUMNS."""
    nodes = f"{len(t['members'])}" + (
        f" (of {len(t['nodes'])})" if len(t["nodes"]) > len(t["members"]) else ""
    )
    return (
        t["id"],
        t["name"],
        f"{t['status']} {WARNED}" if t.get("warned") else t["status"],
        nodes,
        phases(t) or None,
        t["step"],
        t["samples"],
        f"{t['samples'] / t['work']:.0%}" if t["work"] else None,
        left(t.get("ends_in_s")) or None,
        f"{t['rate']:,.0f}" if t["rate"] else None,
        _few(t["metrics"]),
    )


def _few(metrics: Mapping[str, float]) -> str:
    """The metrics of the shortest names, loss first: others are often parts of these."""
    names = sorted(metrics, key=lambda name: (name != "loss", len(name), name))
    rest = f" and {len(names) - METRICS} more" if len(names) > METRICS else ""
    return shown({name: metrics[name] for name in names[:METRICS]}) + rest


def left(ends: dict[str, float | None] | None) -> str:
    """Return how long a trainer still takes: "12 min to 1.5 h", at its speed now and on average."""
    spans = [s for s in ((ends or {}).get("likely"), (ends or {}).get("late")) if s is not None]
    return " to ".join(dict.fromkeys(duration(seconds) for seconds in spans))


def shown(metrics: Mapping[str, float]) -> str:
    """Return metrics as "accuracy=0.98 loss=0.1", sorted by name."""
    return " ".join(f"{name}={value:.4g}" for name, value in sorted(metrics.items()))
