"""bftrainer study show, and bftrainer study best"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from bftrainer.api.client import Client, DaemonError
from bftrainer.cli.shared.connection import changes, connect
from bftrainer.cli.shared.figures import figure
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Positive
from bftrainer.cli.studies.tables import chosen, columns, head, rung_rows, trial_row
from bftrainer.cli.studies.trial_text import command_line, row_of, tell, trainer_of
from bftrainer.cli.studies.words import WIDTH, short, study_argument
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.lines import NO_RESULT_YET, NOT_WITH, ONLY_WITH

ASKED = 100
"""Trials that are asked for, as a high terminal may show them."""
SHOWN = 40
"""Trials shown, at most: those that run, and the best; --all shows every one."""


def forecast(study: dict[str, Any]) -> str:
    """Return when a study will be done on the nodes of now, what its deadline needs, and why it was planned
    again; empty if it has ended."""
    if study["ended_at"]:
        return ""
    known = study.get("forecast")
    if known is None:
        return "no forecast yet; it needs a curve in the study's trainer, or a trial that has trained a while"
    at = datetime.fromtimestamp(known["at"]).astimezone().strftime("%H:%M:%S")
    return f"forecast: {known['text']} (planned at {at}: {known['because']})"


def learnt(study: dict[str, Any]) -> str:
    """Return what was learnt of a study's trials, as keys of its trainer; empty if nothing was."""
    known = study.get("learnt") or {}
    keys = []
    if known.get("curve"):
        points = ", ".join(
            f"[{n:g}, {rate:.0f}]" if rate >= 100 else f"[{n:g}, {rate:.3g}]" for n, rate in known["curve"]
        )
        keys.append(f"curve: [{points}]")
    if known.get("start_s") is not None:
        keys.append(f"a start takes {known['start_s']:.1f} s")
    return f"learnt of its trials: {'; '.join(keys)}" if keys else ""


@click.command("show")
@study_argument
@click.option("--all", "every", is_flag=True, help="Every trial, by number.")
@click.option("--trial", type=click.IntRange(min=0), help="One trial: all of it, and what it printed last.")
@click.option(
    "--spec", is_flag=True, help="With --trial: the spec with which bftrainer submit runs it once more."
)
@click.option("--watch", is_flag=True, help="Show it as it goes on, until it ends.")
@click.option(
    "--every", "every_s", type=Positive(least=0.2), default=1.0, help="With --watch: how often (s)."
)
@client_options
def command(
    study: str,
    every: bool,
    trial: int | None,
    spec: bool,
    watch: bool,
    every_s: float,
    config: Path | None,
    state_dir: str | None,
    as_json: bool,
) -> None:
    """Show STUDY, by name or number: its rungs, and its trials with the course of their metric."""
    client = connect(config, state_dir)
    if trial is not None:
        if watch or every:
            raise click.UsageError(NOT_WITH.say(options="--trial", other="--watch and --all"))
        (_spec if spec else _one)(client, study, trial, as_json=as_json)
        return
    if spec:
        raise click.UsageError(ONLY_WITH.say(options="--spec", other="--trial N"))
    asked = {} if as_json else {"course": WIDTH} if every else {"course": WIDTH, "trials": ASKED}

    def views() -> Iterator[dict[str, Any]]:
        yield (found := client.study(study, **asked))
        if watch and not found["ended_at"]:
            for _ in changes(client, "studies", every_s=every_s):
                yield (found := client.study(study, **asked))
                if found["ended_at"]:
                    return

    if as_json:
        for found in views():
            print_json(found)
    else:
        last = _watched(views()) if watch else next(views())
        if last is not None:
            _print(last, SHOWN if not every else len(last["table"]), said=1 if watch else 0)


@click.command("best")
@study_argument
@client_options
def best(study: str, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Show the parameters of the best trial of STUDY, and the command that it ran."""
    client = connect(config, state_dir)
    found = client.study(study, course=0)
    own = found["best"]
    if own is None:
        yet = "" if found["ended_at"] else " yet"
        raise BftrainerError(NO_RESULT_YET.say(study=study, metric=found["metric"], yet=yet, id=found["id"]))
    row = next(t for t in found["table"] if t["number"] == own["number"])
    if as_json:
        more = {"trainer": row["trainer"], "command": row["command"]}
        print_json({**own, **more, "checkpoints": _checkpoints(client, trainer_of(row))})
        return
    after = short(own) or f" after {own['samples']:,} samples"
    say(f"{found['metric']} {figure(own['value'])} in trial {own['number']}{after}")
    for name, value in own["params"].items():
        say(f"  {name}: {value}")
    say(command_line(row))
    say(f"checkpoints: bftrainer show {trainer_of(row)}")


def _checkpoints(client: Client, trainer: int | str) -> str | None:
    """The folder of a trainer's checkpoints; None: the daemon knows the trainer no more."""
    try:
        return str(client.call("GET", f"trainers/{trainer}")["checkpoint_dir"])
    except (DaemonError, BftrainerError):
        return None


def _one(client: Client, study: str, trial: int, *, as_json: bool) -> None:
    found = client.study(study)
    if as_json:
        print_json(row_of(found, trial))
    else:
        tell(client, found, trial)


def _spec(client: Client, study: str, trial: int, *, as_json: bool) -> None:
    """A trial as a spec of its own, with what it was in its first line."""
    import yaml

    from bftrainer.search.resubmit import again

    found = client.study(study)
    t = row_of(found, trial)
    wanted = again(found["text"], found["base"], trial, t["params"], t["until"])
    if as_json:
        print_json(wanted)
        return
    shown = f", {found['metric']} {figure(t['value'])}" if t["value"] is not None else ""
    say(f"# trial {trial} of {found['name']}: {t['status']} after {t['samples']:,} samples{shown}")
    say(yaml.safe_dump(wanted, sort_keys=False, width=1000).rstrip("\n"))


def _print(study: dict[str, Any], most: int, said: int) -> None:
    """Print a study with `most` trials, but the first lines that have been `said`."""
    for text in head(study)[said:]:
        say(text)
    if ahead := forecast(study):
        say(ahead)
    if known := learnt(study):
        say(known)
    say("")
    print_table(("rung", "samples", "trials", "ended", "best"), rung_rows(study))
    say("")
    rows = chosen(study, most)
    print_table(columns(study), [trial_row(t) for t in rows])
    if left := sum(study["counts"].values()) - len(rows):
        say(f"{left:,} more trials; --all shows them")
    if study["own_folders"]:
        say(f"files: trial N runs in {study['folder']}/N-files, with links to what the workdir has")
    if study["failed"] is not None:
        say(f"why a trial failed: bftrainer study show {study['id']} --trial {study['failed']}")


def _watched(views: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
    """Show a study as it goes on. Returns its last view where that has not been shown as a whole."""
    from bftrainer.cli.studies.picture import show

    return show(views)
