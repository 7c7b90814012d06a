"""bftrainer queue"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.trainers.table import brief
from bftrainer.cli.shared.units import units
from bftrainer.model.text import duration

COLUMNS = ("place", "id", "user", "name", "priority", "waits", "reason")


@click.command("queue")
@click.option("-n", "--limit", type=click.IntRange(min=1), default=30, show_default=True, help="How many.")
@click.option("--all", "every", is_flag=True, help="All that wait.")
@click.option("-v", "--verbose", is_flag=True, help="All of each reason, and what would make it run.")
@client_options
def command(
    limit: int, every: bool, verbose: bool, config: Path | None, state_dir: str | None, as_json: bool
) -> None:
    """Show your trainers that wait, a line each, and why; with -v also what would make each run.

    Those of a higher priority come first, then in order of arrival; bftrainer priority changes that. Admins
    see those of all users. The trials of a study that have no trainer yet wait in the study, see
    bftrainer study show.
    """
    listed = connect(config, state_dir).trainers(0, every=every)
    waiting = [t for t in listed.trainers if t["status"] == "waiting"]
    waiting.sort(key=lambda t: -(t.get("priority") or 1.0))  # the rest stays in order of arrival
    if as_json:
        print_json(waiting)
        return
    shown = waiting if every else waiting[:limit]
    rows = [
        (
            place,
            t["id"],
            t["user"],
            t["name"],
            f"{t.get('priority') or 1.0:g}",
            duration(max(0.0, time.time() - t["submitted_at"])),
            *((t["reason"] or "-", t.get("remedy") or "-") if verbose else (brief(t["reason"] or "-"),)),
        )
        for place, t in enumerate(shown, start=1)
    ]
    columns = (*COLUMNS, "it runs when") if verbose else COLUMNS
    print_table(columns, rows, empty="no trainer waits", cut=() if verbose else ("reason",))
    left = len(waiting) - len(shown) + listed.waiting_left_out
    if left:
        say(f"{left:,} more wait; --all lists them")
    users = Counter(t["user"] for t in listed.trainers for _ in t["nodes"])
    if len(users) > 1:
        say(
            f"{units(listed.trainers[0])} held: "
            + ", ".join(f"{user or 'you'} {count}" for user, count in users.most_common())
        )
