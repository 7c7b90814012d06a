"""bftrainer show"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
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

MOST_NAMES, MOST_METRICS, MOST_ROWS = 16, 24, 16
"""Nodes, metrics and rows shown of a section, at most: it fits a screen."""
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
    print_table(("", ""), [*_now(t, counted).items()])
    for title, columns, rows in _sections(t, counted):
        if rows:
            say(f"\n{title}")
            print_table(columns, rows)


def _now(t: dict[str, Any], counted: str) -> dict[str, object]:
    """The first section: how it is now."""
    return {
        "trainer": f"{t['id']}  {t['name']}  of {t['user']}",
        "status": t["status"] + (f" ({t['reason']})" if t["reason"] else ""),
        **({"note": t["note"]} if t.get("note") else {}),
        counted: f"{_some(t['members'])}  (allocated: {_some(t['nodes'])}; allowed: {_allowed(t)})",
        "progress": f"step {whole(t['step'])}, epoch {whole(t['epoch'])}, {whole(t['samples'])} samples"
        + (f" of {whole(t['work'])}" if t["work"] else ""),
        **_checkpoint(t, counted),
        **({} if t["ended_at"] else {"ends in": _ends(t.get("ends_in_s"), t["work"], counted)}),
        "samples/s": speed(t["rate"]) or "-",
        "metrics": figures(dict(list(t["metrics"].items())[:MOST_METRICS]))
        + _more(t["metrics"], MOST_METRICS)
        or "-",
        **_batch(t["metrics"], t["scalability"].get("counts")),
        **({"takes turns": t["turns"]} if t.get("turns") else {}),
        "scalability": f"{t['scalability']['mode']}; "
        f"up to {t['scalability']['may_ask_for']} {counted} for now",
        "submitted": moment(t["submitted_at"]),
        **({"ended": moment(t["ended_at"])} if t["ended_at"] else {}),
    }


Section = tuple[str, tuple[str, ...], Sequence[tuple[object, ...]]]
"""A title, columns and rows."""


def _sections(t: dict[str, Any], counted: str) -> list[Section]:
    """The other sections. None is longer than a screen."""
    costs = [
        _cost(f"{direction}: {what}", cost)
        for direction, parts in t["costs"].items()
        for what, cost in parts.items()
    ]
    files = {
        "command": " ".join(t["command"]),
        "workdir": t["workdir"],
        "logs": t["log_dir"],
        "checkpoints": t["checkpoint_dir"],
    }
    sections: list[Section] = [
        ("its script was warned", ("",), [(text,) for text in t.get("warned", ())][-MOST_ROWS:]),
        (
            f"speed by {counted}",
            (counted, "samples/s", "+-", "windows", ""),
            [_size(row) for row in _every(t["scalability"]["sizes"])],
        ),
        (
            f"goodput by {counted}: samples/s with the best batch on each, times what they are worth",
            (counted, "goodput"),
            [(n, speed(rate)) for n, rate in _every(t["scalability"].get("goodput") or [])],
        ),
        ("what a rescale costs", ("", "seconds", "+-", "times", ""), costs),
        (
            "last rescales",
            ("time", "change", counted, "step", "longest pause", "steps lost"),
            [_pause(p) for p in t["pauses"][-MOST_ROWS:]],
        ),
        ("its files", ("", ""), [*files.items()]),
    ]
    return sections


def _every(rows: list[Any]) -> list[Any]:
    """At most `MOST_ROWS` of these rows, evenly, with the last one."""
    return rows[:: -max(1, -(-len(rows) // MOST_ROWS))][::-1]


def _some(names: list[str]) -> str:
    """The first of many names, and how many more there are."""
    return " ".join(names[:MOST_NAMES]) + _more(names, MOST_NAMES) or "-"


def _more(all_of: Sized, shown: int) -> str:
    return f" and {len(all_of) - shown:,} more (--json has all)" if len(all_of) > shown else ""


def _allowed(t: dict[str, Any]) -> str:
    """The node counts that a trainer may have."""
    if t["sizes"]:
        return ", ".join(str(n) for n in t["sizes"])
    multiple = t["multiple_of"]
    return f"{t['n_min']}..{t['n_max']}" + (f" in multiples of {multiple}" if multiple > 1 else "")


def _checkpoint(t: dict[str, Any], counted: str) -> dict[str, str]:
    """Return the last checkpoint's step, and the fate of later steps; empty if nothing is known."""
    saved, step = t.get("saved"), t["step"]
    if saved is None or t["status"] == "completed":
        return {}
    after = f"step {whole(saved + 1)}" + (f" to {whole(step)}" if step > saved + 1 else "")
    if t["members"]:
        told = f"; if it loses all its {counted} at once, it goes on from there"
    elif saved >= step:
        told = ": no step is lost"
    else:
        told = f": {after} {'is lost' if t['ended_at'] else 'will be done again'}"
    return {"checkpoint": f"the last is of step {whole(saved)}{told}"}


def _ends(ends: dict[str, Any] | None, work: int | None, counted: str) -> str:
    """Return when the work will be done, and how that follows from the speeds, or why it is not known."""
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


def _batch(metrics: Mapping[str, float | None], counts: str | None) -> dict[str, str]:
    """The worth of a present batch beside the initial one, and by what it `counts` where nodes go by
    goodput; empty if it does not adapt."""
    known = [metrics.get(f"goodput.{name}") for name in ("batch", "initial", "speed", "efficiency")]
    if any(value is None for value in known):
        return {}
    batch, initial, faster, worth = (float(value or 0.0) for value in known)
    told = (
        f"{figure(batch)} of {figure(initial)}: {faster:.1f} times the samples/s, {100 * worth:.0f} % of "
        f"their worth, {faster * worth:.1f} times the progress"
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
