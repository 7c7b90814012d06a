"""How Slurm's commands are run, so that they print what the parsers read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bftrainer.schedulers.shared import command
from bftrainer.schedulers.shared.command import Output

STEERING = ("SLURM_", "SBATCH_", "SQUEUE_", "SCANCEL_", "SCONTROL_")
KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER"})
PRINTED = {"LC_ALL": "C", "TERM": "dumb", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
"""Makes commands print what the parsers read: times as seconds since 1970, lists in full. Never for sbatch:
jobs inherit its environment."""


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
) -> Output:
    """Run a command of Slurm for `timeout_s` at most; `hopeless` on its standard error ends it at once, and
    so do more than `most_bytes` of output.

    Raises:
        SchedulerError: it cannot be run, or takes too long.
    """
    printed = {} if "sbatch" in words else PRINTED
    return await command.run(
        words,
        {**environ, **printed},
        timeout_s,
        explain=reason,
        stdin=stdin,
        hopeless=hopeless,
        most_bytes=most_bytes,
    )


def reason(done: Output, otherwise: str) -> str:
    """Why a command failed: in Slurm's own words if it has any, else `otherwise`."""
    words = done.words
    for known, short in (
        ("Unable to contact slurm controller", "slurmctld is down"),
        ("Socket timed out", "slurmctld does not answer"),
    ):
        if known in done.err:
            return f"{short}: {words}"
    return f"{otherwise}: {words}" if done.err.strip() else otherwise
