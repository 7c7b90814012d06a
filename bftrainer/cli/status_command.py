"""bftrainer status"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.figures import figure, figures, speed, whole
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.units import units


@click.command("status")
@client_options
def command(config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Show whether all is well, how much of the pool is used, and the last decision."""
    s = connect(config, state_dir).call("GET", "status")
    if as_json:
        print_json(s)
        return
    plan = s["last_plan"]
    lines = {
        "daemon": f"bftrainer {s['version']}, pid {s['pid']}, up {timedelta(seconds=int(s['up_s']))}",
        "state": [s["state"], *s["problems"]],
        "pool": f"{s['pool']} {units(s)}, {s['unused']} unused, {s['pilots']} pilots",
        **({"headroom": _headroom(room, units(s))} if (room := s.get("headroom")) else {}),
        "trainers": ", ".join(f"{n} {status}" for status, n in s["trainers"].items()) or "none",
        **({"bounds hit": ["in the last hour", *hit]} if (hit := s.get("bounds_hit")) else {}),
        "last plan": "none yet" if plan is None else _plan(plan),
    }
    print_table(("", ""), list(lines.items()))
    if s["running"]:
        say()
        cells = [
            (
                t["name"],
                len(t["members"]),
                whole(t["step"]),
                speed(t["rate"]),
                figures(t["metrics"]),
            )
            for t in s["running"]
        ]
        print_table(("running", units(s), "step", "samples/s", "metrics"), cells)
        for t in s["running"]:
            if t.get("note"):
                say(f"{t['name']}: {t['note']}")
        if s.get("running_left_out"):
            say(f"{s['running_left_out']:,} more run; bftrainer list has them")


def _headroom(room: dict[str, Any], counted: str = "nodes") -> list[str]:
    free = f"{room['free']} of {room['usable']} idle {counted} are free"
    lines = [f"{free}; the daemon aims to keep {room['wanted']} free for main jobs ({room['setting']})"]
    if promised := room.get("promised"):
        bounds = f"median {promised['median_s']:g} s, p99 {promised['p99_s']:g} s"
        kept = f"{room['extra']:.0%} is left for it: {room['at_risk']}" if room["extra"] else "kept"
        lines.append(f"promise ({bounds}): {kept}")
    return lines


def _plan(plan: dict[str, Any]) -> list[str]:
    proof = "proven" if plan["proven"] else "not proven"
    made = f"{plan['allocator']}: {plan['status']}, {proof}, objective {figure(plan['objective'])}"
    took = f", {plan['solve_ms']:.1f} ms" + (f" ({plan['note']})" if plan["note"] else "")
    return [made + took, *([f"fell back: {plan['fallback']}"] if plan["fallback"] else [])]
