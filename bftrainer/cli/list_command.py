"""bftrainer list"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.api.listing import ENDED
from bftrainer.cli.shared.connection import changes, connect
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.trainers.table import COLUMNS, NUMBERS, ORDERS, STYLES, USUAL, WARNED, header, rows
from bftrainer.cli.shared.types import Positive
from bftrainer.messages.commands.lines import NOT_WITH
from bftrainer.messages.files.tables import UNKNOWN_NAME
from bftrainer.model.trainer import TrainerStatus

if TYPE_CHECKING:
    from bftrainer.api.client import Client, TrainerList

EXPLAINED = 10
"""Trainers of which the list says why they failed or wait, or what is odd."""

Trainers = Sequence[dict[str, Any]]


def _columns(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Read --format."""
    if value is None:
        return None
    names = tuple(COLUMNS) if value == "long" else tuple(name.strip().lower() for name in value.split(","))
    for name in names:
        if name not in COLUMNS:
            known = f"one of {', '.join(COLUMNS)}, or long"
            raise click.BadParameter(UNKNOWN_NAME.say(kind="column", name=repr(name[:40]), known=known))
    return names


def _order(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Read --sort."""
    if value is not None and value.removeprefix("-").lower() not in ORDERS:
        known = f"one of {', '.join(ORDERS)}"
        raise click.BadParameter(UNKNOWN_NAME.say(kind="order", name=repr(value[:40]), known=known))
    return None if value is None else value.lower()


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
@click.option(
    "-o",
    "--format",
    "columns",
    metavar="COLUMNS",
    callback=_columns,
    help=f"Other columns, with commas between: {', '.join(COLUMNS)}; or all of them: long.",
)
@click.option(
    "--sort",
    metavar="COLUMN",
    callback=_order,
    help=f"Sort by a column, with - before it downwards: {', '.join(ORDERS)}.  [default: those that have not "
    "ended, then the others, the last first]",
)
@click.option("-w", "--watch", is_flag=True, help="Show the list again when it changes, until Ctrl-C.")
@click.option(
    "--every", "every_s", type=Positive(least=0.2), default=1.0, help="With --watch: how often (s)."
)
@client_options
def command(
    limit: int,
    every: bool,
    statuses: tuple[str, ...],
    name: str | None,
    columns: tuple[str, ...] | None,
    sort: str | None,
    watch: bool,
    every_s: float,
    config: Path | None,
    state_dir: str | None,
    as_json: bool,
) -> None:
    """List your trainers, those first that have not ended; admins see those of all users.

    All that hold nodes are listed, those that wait unless there are very many, and the last ones that have
    ended. The lines below say why trainers failed or wait, and how many are left out.

    Nodes: those that train; "1 (of 3)": two more are allocated. Time: from submit to the end, or until now.
    Reason: why it waits or has ended, or what its workers do that do not train, such as "starting 2, ready
    1". A worker that is ready joins at the end of a step. "No worker" counts nodes whose pilots are still
    starting.
    """
    if watch and as_json:
        raise click.UsageError(NOT_WITH.say(options="--watch", other="--json"))
    client, before = connect(config, state_dir), None
    for listed in _lists(client, limit, every=every, every_s=every_s if watch else None):
        found = [t for t in listed.trainers if _is_wanted(t, statuses, name)]
        if as_json:
            print_json(found)
            _tell_left_out(listed, err=True)
            return
        if found != before:
            if watch:
                click.clear()  # a terminal only
            _print(_sorted(found, sort), columns, listed, filtered=bool(statuses or name))
        before = found


def _lists(client: Client, limit: int, *, every: bool, every_s: float | None) -> Iterator[TrainerList]:
    """Yield the list once; with `every_s` again and again, when the daemon tells that it has changed."""
    if every_s is None:
        yield client.trainers(limit, every=every)
        return
    for _ in changes(client, "trainers", every_s=every_s):
        yield client.trainers(limit, every=every)


def _is_wanted(t: dict[str, Any], statuses: tuple[str, ...], name: str | None) -> bool:
    return (not statuses or t["status"] in statuses) and (name is None or fnmatchcase(t["name"], name))


def _sorted(found: Trainers, sort: str | None) -> Trainers:
    if sort is None:
        return sorted(found, key=lambda t: (t["ended_at"] is not None, -(t["ended_at"] or 0.0)))
    return sorted(found, key=ORDERS[sort.removeprefix("-")], reverse=sort.startswith("-"))


def _print(
    in_order: Trainers, columns: tuple[str, ...] | None, listed: TrainerList, *, filtered: bool
) -> None:
    """Print the table, and what is to be told of single trainers."""
    empty = "no such trainers" if filtered else "no trainers; bftrainer submit SPEC adds one"
    _table(in_order, columns, "" if listed.ended_left_out else empty)
    failed = [t for t in in_order if t["status"] == "failed" and t["reason"]]
    for t in failed[-EXPLAINED:]:
        say(f"{t['name']} ({t['id']}) failed: {t['reason']}")
    for t in [t for t in in_order if t.get("note")][:EXPLAINED]:
        say(f"{t['name']} ({t['id']}): {t['note']}")
    if warned := [str(t["id"]) for t in in_order if t.get("warned")][-EXPLAINED:]:
        say(f"{WARNED} its script was warned of something, see bftrainer show {' or '.join(warned)}")
    waiting = [t for t in in_order if t["status"] == "waiting" and t["reason"]]
    for t in waiting[:EXPLAINED]:
        say(f"{t['name']} ({t['id']}) waits: {t['reason']}")
    if (more := max(0, len(failed) - EXPLAINED) + max(0, len(waiting) - EXPLAINED)) > 0:
        say(f"{more:,} more failed or wait for such reasons; bftrainer show NUMBER tells them")
    _tell_left_out(listed)


def _tell_left_out(listed: TrainerList, *, err: bool = False) -> None:
    if listed.waiting_left_out:
        say(f"{listed.waiting_left_out:,} more wait; --all lists them", err=err)
    if listed.ended_left_out:
        more = "--all lists them, -n as many as you like"
        say(f"{listed.ended_left_out:,} more have ended; {more}", err=err)


def _table(trainers: Trainers, columns: tuple[str, ...] | None, empty: str) -> None:
    """Print a table; of the usual columns without those of which no trainer has anything."""
    shown = columns or tuple(
        column
        for column, cells in zip(USUAL, zip(*rows(trainers, USUAL), strict=True), strict=False)
        if any(cells)
    )
    titles = [header(column, trainers) for column in shown]
    right = {header(column, trainers) for column in shown if column in NUMBERS}
    styles = [STYLES.get(t["status"], "") for t in trainers]
    print_table(titles, rows(trainers, shown), empty=empty, numbers=right, styles=styles, cut={"REASON"})
