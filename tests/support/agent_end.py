"""The agent's end of a worker's connection, for parts of a worker that run in the test's own process."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bftrainer.elastic.process.channel import Orders
from tests.support import waiting


class AgentEnd:
    """Sends orders to a worker and collects its messages."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""
        self.heard: list[dict[str, Any]] = []

    def say(self, kind: str, **fields: Any) -> None:
        """Send one message to the worker."""
        self._connection.sendall(json.dumps({"type": kind, **fields}).encode() + b"\n")

    def hear(self) -> list[dict[str, Any]]:
        """All messages so far, the newest last."""
        while True:
            try:
                data = self._connection.recv(1 << 16, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return self.heard
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.heard += [json.loads(line) for line in lines]


def until(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    """Wait for a condition, often: what is waited for takes milliseconds.

    Raises:
        AssertionError: it does not come true in time.
    """
    waiting.until(condition, "what the worker does", seconds=timeout_s, every_s=0.01)


@contextmanager
def agent_of(
    monkeypatch: pytest.MonkeyPatch, folder: Path, /, **orders: Any
) -> Iterator[tuple[AgentEnd, Orders]]:
    """An agent's end, and the orders of its worker, which is node `a` of trainer 1.

    A worker ends its process when its agent has gone; here the end of the connection ends its thread only.
    """
    ours, theirs = socket.socketpair()
    before = set(threading.enumerate())
    gone: list[int] = []
    monkeypatch.setattr(os, "_exit", gone.append)
    given: dict[str, Any] = {"samples": None, "checkpoint_every_s": 1e6, **orders}
    told = Orders(
        fd=theirs.detach(),
        trainer=1,
        node="a",
        generation=1,
        address="127.0.0.1",
        checkpoint_dir=str(folder),
        **given,
    )
    try:
        yield AgentEnd(ours), told
    finally:
        ours.close()
        # all of them, also where a test has made two workers: a later one would end the test's own process
        until(lambda: gone and not any(map(_listens, {*threading.enumerate()} - before)))


def _listens(thread: threading.Thread) -> bool:
    return thread.name == "bftrainer-channel"
