"""Runs Slurm's commands so that they print what the parsers read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bftrainer.schedulers.shared import command
from bftrainer.schedulers.shared.command import CommandOutput

STEERING = ("SLURM_", "SBATCH_", "SQUEUE_", "SCANCEL_", "SCONTROL_", "SACCT_", "SINFO_")
KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER"})
PRINTED = {"LC_ALL": "C", "TERM": "dumb", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
"""Makes commands print what the parsers read: times as seconds since 1970, lists in full. Never for sbatch:
jobs inherit its environment."""
FEDERATED = frozenset({"squeue", "scontrol", "sacct", "sinfo"})
"""Commands that show all clusters of a federation where it has `fed_display`, unless told not to."""


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the variables that filter or reshape what Slurm's commands do."""
    return {k: v for k, v in environ.items() if k in KEPT or not k.startswith(STEERING)}


async def run(
    words: Sequence[str],
    environ: Mapping[str, str],
    timeout_s: float,
    *,
    stdin: str = "",
    hopeless: bytes = b"",
    most_bytes: int = command.MOST_BYTES,
) -> CommandOutput:
    """Run a command of Slurm on our cluster for `timeout_s` at most; `hopeless` on its standard error ends
    it at once, and so do more than `most_bytes` of output.

    Raises:
        SchedulerError: it cannot be run, or takes too long.
    """
    printed = {} if "sbatch" in words else PRINTED
    return await command.run(
        scoped(words),
        {**environ, **printed},
        timeout_s,
        explain=reason,
        stdin=stdin,
        hopeless=hopeless,
        most_bytes=most_bytes,
    )


def scoped(words: Sequence[str]) -> list[str]:
    """The words of a command that shows our cluster alone."""
    return [words[0], "--local", *words[1:]] if words[0] in FEDERATED else list(words)


def reason(done: CommandOutput, otherwise: str) -> str:
    """Return why a command failed: in Slurm's own words if it has any, else `otherwise`."""
    words = done.words
    for known, short in (
        ("Unable to contact slurm controller", "slurmctld is down"),
        ("Socket timed out", "slurmctld does not answer"),
    ):
        if known in done.err:
            return f"{short}: {words}"
    return f"{otherwise}: {words}" if done.err.strip() else otherwise
