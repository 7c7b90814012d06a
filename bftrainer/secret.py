"""What a pilot and its daemon know and nobody else: a secret per pilot, and how each proves to know it.

The secret itself never crosses the network and stands on no command line. It follows from a key that only
the daemon has and from the pilot's tag, so that a restarted daemon knows those of all pilots that it finds.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

VARIABLE = "BFTRAINER_SECRET"
"""The variable of a pilot's environment that has it; the agent takes it out before anything else runs."""
KEY_BYTES = 32


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


def proof(secret: str, side: str, challenge: str) -> str:
    """The answer to the other side's challenge that only who knows the secret can give.

    `side` (agent or daemon) is who answers: nobody can be made to answer its own challenge.
    """
    return hmac.new(secret.encode(), f"{side} {challenge}".encode(), hashlib.sha256).hexdigest()


def proven(answer: object, secret: str, side: str, challenge: str) -> bool:
    """Whether an answer is the right one."""
    return isinstance(answer, str) and hmac.compare_digest(
        answer.encode(), proof(secret, side, challenge).encode()
    )
