"""The command line: one command a file. A command parses its arguments, calls the library once and prints.

A command's module is imported when the command runs, so that `bftrainer --help` answers at once.
"""

from __future__ import annotations

import importlib
import sys
import traceback

import click
from click.shell_completion import CompletionItem

from bftrainer import __version__
from bftrainer.cli.shared.failures import tell
from bftrainer.cli.shared.groups import SuggestingGroup
from bftrainer.elsewhere import import_elsewhere

COMMANDS: dict[str, str] = {
    "daemon": "Run the daemon: watch for idle nodes, decide, and train.",
    "try": "Try a script on this machine: does it end the same when nodes come and go?",
    "submit": "Submit a trainer from a YAML spec.",
    "list": "List the trainers.",
    "watch": "Watch nodes and trainers: who had which node in the last minutes, pauses, decisions.",
    "show": "Show all about one trainer.",
    "cancel": "End trainers; they write a checkpoint first.",
    "priority": "Give a trainer another place in the queue.",
    "study": "Search for good hyper-parameters: many trainers, of which the best are kept.",
    "queue": "Show which trainers wait, why, and what would make them run.",
    "pool": "Show the nodes and who trains on them.",
    "events": "Show what happened, what was decided and what was done.",
    "web": "Show all of it in a page, as it changes.",
    "metrics": "Show, draw or export the course of a trainer's metrics.",
    "logs": "Show what a trainer's workers printed.",
    "status": "Show the state of the daemon.",
    "explain": "Say what a message with an id means, and what to do.",
    "admin": "Pause, drain and resume the use of idle nodes; check a site's set-up.",
    "pilot": "Show the batch job that would hold a node.",
    "lsf": "See whether bftrainer understands this site's LSF.",
    "demo": "Show it all at work on this machine.",
    "replay": "Replay a log of idle nodes offline and show what it would yield.",
    "record": "Record when nodes are idle, for weeks, before anything is installed.",
    "plan": "Plan a search under a deadline, or the nodes of one training.",
    "trace": "Look at logs of idle nodes, convert them, and generate some.",
    "sweep": "Replay for every combination of parameters, in parallel.",
    "report": "Make an HTML page with pictures of replays.",
}


class Commands(SuggestingGroup):
    """The commands of COMMANDS, each from the module of its name, which is imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command's module and return the command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"bftrainer.cli.{cmd_name}_command")
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the commands without importing any of them, and the options."""
        names = [
            CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands for `--help` without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="bftrainer")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def app(debug: bool) -> None:
    """Train neural networks on the idle nodes of a batch-scheduled machine.

    Tab completion: eval "$(_BFTRAINER_COMPLETE=bash_source bftrainer)" (zsh_source, fish_source).
    """


def main() -> None:
    """Run the command line. Every error ends in a line that says what is wrong, and an exit code.

    1: the user can mend it. 2: wrong usage. 70: a bug in bftrainer. 130: interrupted. 141: nobody reads the
    output. With `--debug`, a traceback follows.
    """
    debug = "--debug" in sys.argv[1:]
    import_elsewhere()
    try:
        sys.exit(app.main(prog_name="bftrainer", standalone_mode=False))
    except SystemExit:
        raise
    except BrokenPipeError:  # the program that read our output has ended, such as head
        sys.stderr.close()
        sys.exit(141)
    except Exception as error:  # noqa: BLE001  nothing is above this that could tell it
        code = tell(error)
        if debug and code != 2:
            traceback.print_exception(error)
        sys.exit(code)
