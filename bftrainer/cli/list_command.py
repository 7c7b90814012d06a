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
from bftrainer.cli.shared.trainers.table import WARNED, columns, row
from bftrainer.cli.shared.types import Positive
from bftrainer.model.trainer import TrainerStatus

if TYPE_CHECKING:
    from bftrainer.api.client import Client, TrainerList

EXPLAINED = 10
"""Of so many trainers the list says why they failed or wait, or what is odd."""

Trainers = Sequence[dict[str, Any]]


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
    watch: bool,
    every_s: float,
    config: Path | None,
    state_dir: str | None,
    as_json: bool,
) -> None:
    """List your trainers: those that have ended, then the others, in the order of their arrival; admins see
    those of all users.

    All that hold nodes are listed, those that wait unless there are very many, and the last ones that have
    ended. The lines below say why trainers failed or wait, and how many are left out.

    Workers: those that do not train, such as "starting 2, ready 1". A worker that is ready joins at the end
    of a step. "No worker" counts nodes whose pilots are still starting. Took: from submit to the end, or
    until now.
    """
    if watch and as_json:
        raise click.UsageError("--watch shows a table again and again, and --json one array: leave out one")
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
            _print(found, listed, filtered=bool(statuses or name))
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


def _print(found: Trainers, listed: TrainerList, *, filtered: bool) -> None:
    """Print the table, those that have not ended last, and what is to be told of single trainers."""
    in_order = sorted(found, key=lambda t: (t["ended_at"] is None, t["ended_at"] or 0.0))
    empty = "no such trainers" if filtered else "no trainers; bftrainer submit SPEC adds one"
    if len({t["user"] for t in found}) > 1:
        _table(("user", *columns(found)), [(t["user"], *row(t)) for t in in_order])
    else:
        _table(columns(found), [row(t) for t in in_order], empty="" if listed.ended_left_out else empty)
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


def _table(columns: tuple[str, ...], rows: list[tuple[object, ...]], empty: str = "") -> None:
    """Print a table without the columns of which no trainer has anything."""
    kept = [i for i in range(len(columns)) if not rows or any(row[i] not in (None, "") for row in rows)]
    print_table([columns[i] for i in kept], [[row[i] for i in kept] for row in rows], empty=empty)
