"""Credentials of munge: the hosts of a cluster share a key, so each can tell which user of another made one.

A credential is bound to one request, lives for a minute, and is accepted once: munged refuses a second use.
It goes to munge through a pipe, so that it never appears on a command line.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.reaching import UNKNOWN_CALLER

SCHEME = "Munge"
"""The scheme of the header `Authorization` with a credential."""
MAX_AGE_S = 60
"""Seconds for which a credential is accepted."""
AHEAD_S = 5
"""Seconds that another host's clock may be ahead of this one's."""
MAX_LENGTH = 4096
"""A longer text is no credential."""
COMMAND_S = 10.0
"""Seconds that a command of munge may take."""
AT_ONCE = 8
"""Commands that run at a time, at most."""

_METADATA = re.compile(
    r"STATUS:\s+Success \(0\)\nENCODE_TIME:\s+.*\((\d+)\)\nUID:\s+.*\((\d+)\)\n\n(.*)", re.DOTALL
)
_REFUSED = re.compile(r"STATUS:\s+(.*) \(\d+\)\n")


class MungeError(BftrainerError):
    """No credential can be made, or one is not valid."""

    def __init__(self, why: str) -> None:
        super().__init__(UNKNOWN_CALLER.ends(why))


def digest(method: str, target: str, body: bytes) -> str:
    """Return the payload of a credential for one request, so that it is valid for no other.

    `target` is path and query as they are sent.
    """
    head = f"bftrainer 1 {method} {target}\n".encode()
    return hashlib.sha256(head + hashlib.sha256(body).digest()).hexdigest()


@dataclass(frozen=True, slots=True)
class Munge:
    """Makes and checks credentials with the munged that listens at `socket`."""

    socket: Path
    now: Callable[[], float] = time.time
    _turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def encode(self, payload: str) -> str:
        """Return a credential of this process's user.

        Raises:
            MungeError: munged does not answer, or refuses.
        """
        code, said = await self._run("munge", payload, "--ttl", str(MAX_AGE_S))
        if code:
            raise MungeError(f"munge makes no credential: {said.strip()}; does munged run on this machine?")
        return said.strip()

    async def decode(self, credential: str, payload: str) -> int:
        """Return the number of the user that made a credential for `payload`.

        Raises:
            MungeError: The credential is forged, used, too old, or for another payload.
        """
        if not credential or len(credential) > MAX_LENGTH or not credential.isascii():
            raise MungeError("that is no munge credential")
        code, said = await self._run("unmunge", credential, "--keys", "STATUS,ENCODE_TIME,UID")
        if code:
            why = _REFUSED.match(said)
            raise MungeError(f"the munge credential is refused: {why[1] if why else said.strip()}")
        found = _METADATA.fullmatch(said)
        if found is None:
            raise MungeError("unmunge says what is not understood here")
        made, uid, told = int(found[1]), int(found[2]), found[3]
        if not -AHEAD_S <= self.now() - made <= MAX_AGE_S:
            raise MungeError(f"the munge credential is not of the last {MAX_AGE_S} s; are the clocks right?")
        if told != payload:
            raise MungeError("the munge credential is for another request")
        return uid

    async def _run(self, command: str, text: str, *options: str) -> tuple[int, str]:
        """Run a command of munge; return its exit code and output."""
        async with self._turn:
            try:
                process = await asyncio.create_subprocess_exec(
                    *(command, "--socket", str(self.socket), *options),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
            except OSError as error:
                raise MungeError(f"cannot run {command}: {error.strerror}; is munge installed?") from error
            try:
                async with asyncio.timeout(COMMAND_S):
                    out, err = await process.communicate(text.encode())
            except TimeoutError:
                raise MungeError(f"{command} does not answer within {COMMAND_S:g} s") from None
            finally:  # also where the client has gone: munged may hang, and clients come again and again
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        said = (out or err).decode(errors="replace")
        return process.returncode or 0, said.removeprefix(f"{command}: Error: ")
