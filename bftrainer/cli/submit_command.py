"""bftrainer submit"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bftrainer.cli.shared.completion import complete_trainer
from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Input
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.lines import NO_CHECKPOINT

if TYPE_CHECKING:
    from bftrainer.api.client import Client


@click.command("submit")
@click.argument("spec", type=Input())
@click.option(
    "--resume",
    metavar="TRAINER",
    shell_complete=complete_trainer,
    help="Go on from the checkpoints of your trainer of this name or number, which has ended.",
)
@client_options
def command(
    spec: Path, resume: str | None, config: Path | None, state_dir: str | None, as_json: bool
) -> None:
    """Submit the trainer that the YAML file SPEC describes. Nothing is stored if anything in it is wrong.

    \b
    name: digits                      # unique among unfinished trainers
    command: [python, digits.py]      # or a line of words; no shell reads it
    nodes: {min: 1, max: 4}           # or 4, the most
    launcher: native                  # or torchrun, horovod
    work: {samples: 500000}           # or until_exit: until the script ends (default)
    curve: [[1, 900], [4, 3200]]      # nodes, samples/s; without: learnt
    rescale:                          # seconds; without: learnt
      up: {stall_s: 0.1, init_s: 5}   # all members stand still, new nodes initialise
      down: {stall_s: 0.1}
    scalability: auto                 # or given: curve and rescale hold, whatever is measured
    weight: 1.0
    workdir: .                        # relative to the spec
    env: {KEY: "value"}
    checkpoint: {dir: ckpt, every_s: 5}

    docs/trainer-spec.md explains every key; priority, curves and batch among them.
    """
    from bftrainer.cli.shared import script_hints
    from bftrainer.rehearsal import tried
    from bftrainer.settings.sources import load
    from bftrainer.spec.hints import hint
    from bftrainer.spec.located_yaml import SPEC
    from bftrainer.spec.parse import check_files, parse, read

    bounds = replace(SPEC, kb=load({"state_dir": state_dir}, file=config).max_spec_kb)
    text = read(spec, bounds)
    wanted = parse(text, str(spec), spec.parent, bounds)  # refuse a wrong spec before asking the daemon
    check_files(wanted, text, spec)
    client = connect(config, state_dir)
    body = {"spec": text, "name": str(spec), "base": str(spec.parent.resolve())}
    if resume is not None:
        body["resume"] = str(_with_checkpoints(client, resume))
    answer = client.call("POST", "trainers", body=body)
    answer["hint"] = hint(wanted) or script_hints.hint(wanted)
    if as_json:
        print_json(answer)
        return
    sizes = f"{wanted.n_min} to {wanted.n_max}" if wanted.n_min < wanted.n_max else f"{wanted.n_max}"
    of = f"{'GPU' if wanted.gpus else 'node'}{'s' if wanted.n_max > 1 else ''}"
    say(
        f"submitted {wanted.name} as trainer {answer['id']}, on {sizes} {of}; follow it: "
        f"bftrainer show {answer['id']}"
    )
    if answer.get("earlier"):
        say(_about(answer["earlier"], answer["id"], spec))
    if answer.get("note"):
        say(f"it waits: {answer['note']}")
    if answer["hint"]:
        say(f"note: {answer['hint']}")
    elif told := tried.hint(wanted, spec):
        say(f"note: {told}", err=True)


def _with_checkpoints(client: Client, trainer: str) -> int:
    """The number of a trainer from which another can go on. The daemon opens no file of a user: we look.

    Raises:
        BftrainerError: it has left no checkpoint.
    """
    found = client.call("GET", f"trainers/{trainer}")
    if found["ended_at"] is None:  # the daemon refuses it
        return int(found["id"])
    folder = Path(found["checkpoint_dir"])
    try:
        left = any(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        why = f"has no checkpoint that you can read: {folder}: {error.strerror}"
        raise BftrainerError(NO_CHECKPOINT.say(id=found["id"], name=found["name"], why=why)) from error
    if not left:
        why = f"has left no checkpoint in {folder}"
        raise BftrainerError(NO_CHECKPOINT.say(id=found["id"], name=found["name"], why=why))
    return int(found["id"])


def _about(earlier: dict[str, Any], new: int, spec: Path) -> str:
    """Return a new trainer's relation to the one before it, in words."""
    which = f"trainer {earlier['id']} ({earlier['name']}, {earlier['status']} at step {earlier['step']})"
    if earlier["goes_on"]:
        where = earlier["checkpoint_dir"]
        return f"it goes on from the last checkpoint of {which} in {where}; logs will say from which step"
    return (
        f"it begins anew; the checkpoints of {which} stay in {earlier['checkpoint_dir']}. "
        f"To go on from them: bftrainer cancel {new}, then bftrainer submit --resume {earlier['id']} {spec}"
    )
