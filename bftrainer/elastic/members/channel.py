"""The worker's end of its connection to the agent: lines of JSON over an inherited socket.

The agent puts all that a worker has to know into the variable BFTRAINER_WORKER. A script without it
was started by hand.
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
    """What the agent tells a worker at its start."""

    fd: int  # of the connection to the agent
    trainer: int
    node: str
    generation: int
    address: str  # where the other members reach this node
    samples: int | None  # the work; None: until the script ends
    checkpoint_dir: str
    checkpoint_every_s: float
    batch: dict[str, Any] = field(default_factory=dict)  # overrides the script's, see `policy.overridden`
    n_min: int = 0  # the fewest nodes that the spec allows, and the most; 0: the agent did not say
    n_max: int = 0
    max_metrics: int = 100  # so many names of figures the daemon keeps
    name: str = ""  # the trainer's
    folder: str = ""  # the trainer's own

    @classmethod
    def from_environment(cls) -> Orders | None:
        """The orders of this process, taken out of its environment; None if it was started by hand."""
        text = os.environ.pop(VARIABLE, None)  # for this process, not for those that it starts
        return cls(**json.loads(text)) if text else None


class Channel:
    """Sends messages to the agent, and hands those that arrive to `receive`, in a thread of its own.

    That thread calls `closed` when the agent is gone: no message will ever arrive again.
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
        """Begin to receive."""
        self._thread.start()

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message, of a type and with fields that JSON can hold. To a dead agent it is lost: the
        receiving thread notices that, and calls `closed`."""
        line = json.dumps({"type": kind, **fields}, ensure_ascii=False).encode(errors="replace") + b"\n"
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
            pass  # it broke within a line: the same as closed
        self._closed()
