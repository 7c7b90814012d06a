"""What a pilot and its daemon know and nobody else: a secret per pilot, and how each proves, with every
message, to know it.

The secret itself never crosses the network and stands on no command line. It follows from a key that only
the daemon has and from the pilot's tag, so that a restarted daemon knows those of all pilots that it finds.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any

VARIABLE = "BFTRAINER_SECRET"
"""The variable of a pilot's environment that has it; the agent takes it out before anything else runs."""
KEY_BYTES = 32
MAC_CHARACTERS = 64


def load_key(path: Path) -> bytes:
    """The daemon's key, made at the first start and readable by its owner only.

    Raises:
        OSError: it can be neither read nor made.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_bytes()
        if len(key) == KEY_BYTES:
            return key
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC)  # cut off by a full disk when it was made
    key = secrets.token_bytes(KEY_BYTES)
    with os.fdopen(fd, "wb") as file:
        file.write(key)
    return key


def of_pilot(key: bytes, tag: str) -> str:
    """The secret of the pilot with this tag."""
    return hmac.new(key, f"pilot {tag}".encode(), hashlib.sha256).hexdigest()


def nonce() -> str:
    """A challenge that nobody has seen before."""
    return secrets.token_hex(16)


class ForgedError(ValueError):
    """A message that the other side has not sent, or not now."""


class Seal:
    """All that one side says on one connection: before each message stands its MAC, of its number and itself.
    So none can be made up, changed, repeated, left out or moved without the other side's notice."""

    def __init__(self, secret: str, *parts: str) -> None:
        self._key = hmac.digest(secret.encode(), " ".join(parts).encode(), "sha256")
        self._count = 0

    def put(self, message: Any) -> str:
        """The next message, as it is to be sent."""
        text = json.dumps(message)
        return self._mac(text) + text

    def take(self, sealed: str) -> Any:
        """The next message, as it has come.

        Raises:
            ForgedError: who sent it does not know the secret, or it is not the next.
        """
        mac = self._mac(sealed[MAC_CHARACTERS:])
        if not hmac.compare_digest(sealed[:MAC_CHARACTERS].encode(), mac.encode()):
            raise ForgedError(f"message {self._count} of a connection has not been sent by the other side")
        return unchecked(sealed)

    def _mac(self, text: str) -> str:
        self._count += 1
        return hmac.digest(self._key, f"{self._count} {text}".encode(), "sha256").hex()


def seals(secret: str, challenge: str, nonce: str) -> tuple[Seal, Seal]:
    """The agent's seal and the daemon's, of one connection: the daemon has made up `challenge` for it, the
    agent `nonce`. So whose first message is right knows the secret and is there now."""
    return Seal(secret, "agent", challenge, nonce), Seal(secret, "daemon", challenge, nonce)


def unchecked(sealed: str) -> Any:
    """What a sealed message says, whoever may have sent it."""
    return json.loads(sealed[MAC_CHARACTERS:])
