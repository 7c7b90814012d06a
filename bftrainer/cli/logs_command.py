"""bftrainer logs"""

from __future__ import annotations

import time
from pathlib import Path

import click

from bftrainer.cli.shared.connection import connect
from bftrainer.cli.shared.options import client_options, trainer_argument
from bftrainer.cli.shared.tables import print_json
from bftrainer.cli.shared.terminal import say, say_as_it_is
from bftrainer.messages.commands.lines import NOT_WITH


@click.command("logs")
@trainer_argument
@click.option("--node", help="Only this node's worker; without it, all nodes' lines by time.")
@click.option(
    "-n", "--lines", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Per node."
)
@click.option("-f", "--follow", is_flag=True, help="Go on showing what is added, until Ctrl-C.")
@client_options
def command(
    trainer: str,
    node: str | None,
    lines: int,
    follow: bool,
    config: Path | None,
    state_dir: str | None,
    as_json: bool,
) -> None:
    """Show the last lines that TRAINER's workers printed, by time.

    A line without a time follows the line before it on its node. Your script's lines have a time if it prints
    one, as Python's logging does.

    Workers print into files that belong to the trainer's user, in a folder that `bftrainer show` names.

    What your own workers printed is shown as it is, as `tail` would. Control characters in what others'
    workers printed are escaped, as they could make a terminal show or do anything. Only files that belong to
    the trainer's user are read, no links: another user may have put others there.
    """
    from bftrainer import worker_output

    if follow and as_json:
        raise click.UsageError(NOT_WITH.say(options="--follow", other="--json"))
    shown = connect(config, state_dir).call("GET", f"trainers/{trainer}")
    folder = Path(shown["log_dir"])
    of = worker_output.owner(shown["user"])
    put = (
        say_as_it_is if worker_output.is_own(shown["user"]) else say
    )  # in pipes, too: they may end at a terminal
    found = worker_output.last_lines(folder, lines, node, of=of)
    if as_json:
        print_json({name: part.text for name, part in found.items()})
        return
    if shown.get("note"):
        say(f"note: {shown['note']}", err=True)
    if not found and not follow:
        say("nothing has been printed yet" + (f" on a node {node}: see bftrainer show" if node else ""))
    while True:
        for name, line in worker_output.by_time(found):
            put(f"{name}: {line}")
        if not follow:
            return
        time.sleep(0.5)
        ends = {name: part.end for name, part in found.items()}
        found = worker_output.added(folder, ends, node, of=of)
