"""The worker's end of its connection to the agent: lines of JSON over an inherited socket.

The agent puts all that a worker needs into the variable BFTRAINER_WORKER. A script without it
was started by hand.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bftrainer.elastic.process import startup_times
from bftrainer.elastic.recorded import watcher
from bftrainer.messages.loop import NOT_STARTED, SECOND_RUN

VARIABLE = "BFTRAINER_WORKER"
AGENT_GONE = 70
"""Exit code of a worker whose agent has gone."""


_have_orders: set[int] = set()  # processes, as a forked child has the memory of its parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The agent's message to a worker at its start."""

    fd: int  # of the connection to the agent
    trainer: int
    node: str
    generation: int
    address: str  # where the other members reach this node
    samples: int | None  # the work; None: until the script ends
    checkpoint_dir: str
    checkpoint_every_s: float
    progress: int | None = None  # the work in samples by what they are worth, in place of `samples`
    batch: dict[str, Any] = field(default_factory=dict)  # overrides the script's, see `policy.overridden`
    partial: dict[str, Any] = field(default_factory=dict)  # overrides the script's, see `partial.options`
    n_min: int = 0  # the fewest nodes that the spec allows, and the most; 0: the agent did not say
    n_max: int = 0
    sizes: Sequence[int] = ()  # all that it allows, if it lists them
    multiple_of: int = 1  # otherwise only these
    max_metrics: int = 100  # names of figures that the daemon keeps
    name: str = ""  # the trainer's
    folder: str = ""  # the trainer's own
    socket: int = 0  # the inode of the connection, by which it is known again; 0: unknown
    local_rank: int = 0  # the number of this process among those of its node, and how many they are
    local_size: int = 1
    device: int = 0  # the number of its own device among those that it sees
    times: dict[str, float] = field(default_factory=dict)  # see `course`
    slots: Sequence[int] = ()  # descriptors of shared memory for snapshots, see `snapshots.saver`
    turns: dict[str, str] = field(default_factory=dict)  # socket and device, see `loop.device_turns`
    leads: bool = False  # the agent has made the process that it started the leader of a process group

    @classmethod
    def from_environment(cls) -> Orders | None:
        """The orders of this process, taken out of its environment; None if it was started by hand.

        Raises:
            RuntimeError: this process has taken its orders before; or another program stands between the
                agent and this process, and has closed the connection.
        """
        startup_times.reached("run")
        text = os.environ.pop(VARIABLE, None)  # for this process, not for those that it starts
        if not text:
            if os.getpid() in _have_orders:
                raise RuntimeError(SECOND_RUN.say())
            return None
        orders = cls(**json.loads(text))
        if not orders._is_connected():
            raise RuntimeError(NOT_STARTED.say(what="has closed the connection to bftrainer"))
        _have_orders.add(os.getpid())
        startup_times.begin(orders.times)
        return orders

    @property
    def ranks(self) -> tuple[int, int]:
        """The ranks of one node, and of the most nodes that the spec allows, if all run as many as this."""
        return self.local_size, (self.n_max or 1) * self.local_size

    @property
    def every_ranks(self) -> Sequence[int]:
        """All numbers of ranks that the spec allows, as far as the agent has reported, if all run as many."""
        nodes = self.sizes or range(self.n_min or 1, (self.n_max or 1) + 1)
        return [n * self.local_size for n in nodes]

    def _is_connected(self) -> bool:
        """True if the descriptor is the connection's: in another program's child it may be any file."""
        try:
            found = os.fstat(self.fd)
        except OSError:
            return False
        return stat.S_ISSOCK(found.st_mode) and self.socket in (0, found.st_ino)

    def expect_signals(self) -> None:
        """See that this process is the one to which the agent sends SIGTERM.

        Raises:
            RuntimeError: it is not; another program has started it.
        """
        if self.leads and os.getpid() != os.getpgrp():
            raise RuntimeError(NOT_STARTED.say(what="gets bftrainer's signals in its place"))


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
        watcher.watching.said(kind, fields)
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
