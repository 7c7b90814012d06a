"""A secret per pilot, known to the pilot and its daemon alone, with which both prove the origin of messages.

The secret itself never crosses the network and stands on no command line. It follows from a key that only the
daemon has and from the pilot's tag, so a restarted daemon knows the secrets of all pilots that it finds.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any

from bftrainer.errors import BftrainerError
from bftrainer.files import open_regular
from bftrainer.messages.commands.running import KEY
from bftrainer.model.reports import Message
from bftrainer.wire.parse import parse

KEY_BYTES = 32
MAC_CHARACTERS = 64


def load_key(path: Path) -> bytes:
    """The daemon's key: `KEY_BYTES` random bytes, made at the first start, which only the owner can read.

    Raises:
        BftrainerError: it can neither be read nor be made.
    """
    try:
        return _read_or_make(path)
    except OSError as error:
        said = error.strerror or "not a regular file"
        raise BftrainerError(KEY.say(path=path, why=said)) from error


def _read_or_make(path: Path) -> bytes:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        with open_regular(path) as found:
            key = found.read(KEY_BYTES + 1)
        if len(key) == KEY_BYTES:
            return key
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC)  # a full disk cut it off when it was made
    key = secrets.token_bytes(KEY_BYTES)
    with os.fdopen(fd, "wb") as file:
        file.write(key)
    return key


def of_pilot(key: bytes, tag: str) -> str:
    """The secret of the pilot with this tag, as hexadecimal digits."""
    return hmac.new(key, f"pilot {tag}".encode(), hashlib.sha256).hexdigest()


def nonce() -> str:
    """A random text that was never used before."""
    return secrets.token_hex(16)


class ForgedError(ValueError):
    """A message that the other side did not send, or not now and on this connection."""


class Seal:
    """The messages of one side of one connection. Each begins with a MAC of its number and its text, so the
    other side notices one that is made up, changed, repeated, left out or moved."""

    def __init__(self, secret: str, *parts: str) -> None:
        self._key = hmac.digest(secret.encode(), " ".join(parts).encode(), "sha256")
        self._count = 0

    def put(self, message: Any) -> str:
        """Seal the next message, which can be written as JSON."""
        return self.put_text(json.dumps(message))

    def put_text(self, text: str) -> str:
        """Seal the next message, which has been written as JSON."""
        return self._mac(text.encode()) + text

    def take(self, sealed: bytes) -> Message:
        """Read the next message.

        Raises:
            ForgedError: the sender does not know the secret, or this is not the next message.
            ValueError: the sender knows it, but this is no message.
        """
        mac = self._mac(sealed[MAC_CHARACTERS:])
        if not hmac.compare_digest(sealed[:MAC_CHARACTERS], mac.encode()):
            raise ForgedError(f"message {self._count} of a connection has not been sent by the other side")
        return parse(sealed[MAC_CHARACTERS:])

    def _mac(self, text: bytes) -> str:
        self._count += 1
        return hmac.digest(self._key, b"%d " % self._count + text, "sha256").hex()


def seals(secret: str, challenge: str, nonce: str) -> tuple[Seal, Seal]:
    """The agent's seal and the daemon's, for one connection.

    The daemon made up `challenge` for it and the agent `nonce`, so a side whose first message is right knows
    the secret and is there now.
    """
    return Seal(secret, "agent", challenge, nonce), Seal(secret, "daemon", challenge, nonce)
