"""Runs LSF's commands so that they print what the parsers read, and come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bftrainer.schedulers.lsf.answers import unanswered
from bftrainer.schedulers.shared import command
from bftrainer.schedulers.shared.command import CommandOutput

STEERING = ("LSB_BJOBS_", "LSB_BHOSTS_", "LSB_BQUEUES_", "LSB_BHIST_", "LSB_SUB_", "BSUB_", "LSB_DEFAULT")
"""Variables with these prefixes filter or reshape what the commands do."""
JOB = ("LSB_JOB", "LSB_HOSTS", "LSB_MCPU_HOSTS", "LSB_DJOB_", "LSB_QUEUE", "LS_JOBPID", "LSB_EXIT")
"""Variables with these prefixes belong to the job in which the daemon may run, not to its pilots."""
PRINTED = {"LC_ALL": "C", "LSB_NTRIES": "2", "LSB_SHORT_HOSTLIST": "1"}
"""Makes commands print what the parsers read, and give up where LSF's daemons are down. LSF's own default is
to try for ever."""
HOPELESS = b"Please wait"
"""Words of a query that will go on trying."""


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what steers LSF's commands, and without the job that the daemon may run in."""
    return {k: v for k, v in environ.items() if not k.startswith((*STEERING, *JOB))}


def path_of(words: Sequence[str], folder: str) -> list[str]:
    """The words of a command of LSF with its path: in `folder`, or wherever PATH finds it ("")."""
    return [str(Path(folder) / words[0]), *words[1:]] if folder else list(words)


async def run(
    words: Sequence[str],
    environ: Mapping[str, str],
    timeout_s: float,
    *,
    stdin: str = "",
    question: bool = True,
    most_bytes: int = command.MOST_BYTES,
) -> CommandOutput:
    """Run a command of LSF for `timeout_s` at most. A `question` ends as soon as it says that LSF does not
    answer; an order may still be carried out, and goes on.

    Raises:
        SchedulerError: it cannot be run, or takes too long.
    """
    return await command.run(
        words,
        {**environ, **(PRINTED if question else {"LSB_NTRIES": PRINTED["LSB_NTRIES"]})},
        timeout_s,
        explain=reason,
        stdin=stdin,
        hopeless=HOPELESS if question else b"",
        most_bytes=most_bytes,
    )


def reason(done: CommandOutput, otherwise: str) -> str:
    """Return why a command failed: in LSF's own words if it has any, else `otherwise`."""
    if unanswered(done.err) or unanswered(done.out[-command.MOST_SAID :]):
        return f"LSF does not answer: {done.words}"
    return f"{otherwise}: {done.words}" if done.err.strip() else otherwise
