"""bftrainer submit"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.options import client_options
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say
from bftrainer.cli.shared.types import Input


@click.command("submit")
@click.argument("spec", type=Input())
@client_options
def command(spec: Path, config: Path | None, state_dir: str | None, as_json: bool) -> None:
    """Submit the trainer that the YAML file SPEC describes. Nothing is stored if anything in it is wrong.

    \b
    name: digits                      # unique among unfinished trainers
    command: [python, digits.py]      # words, never a shell line
    nodes: {min: 1, max: 4}
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

    The user guide (docs/user-guide.md) explains every key; priority, curves and batch among them.
    """
    from bftrainer.settings.sources import load
    from bftrainer.spec.hints import hint
    from bftrainer.spec.located_yaml import SPEC
    from bftrainer.spec.parse import parse, read, require_workdir

    bounds = replace(SPEC, kb=load({"state_dir": state_dir}, file=config).max_spec_kb)
    text = read(spec, bounds)
    wanted = parse(text, str(spec), spec.parent, bounds)  # refuse a wrong spec before asking the daemon
    require_workdir(wanted, text, spec)
    answer = connect(config, state_dir).call(
        "POST",
        "trainers",
        body={
            "spec": text,
            "name": str(spec),
            "base": str(spec.parent.resolve()),
        },
    )
    if as_json:
        print_json(answer)
    else:
        say(f"submitted {wanted.name} as trainer {answer['id']}; follow it: bftrainer show {wanted.name}")
        if answer.get("note"):
            say(f"it waits: {answer['note']}")
        if told := hint(wanted):
            say(f"note: {told}")
