"""Runs a batch system's commands: none exceeds its time limit, and none is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bftrainer.errors import SchedulerError

KILLED_S = 1.0
"""Seconds to wait for a command that was killed."""
CHUNK = 1 << 16
MOST_BYTES = 64_000_000
"""Bytes read of a command's output by default: it holds what users of the machine wrote."""
MOST_SAID = 1 << 16
"""Bytes that are kept of its standard error."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """The result of a command: its exit code, output and duration in seconds. `cut`: it printed more than we
    read."""

    code: int
    raw: bytes
    err: str
    cut: bool = False
    took_s: float = 0.0

    @property
    def out(self) -> str:
        """The standard output, as text."""
        return self.raw.decode(errors="replace")

    @property
    def words(self) -> str:
        """The last line of what the command said, on its standard error if there is any."""
        last = self.err or self.raw[-MOST_SAID:].decode(errors="replace")
        said = [line.strip() for line in last.splitlines() if line.strip()]
        return (said[-1] if said else f"exit code {self.code}")[:300]


async def run(
    words: Sequence[str],
    environ: Mapping[str, str],
    timeout_s: float,
    *,
    explain: Callable[[CommandOutput, str], str],
    stdin: str = "",
    hopeless: bytes = b"",
    most_bytes: int = MOST_BYTES,
) -> CommandOutput:
    """Run a command for `timeout_s` at most; `hopeless` on its standard error ends it at once, and so does
    the output that exceeds `most_bytes`. `explain` says why a command failed, from its output and from what
    we know otherwise.

    Raises:
        SchedulerError: it cannot be run, or takes too long.
    """
    began = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environ),
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise SchedulerError(f"cannot run {words[0]}: {error.strerror}") from error
    except RuntimeError as error:  # no thread can be had to wait for it
        raise SchedulerError(f"cannot run {words[0]}: {error}") from error
    said = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            (out, cut), _ = await asyncio.gather(
                _talk(process, stdin.encode(), most_bytes), _listen(process, said, hopeless)
            )
            code = await process.wait()
    except TimeoutError:
        unfinished = CommandOutput(-1, b"", said.decode(errors="replace"))
        raise SchedulerError(explain(unfinished, f"{words[0]} took more than {timeout_s:g} s")) from None
    finally:
        await _end(process)
    return CommandOutput(code, out, said.decode(errors="replace"), cut, time.monotonic() - began)


async def _talk(process: asyncio.subprocess.Process, stdin: bytes, most: int) -> tuple[bytes, bool]:
    assert process.stdin and process.stdout  # noqa: S101
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()
    found = bytearray()
    while chunk := await process.stdout.read(CHUNK):
        found += chunk
        if len(found) > most:
            _kill(process)
            del found[most:]  # in place: a third copy of so much counts
            while await process.stdout.read(CHUNK):  # asyncio tells of the end only where all is read
                pass
            return bytes(found), True
    return bytes(found), False


async def _listen(process: asyncio.subprocess.Process, said: bytearray, hopeless: bytes) -> None:
    assert process.stderr  # noqa: S101
    while chunk := await process.stderr.read(4096):
        said += chunk[: max(0, MOST_SAID - len(said))]
        if hopeless and hopeless in said:
            _kill(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill it if it still runs. We may not be allowed to, if it is another user's: wait a moment only."""
    _kill(process)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), KILLED_S)


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
