"""Groups of commands that know what was meant by a word that is none of them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import click

MEANT: Mapping[str, tuple[str, ...]] = {
    "list": ("ls", "ps", "jobs", "squeue", "qstat", "bjobs", "trainers"),
    "submit": ("run", "start", "train", "add", "create", "launch", "exec", "sbatch", "srun", "qsub", "bsub"),
    "cancel": ("kill", "rm", "stop", "delete", "remove", "end", "scancel", "qdel", "bkill"),
    "show": ("info", "describe", "inspect", "why", "get"),
    "queue": ("why", "waiting", "pending"),
    "pool": ("nodes", "node", "sinfo", "bhosts", "hosts", "top"),
    "events": ("history", "plans", "decisions"),
    "logs": ("log", "tail", "output", "cat"),
    "metrics": ("plot", "curve", "tensorboard"),
    "status": ("health", "ping", "stats"),
    "study": ("studies", "search", "sweep-hpo", "hpo", "tune", "trial", "trials"),
    "best": ("winner", "top"),
    "priority": ("nice", "prio", "prioritise", "prioritize"),
    "daemon": ("serve", "server", "up", "init"),
    "resume": ("continue", "unpause", "restart"),
    "pause": ("suspend", "hold"),
}
"""Commands, and what other programs call such ones."""
NEAR = 0.6
"""From this likeness on a word is taken for a mistyped one."""


class SuggestingGroup(click.Group):
    """A group whose answer to an unknown command names those that may be meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names, as click does; refuse one that there is not."""
        word = args[0]
        if self.get_command(ctx, word) is None and not ctx.resilient_parsing and not word.startswith("-"):
            ctx.fail(f"no such command {word!r}{_hint(word, self.list_commands(ctx), ctx.command_path)}")
        return super().resolve_command(ctx, args)


def _hint(word: str, known: list[str], before: str) -> str:
    low = word.lower()
    meant = [name for name in known if low == name or low in MEANT.get(name, ())]
    found = meant or difflib.get_close_matches(low[:40], known, n=3, cutoff=NEAR)
    return f"; did you mean {' or '.join(f'{before} {name}' for name in found)}?" if found else ""


class ManyOptions(click.Command):
    """A command with many options, whose help begins with those that matter first, its `FIRST`."""

    FIRST: Mapping[str, Sequence[str]] = {
        "daemon": (
            *("scheduler", "config", "state_dir", "nodes", "log", "main_jobs"),
            *("slurm_partition", "objective", "t_fwd_s", "verbose"),
        ),
        "replay": (
            *("workload", "begin", "hours", "nodes", "allocator", "objective", "t_fwd_s"),
            *("out", "max_parallel", "as_json"),
        ),
    }

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in two groups."""
        first = self.FIRST.get(self.name or "", ())
        params = self.get_params(ctx)
        named = {param.name: param for param in params}
        groups = {
            "Options that matter first": [named[name] for name in first if name in named],
            "More options": [param for param in params if param.name not in first],
        }
        for title, chosen in groups.items():
            if records := [record for param in chosen if (record := param.get_help_record(ctx))]:
                with formatter.section(title):
                    formatter.write_dl(records)
