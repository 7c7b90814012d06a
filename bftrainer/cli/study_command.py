"""bftrainer study"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from bftrainer.cli.priority_command import prioritise
from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.figures import figure
from bftrainer.cli.shared.groups import SuggestingGroup
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json, print_table
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Input, Positive
from bftrainer.cli.studies import demo, export, mirror, show
from bftrainer.cli.studies.words import params_text, stalled, study_argument, study_line
from bftrainer.messages.commands.lines import NEEDS
from bftrainer.messages.files.tables import WRONG_VALUE
from bftrainer.model.text import counted

COLUMNS = ("id", "user", "name", "status", "trials", "running", "ended", "best", "parameters", "node-hours")


@click.group("study", cls=SuggestingGroup)
def command() -> None:
    """Search for good hyper-parameters: many trainers of one script, of which the best are kept.

    A study file says what to try; docs/studies.md explains its keys. Each trial is a trainer on idle nodes.
    """


command.add_command(show.command)
command.add_command(show.best)
command.add_command(export.command)
command.add_command(mirror.command)
command.add_command(mirror.mirrors)
command.add_command(demo.command)


@command.command("submit")
@click.argument("study", type=Input())
@client_options
def submit(study: Path, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Submit the study that the YAML file STUDY describes. Nothing is stored if anything in it is wrong.

    \b
    name: digits-study                # unique among your unfinished studies
    trainer:                          # a trainer spec without name and work
      command: [python, digits.py, --lr, "{lr}"]
      nodes: {min: 1, max: 4}
    space:
      lr: {float: [0.001, 1.0], log: true}
    metric: accuracy                  # as the script reports it
    direction: maximize               # or minimize (default)
    trials: 16
    budget: 64000                     # samples of a trial that is kept to the end
    stopping: {halving: {least: 4000, eta: 4}}
    """
    from bftrainer.search.files.parse import parse
    from bftrainer.settings.sources import load
    from bftrainer.spec.located_yaml import STUDY
    from bftrainer.spec.parse import check_files, read

    bounds = replace(STUDY, kb=load({"state_dir": state_dir}, file=config).max_spec_kb)
    text = read(study, bounds)
    wanted = parse(text, str(study), study.parent, bounds)  # refuse a wrong study before asking the daemon
    check_files(wanted.trainer, text, study)
    body = {"spec": text, "name": str(study), "base": str(study.parent.resolve())}
    answer = connect(config, state_dir).call("POST", "studies", body=body)
    if as_json:
        print_json(answer)
        return
    say(
        f"submitted {wanted.name} as study {answer['id']} of {counted(wanted.trials, 'trial')}; follow it: "
        f"bftrainer study show --watch {answer['id']}"
    )
    if answer.get("note"):
        say(f"note: {answer['note']}", err=True)


@command.command("list")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0, max=1000),
    default=20,
    show_default=True,
    help="How many ended ones.",
)
@client_options
def list_(limit: int, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """List your studies; admins see those of all users."""
    found = connect(config, state_dir).call("GET", "studies", limit=limit)
    if as_json:
        print_json(found)
        return
    print_table(
        COLUMNS, [_row(study) for study in found], empty="no studies; bftrainer study submit STUDY adds one"
    )


@command.command("pause")
@study_argument
@client_options
def pause(study: str, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Stop the trainers of STUDY for a while; each writes a checkpoint first."""
    _order("pause", study, config, state_dir, as_json)


@command.command("resume")
@study_argument
@client_options
def resume(study: str, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Let a paused STUDY go on, each trial from its checkpoint."""
    _order("resume", study, config, state_dir, as_json)


@command.command("cancel")
@study_argument
@client_options
def cancel(study: str, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """End STUDY. Its results and checkpoints stay."""
    _order("cancel", study, config, state_dir, as_json)


@command.command("add")
@study_argument
@click.option("--trials", type=click.IntRange(0, 100_000), default=0, help="So many trials more.")
@click.option(
    "--point",
    "points",
    multiple=True,
    metavar="NAME=VALUE,...",
    help="A known point that the next trial tries, such as lr=0.1,optimizer=sgd; may be repeated.",
)
@client_options
def add(
    study: str,
    trials: int,
    points: tuple[str, ...],
    config: Path | None,
    state_dir: str | None,
    as_json: bool,
) -> None:
    """Add trials to STUDY while it runs, and known points. The sampler chooses what a point does not say."""
    if not trials and not points:
        raise click.UsageError(
            NEEDS.say(
                command="study add", option="--trials N or --point NAME=VALUE", what="what there is to add"
            )
        )
    body = {"trials": trials, "points": [_point(text) for text in points]}
    row = connect(config, state_dir).call("POST", f"studies/{study}/trials", body=body)
    if as_json:
        print_json(row)
    else:
        say(f"added {counted(trials, 'trial')}, {counted(len(points), 'point')}: {study_line(row)}")


def _point(text: str) -> dict[str, Any]:
    """The values in name=value,name=value: numbers, true and false, and texts."""
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(
                WRONG_VALUE.say(
                    name="--point", given=repr(text[:80]), wanted="NAME=VALUE, several with commas between"
                )
            )
        try:
            found[name.strip()] = json.loads(value)
        except ValueError:
            found[name.strip()] = value.strip()
    return found


@command.command("priority")
@study_argument
@click.argument("priority", type=Positive())
@client_options
def priority(study: str, priority: float, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Give all trainers of STUDY another PRIORITY, a number above 0: the highest is first in the queue."""
    prioritise(f"studies/{study}", priority, config, state_dir, as_json)


def _order(order: str, study: str, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    row = connect(config, state_dir).call("POST", f"studies/{study}/{order}")
    if as_json:
        print_json(row)
    else:
        say(row.get("note") or f"{order}: {study_line(row)}")


def _early(best: dict[str, Any]) -> str:
    """After how many samples the best trial reported, if it has ended no rung; else nothing."""
    return "" if best.get("short_of") is None else f" after {best['samples']:,} of {best['short_of']:,}"


def _row(study: dict[str, Any]) -> tuple[object, ...]:
    counts, best = study["counts"], study["best"]
    still = stalled(study, time.time())
    moving = ("waiting", "running", "paused")
    return (
        study["id"],
        study["user"],
        study["name"],
        ", ".join(filter(None, (study["status"], still, study.get("unmeasured") and "no metric so far"))),
        study["trials"],
        counts.get("running", 0),
        sum(count for status, count in counts.items() if status not in moving),
        f"{study['metric']}={figure(best['value'])}{_early(best)}" if best else "-",
        params_text(best["params"]) if best else "-",
        f"{study['node_s'] / 3600:.2f}",
    )
