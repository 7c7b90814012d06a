"""bftrainer admin impact"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say

MOST_DAYS = 366


@click.command(
    "impact", short_help="Show what main jobs have waited, with nodes of ours in their way and not."
)
@click.option(
    "--days",
    type=click.FloatRange(0, MOST_DAYS, min_open=True),
    default=7.0,
    show_default=True,
    help="How far back.",
)
@client_options
def command(days: float, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Show what main jobs have waited: those that our nodes can have kept waiting, and all others, which
    tell what the batch system itself takes. A wait begins when nothing but the batch system and we keep a job
    from starting. For admins."""
    found = connect(config, state_dir).call("GET", "admin/impact", days=days)
    if as_json:
        print_json(found)
        return
    if found["since"] is None:
        say(f"No main job has been seen to start in the last {days:g} days.")
    else:
        _show(found)
    for note in found["notes"]:
        say(note)


def _show(found: dict[str, Any]) -> None:
    say(f"Main jobs that have started since {_moment(found['since'])}, and what they waited:")
    names = {"nodes of ours in the way": "affected", "none of ours in the way": "unaffected", "all": "all"}
    rows = [(name, found[key]["count"], *_quantiles(found[key])) for name, key in names.items()]
    print_table(("", "jobs", "median", "p90", "p99", "most"), rows)
    more = {key: value for key, value in found["more_s"].items() if value is not None}
    if more:
        said = ", ".join(f"{key} {value:+.2f} s" for key, value in more.items())
        say(f"All against those with none of ours in the way: {said}")
    say()
    _show_given(found)
    if found["worst"]:
        say()
        longest = [
            (w["job"], _moment(w["time"]), w["nodes"], w["where"], _seconds(w["wait_s"]), w["why"])
            for w in found["worst"]
        ]
        print_table(("longest waits", "started", "nodes", "where", "waited", "why"), longest)
    if len(found["per_day"]) > 1:
        say()
        days = [
            (_day(day["begin"]), *_brief(day["affected"]), *_brief(day["unaffected"]))
            for day in found["per_day"]
        ]
        print_table(("day (UTC)", "in the way", "median", "p99", "not", "median", "p99"), days)
    say()


def _show_given(found: dict[str, Any]) -> None:
    gone = found["vacate"]
    took = f" within {_seconds(gone['median_s'])} (median), {_seconds(gone['most_s'])} at most"
    say(f"{found['given']:,} jobs were given {found['nodes']:,} nodes{took if gone['count'] else ''}.")
    say(f"{found['taken']:,} took nodes of ours without our help.")
    say(f"{found['in_vain']:,} got nodes and did not start.")
    say(
        f"Jobs went back to the queue {found['requeued']:,} times before they started with nodes of ours in "
        f"the way, {found['requeued_unaffected']:,} times with none."
    )


def _quantiles(waits: dict[str, Any]) -> list[str]:
    return [_seconds(waits[key]) for key in ("median_s", "p90_s", "p99_s", "most_s")]


def _day(begin: float) -> str:
    return datetime.fromtimestamp(begin, UTC).strftime("%d %b")


def _brief(waits: dict[str, Any]) -> tuple[object, ...]:
    return waits["count"], _seconds(waits["median_s"]), _seconds(waits["p99_s"])


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().strftime("%d %b %H:%M")
