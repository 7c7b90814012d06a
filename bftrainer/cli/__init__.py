"""The command line: one command a file, each parses, calls the library once and prints.

Commands are imported when they run, so that `bftrainer --help` answers at once.
"""

from __future__ import annotations

import importlib
import sys

import click

from bftrainer import __version__
from bftrainer.errors import BftrainerError

COMMANDS: dict[str, str] = {
    "daemon": "Run the daemon: watch for idle nodes, decide, and train.",
    "submit": "Submit a trainer from a YAML spec.",
    "list": "List the trainers.",
    "show": "Show all about one trainer.",
    "cancel": "End a trainer; it writes a checkpoint first.",
    "pool": "Show the nodes and who trains on them.",
    "events": "Show what happened, what was decided and what was done.",
    "logs": "Show what a trainer's workers printed.",
    "status": "Show the state of the daemon.",
    "admin": "Pause, drain and resume the whole site's use of idle nodes.",
    "pilot": "Show the batch job that would hold a node.",
    "demo": "Show it all at work on this machine.",
    "replay": "Replay a log of idle nodes offline and show what it would yield.",
    "trace": "Look at logs of idle nodes, convert them, and generate some.",
    "sweep": "Replay for every combination of parameters, in parallel.",
    "report": "Make an HTML page with pictures of replays.",
}


class Commands(click.Group):
    """Commands by name from modules of this package; their one-line help stands in COMMANDS."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"bftrainer.cli.{cmd_name}_command")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bftrainer")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def app(debug: bool) -> None:
    """Train neural networks on the idle nodes of a batch-scheduled machine.

    Tab completion: eval "$(_BFTRAINER_COMPLETE=bash_source bftrainer)" (zsh_source, fish_source).
    """


def main() -> None:
    """Run the command line; errors that a user can mend come without a traceback and exit with 1."""
    debug = "--debug" in sys.argv[1:]
    try:
        app(standalone_mode=True)
    except BftrainerError as error:
        if debug:
            raise
        for line in str(error).splitlines():
            click.echo(f"error: {line}", err=True)
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output has left: nothing to complain about
        sys.stderr.close()
        sys.exit(141)
