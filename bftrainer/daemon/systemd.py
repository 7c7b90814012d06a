"""Tells systemd how the daemon is, by the protocol of sd_notify(3): datagrams of NAME=value lines.

Without systemd (no NOTIFY_SOCKET) nothing here has an effect. The socket is non-blocking and errors are
ignored: the daemon never waits for its supervisor, and never fails because of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bftrainer.model.text import shown


class Systemd:
    """The supervisor's end of the notify socket. `watchdog_s` is None where no pings are expected."""

    def __init__(self, address: str | None = None, watchdog_s: float | None = None) -> None:
        self.watchdog_s = watchdog_s
        self._address = f"\0{address[1:]}" if address and address.startswith("@") else address
        self._status = ""

    @classmethod
    def of(cls, environ: Mapping[str, str], pid: int) -> Systemd:
        """From systemd's variables in `environ`, for the process `pid`; a watchdog of another process is not
        ours to feed."""
        usec, meant = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(pid))
        expected = usec.isdecimal() and int(usec) > 0 and meant == str(pid)
        return cls(environ.get("NOTIFY_SOCKET") or None, int(usec) / 1e6 if expected else None)

    def ready(self) -> None:
        """The daemon serves, or has finished reloading."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Until `ready` is called again. The time says which of several reloads is meant."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """The daemon has begun to stop."""
        self._send("STOPPING=1")

    def ping(self) -> None:
        """Tell that the daemon is alive: without that for `watchdog_s`, systemd kills and restarts it."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`; sent when it differs from the last one."""
        line = shown(" ".join(text.split()))[:MAX_STATUS]
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as out:
            out.connect(self._address)
            out.send(message.encode(errors="replace"))


class Pulse:
    """For how long the work that is under way has kept a loop from turning."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Around one piece of work."""
        self._since = self._clock()
        try:
            yield
        finally:
            self._since = None

    @property
    def stuck_s(self) -> float:
        """Seconds since the present piece of work began; 0 while the loop waits for some."""
        return 0.0 if self._since is None else self._clock() - self._since


MAX_STATUS = 2000
"""Characters of a status line: systemd takes no message of any length."""
TICK_S = 5.0
"""Seconds between two statuses where no watchdog asks for more."""


async def report(systemd: Systemd, pulse: Pulse, status: Callable[[], str]) -> None:
    """Feed the watchdog, at half of its time, for as long as the loop behind `pulse` turns, for ever.

    This runs in the event loop: if that hangs, nothing is sent either.
    """
    tick_s = TICK_S if systemd.watchdog_s is None else min(TICK_S, systemd.watchdog_s / 2)
    while True:
        if systemd.watchdog_s is None or pulse.stuck_s < systemd.watchdog_s:
            systemd.ping()
        systemd.status(status())
        await asyncio.sleep(tick_s)
