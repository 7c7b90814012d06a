"""bftrainer study demo"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from bftrainer.cli.shared.figures import figure, whole
from bftrainer.cli.shared.options import json_option
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Input, Positive
from bftrainer.cli.studies.show import learnt
from bftrainer.cli.studies.words import params_text, short

DAEMON_OPTIONS = (
    *("--scheduler", "local", "--t-fwd", "60", "--poll", "0.2"),
    *("--objective", "efficiency"),  # trials of different speed: all of them run
)
TOLD = ("it began", "a stage has ended")
"""Why the forecasts were made that the end tells of."""


@click.command("demo")
@click.argument("study", type=Input())
@click.option("--seconds", type=Positive(least=5), default=170.0, show_default=True, help="How long at most.")
@click.option("--nodes", type=click.IntRange(min=1, max=64), default=4, show_default=True, help="Slots.")
@click.option("--seed", default=0, show_default=True, help="Of the generated log of idle nodes.")
@json_option
def command(study: Path, seconds: float, nodes: int, seed: int, as_json: bool) -> None:
    """Run the study in the file STUDY on this machine: a daemon of its own, and real trainings.

    The machine's slots are "idle nodes" that come and go as a generated log says. Ends with the best
    parameters, what was forecast at the begin and after each stage, and what happened. Exits with 1 if the
    study has not ended, a step was lost or a process was left behind.
    """
    from bftrainer.cli.studies.picture import show
    from bftrainer.demo.session import DemoSession

    demo = DemoSession([*DAEMON_OPTIONS, "--nodes", str(nodes), "--seed", str(seed)])
    last: dict[str, Any] = {}
    forecasts: dict[float, dict[str, Any]] = {}

    def views() -> Iterator[dict[str, Any]]:
        for view in demo.watch_study(name, seconds):
            known_before = last.get("learnt")
            last.update(view)
            if not view["learnt"]["curve"]:  # as when the last trial has ended
                last["learnt"] = known_before or view["learnt"]
            if known := view["forecast"]:
                forecasts[known["at"]] = known
            yield view

    try:
        name = demo.submit_study(study)
        if as_json:
            for _ in views():
                pass
        else:
            show(views())
        summary = demo.finish()
    finally:
        demo.close()
    ended = bool(last["ended_at"])
    if as_json:
        print_json(
            {
                **last,
                "forecasts": list(forecasts.values()),
                "steps_lost": summary.steps_lost,
                "strays": summary.strays,
            }
        )
    else:
        say("")
        _tell(last, list(forecasts.values()), ended)
        say(
            f"node joins {summary.joins}, node leaves {summary.leaves}, steps lost {summary.steps_lost}, "
            f"processes left behind {len(summary.strays)}"
        )
    sys.exit(0 if summary.good and ended else 1)


def _tell(study: dict[str, Any], forecasts: list[dict[str, Any]], ended: bool) -> None:
    """Say what the study has found, what was forecast, and how it came to it."""
    took = (study["ended_at"] or study["submitted_at"]) - study["submitted_at"]
    done = sum(t["samples"] for t in study["table"])
    every = study["trials"] * study["budget"]
    rows = [
        (whole(rung["samples"]), rung["ended"], "-" if rung["best"] is None else figure(rung["best"]))
        for rung in study["rungs"]
    ]
    print_table(("rung: samples", "trials that ended it", f"best {study['metric']}"), rows)
    for known in forecasts:
        if known["because"] in TOLD:
            at = known["at"] - study["submitted_at"]
            say(f"forecast after {at:.0f} s ({known['because']}): {known['text']}")
    if profile := learnt(study):
        say(profile)
    say(f"{study['name']}: {study['status']}" + (f" in {took:.0f} s" if ended else "; its time was over"))
    say(f"samples trained: {done:,}, {done / every:.0%} of what all trials would take to the end")
    if study["best"]:
        own = study["best"]
        say(
            f"best: trial {own['number']}, {study['metric']} {figure(own['value'])}{short(own)}, "
            f"{params_text(own['params'])}"
        )
