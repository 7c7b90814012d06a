"""bftrainer show"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from bftrainer.cli.list_command import shown
from bftrainer.cli.options import client_options, connect, print_json, print_table, trainer_argument


@click.command("show")
@trainer_argument
@client_options
def command(trainer: str, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Show all about TRAINER, by name (the latest of that name) or number."""
    t = connect(config, state_dir).call("GET", f"trainers/{trainer}")
    if as_json:
        print_json(t)
        return
    costs = t["costs"]
    lines = {
        "trainer": f"{t['id']}  {t['name']}",
        "status": t["status"] + (f" ({t['reason']})" if t["reason"] else ""),
        "nodes": f"{' '.join(t['members']) or '-'}  (allocated: {' '.join(t['nodes']) or '-'}; "
        f"allowed: {t['n_min']}..{t['n_max']})",
        "progress": f"step {t['step']}, epoch {t['epoch']}, {t['samples']:,} samples"
        + (f" of {t['work']:,}" if t["work"] else ""),
        "samples/s": f"{t['rate']:,.0f}" if t["rate"] else "-",
        "metrics": shown(t["metrics"]) or "-",
        "curve": f"{t['curve']['source']}: " + ", ".join(f"{n}: {r:,.0f}/s" for n, r in t["curve"]["points"]),
        "rescale cost": f"{costs['source']}: up {costs['up']['stall_s']:.2f} s stall, "
        f"{costs['up']['init_s']:.1f} s init; down {costs['down']['stall_s']:.2f} s stall",
        "command": " ".join(t["command"]),
        "workdir": t["workdir"],
        "checkpoints": t["checkpoint_dir"],
        "submitted": _moment(t["submitted_at"]),
        "ended": _moment(t["ended_at"]) if t["ended_at"] else "-",
    }
    print_table(("", ""), list(lines.items()))
    if t["pauses"]:
        click.echo("\nlast pauses")
        print_table(
            ("time", "change", "nodes", "step", "pause", "steps lost"), [_pause(p) for p in t["pauses"]]
        )


def _pause(p: dict[str, Any]) -> tuple[object, ...]:
    return _moment(p["time"]), p["kind"], p["size"], p["step"], f"{p['pause_s']:.3f} s", p["lost_steps"]


def _moment(time: float) -> str:
    return datetime.fromtimestamp(time).astimezone().strftime("%Y-%m-%d %H:%M:%S")
