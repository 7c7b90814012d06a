"""The worker's end of its connection to the agent: lines of JSON over an inherited socket.

The agent puts everything a worker has to know into the variable BFTRAINER_WORKER. Without it the
script was started by hand.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

VARIABLE = "BFTRAINER_WORKER"
AGENT_GONE = 70
"""Exit code of a worker whose agent has gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a worker is told at its start.

    `samples` None: until the script ends. `batch`: what goes before the script's, see `policy.overridden`.
    """

    fd: int
    trainer: int
    node: str
    generation: int
    address: str
    samples: int | None
    checkpoint_dir: str
    checkpoint_every_s: float
    batch: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_environment(cls) -> Orders | None:
        text = os.environ.pop(VARIABLE, None)  # for this process, not for those that it starts
        return cls(**json.loads(text)) if text else None


class Channel:
    """Sends messages to the agent and hands those that arrive to `receive`, in a thread of its own.

    `closed` is called when the agent is gone: nobody will ever tell this worker anything again.
    """

    def __init__(
        self, fd: int, receive: Callable[[dict[str, Any]], None], closed: Callable[[], None]
    ) -> None:
        self._socket = socket.socket(fileno=fd)
        self._receive = receive
        self._closed = closed
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._listen, name="bftrainer-channel", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message. A dead agent is `_listen`'s to notice, not the sender's."""
        line = json.dumps({"type": kind, **fields}).encode() + b"\n"
        with self._lock:
            try:
                self._socket.sendall(line)
            except OSError:
                self._socket.close()

    def _listen(self) -> None:
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    self._receive(json.loads(line))
        except (OSError, ValueError):
            pass  # torn down in mid-line: the same as closed
        self._closed()
