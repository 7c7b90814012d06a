"""bftrainer show"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.figures import figure, figures, moment, speed, whole
from bftrainer.cli.shared.options import client_options, trainer_argument
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.units import units
from bftrainer.model.text import duration

NO_WORK = "not known: the spec names no amount of work (work: until_exit), nor does the script"


@click.command("show")
@trainer_argument
@client_options
def command(trainer: str, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Show all about TRAINER, by name (the latest of that name) or number."""
    t = connect(config, state_dir).call("GET", f"trainers/{trainer}")
    if as_json:
        print_json(t)
        return
    counted = units(t)
    lines = {
        "trainer": f"{t['id']}  {t['name']}  of {t['user']}",
        "status": t["status"] + (f" ({t['reason']})" if t["reason"] else ""),
        **({"note": t["note"]} if t.get("note") else {}),
        counted: f"{' '.join(t['members']) or '-'}  (allocated: {' '.join(t['nodes']) or '-'}; "
        f"allowed: {_allowed(t)})",
        "progress": f"step {whole(t['step'])}, epoch {whole(t['epoch'])}, {whole(t['samples'])} samples"
        + (f" of {whole(t['work'])}" if t["work"] else ""),
        **({} if t["ended_at"] else {"ends in": _ends(t.get("ends_in_s"), t["work"], counted)}),
        "samples/s": speed(t["rate"]) or "-",
        "metrics": figures(t["metrics"]) or "-",
        **_batch(t["metrics"], t["scalability"].get("counts")),
        **({"takes turns": t["turns"]} if t.get("turns") else {}),
        "scalability": f"{t['scalability']['mode']}; "
        f"up to {t['scalability']['may_ask_for']} {counted} for now",
        "command": " ".join(t["command"]),
        "workdir": t["workdir"],
        "logs": t["log_dir"],
        "checkpoints": t["checkpoint_dir"]
        + (f"  (the last: step {whole(t['saved'])})" if t.get("saved") is not None else ""),
        "submitted": moment(t["submitted_at"]),
        "ended": moment(t["ended_at"]) if t["ended_at"] else "-",
    }
    warned = [("its script was warned", text) for text in t.get("warned", ())]
    print_table(("", ""), [*lines.items(), *warned])
    say(f"\nspeed by {counted}")
    print_table(
        (counted, "samples/s", "+-", "windows", ""), [_size(row) for row in t["scalability"]["sizes"]]
    )
    _print_goodput(t["scalability"].get("goodput"), counted)
    say("\nwhat a rescale costs")
    print_table(
        ("", "seconds", "+-", "times", ""),
        [
            _cost(f"{direction}: {what}", cost)
            for direction, parts in t["costs"].items()
            for what, cost in parts.items()
        ],
    )
    if t["pauses"]:
        say("\nlast rescales")
        print_table(
            ("time", "change", counted, "step", "longest pause", "steps lost"),
            [_pause(p) for p in t["pauses"]],
        )


def _allowed(t: dict[str, Any]) -> str:
    """The node counts that a trainer may have. A daemon of an earlier version does not know of sizes."""
    if t.get("sizes"):
        return ", ".join(str(n) for n in t["sizes"])
    multiple = t.get("multiple_of", 1)
    return f"{t['n_min']}..{t['n_max']}" + (f" in multiples of {multiple}" if multiple > 1 else "")


def _ends(ends: dict[str, Any] | None, work: int | None, counted: str) -> str:
    """When the work will be done: how that follows from the trainer's speeds, or why it is not known."""
    if ends is None:
        return "not known yet" if work else NO_WORK
    likely, late = "at its present speed", "at its average since it was submitted"
    if (waits := ends.get("waits")) is not None:
        likely = f"if it gets {counted} in {duration(waits)}" if waits else "if its workers are ready soon"
        late = f"with fewer {counted}, or as slowly as until now"
    words = {"early": f"at least, on as many {counted} as it may get", "likely": likely, "late": late}
    known = [f"{duration(ends[kind])} {words[kind]}" for kind in words if ends[kind] is not None]
    why = f"not known: {ends['unknown']}" if ends.get("unknown") else ""
    return "; ".join([*([why] if why else []), *known]) or "-"


def _print_goodput(points: list[list[float]] | None, counted: str) -> None:
    """The goodput by nodes, where it is known."""
    if points:
        say(f"\ngoodput by {counted}: samples/s with the best batch on each, times what they are worth")
        print_table((counted, "goodput"), [(n, speed(rate)) for n, rate in points])


def _batch(metrics: Mapping[str, float | None], counts: str | None) -> dict[str, str]:
    """The worth of a present batch beside the initial one, and by what it `counts` where nodes go by
    goodput; empty if it does not adapt."""
    known = [metrics.get(f"goodput.{name}") for name in ("batch", "initial", "speed", "efficiency")]
    if any(value is None for value in known):
        return {}
    batch, initial, faster, worth = (float(value or 0.0) for value in known)
    told = (
        f"{figure(batch)} of {figure(initial)}: {faster:.1f} times the samples, {100 * worth:.0f} % of their "
        f"worth, {faster * worth:.1f} times the progress"
    )
    return {"batch": told, **({"counts by": counts} if counts else {})}


def _size(row: dict[str, Any]) -> tuple[object, ...]:
    error = "-" if row["error"] is None else f"{100 * row['error']:.0f} %"
    on = f"{row['nodes']} {row['node_class'] or ''}".rstrip()
    return on, speed(row["rate"]), error, row["windows"] or "-", row["source"]


def _cost(name: str, cost: dict[str, Any]) -> tuple[object, ...]:
    error = "-" if cost["error_s"] is None else f"{cost['error_s']:.2f}"
    return name, f"{cost['seconds']:.2f}", error, cost["count"] or "-", cost["source"]


def _pause(p: dict[str, Any]) -> tuple[object, ...]:
    return moment(p["time"]), p["kind"], p["size"], whole(p["step"]), f"{p['pause_s']:.3f} s", p["lost_steps"]
