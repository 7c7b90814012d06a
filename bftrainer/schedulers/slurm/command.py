"""How Slurm's commands are run: for so long at most, and so that they print what the parsers read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bftrainer.errors import SchedulerError

STEERING = ("SLURM_", "SBATCH_", "SQUEUE_", "SCANCEL_", "SCONTROL_")
KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER"})
PRINTED = {"LC_ALL": "C", "TERM": "dumb", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
"""So that commands print what the parsers read: times as seconds since 1970, lists in full. Not for sbatch,
whoever runs it: jobs inherit its environment."""
KILLED_S = 1.0  # for a killed command to be gone


@dataclass(frozen=True, slots=True)
class Output:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """What the command had to say, in a line."""
        said = [line.strip() for line in (self.err or self.out).splitlines() if line.strip()]
        return (said[-1] if said else f"exit code {self.code}")[:300]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Without the variables that filter or reshape what Slurm's commands do."""
    return {k: v for k, v in environ.items() if k in KEPT or not k.startswith(STEERING)}


async def run(
    words: Sequence[str],
    environ: Mapping[str, str],
    timeout_s: float,
    *,
    stdin: str = "",
    hopeless: bytes = b"",
) -> Output:
    """Run a command, for `timeout_s` at most; `hopeless` on its stderr ends it at once.

    Raises:
        SchedulerError: it cannot be run, or takes too long.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**environ, **({} if "sbatch" in words else PRINTED)},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise SchedulerError(f"cannot run {words[0]}: {error.strerror}") from error
    said = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            out, _ = await asyncio.gather(_talk(process, stdin.encode()), _listen(process, said, hopeless))
            code = await process.wait()
    except TimeoutError:
        words_said = Output(-1, "", said.decode(errors="replace"))
        raise SchedulerError(reason(words_said, f"{words[0]} took more than {timeout_s:g} s")) from None
    finally:
        await _end(process)
    return Output(code, out.decode(errors="replace"), said.decode(errors="replace"))


def reason(done: Output, otherwise: str) -> str:
    """Why a command failed, in Slurm's own words where it has any."""
    words = done.words
    for known, short in (
        ("Unable to contact slurm controller", "slurmctld is down"),
        ("Socket timed out", "slurmctld does not answer"),
    ):
        if known in done.err:
            return f"{short}: {words}"
    return f"{otherwise}: {words}" if done.err.strip() else otherwise


async def _talk(process: asyncio.subprocess.Process, stdin: bytes) -> bytes:
    assert process.stdin and process.stdout  # noqa: S101
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()
    return await process.stdout.read()


async def _listen(process: asyncio.subprocess.Process, said: bytearray, hopeless: bytes) -> None:
    assert process.stderr  # noqa: S101
    while chunk := await process.stderr.read(4096):
        said += chunk
        if hopeless and hopeless in said:
            _kill(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill it if it still runs. What runs as another user may not let itself be killed: no waiting for it."""
    _kill(process)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), KILLED_S)


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
