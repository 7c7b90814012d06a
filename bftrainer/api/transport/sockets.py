"""Clients' connections: read in small portions, and without the descriptors that their clients pass.

Parsing blocks the event loop: 256 kB at once, as asyncio reads them, can be 40,000 frames.

The kernel closes descriptors that nobody takes in the thread that reads or closes their Unix socket.
To close a TCP connection with unsent data and SO_LINGER takes as many seconds as its owner has asked for: any
client could halt the event loop with one byte. Linux 6.16 and later refuse descriptors where they are not
wanted; with earlier ones a signal interrupts the wait.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType

SO_PASSRIGHTS = 83  # of <asm-generic/socket.h>; Python has no name for it yet
PORTION = 32 * 1024
"""Bytes of a request that are read in one turn of the event loop."""
AGENT_PORTION = 4096
"""The same of an agent: a frame of six bytes costs as much as one of a thousand."""
UNPROVEN_PORTION = 128
"""The same until it has proven to be an agent."""
BRIEFLY_S = 0.005
"""Seconds that the kernel may take to close what a client has passed, before it is interrupted."""


def refuse_descriptors(bound: socket.socket) -> bool:
    """Have a Unix socket, and all that it accepts, refuse descriptors; whether the kernel can."""
    try:
        bound.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
    except OSError:
        return False
    return True


def interrupt_waits() -> None:
    """Let `briefly` interrupt this thread, the process's main thread, from now on.

    Raises:
        ValueError: Another thread calls it.
    """
    signal.signal(signal.SIGALRM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Do nothing: that a signal came has ended what the thread waited for."""


@contextlib.contextmanager
def briefly() -> Iterator[None]:
    """Interrupt what waits in here, where `interrupt_waits` was called: signals reach the main thread."""
    if (
        signal.getsignal(signal.SIGALRM) is not _interrupt
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    # Again and again: the first may come before the kernel begins to wait.
    signal.setitimer(signal.ITIMER_REAL, BRIEFLY_S, BRIEFLY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


class ClientSocket(socket.socket):
    """A client's connection, of which `portion` bytes are read at most at a time."""

    portion = PORTION

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Return what came.

        Raises:
            OSError: Nothing came, or the client is gone.
        """
        return super().recv(min(bufsize, self.portion), flags)


class UnixClient(ClientSocket):
    """A client's connection over a Unix socket. A client that passes descriptors is cut off."""

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """Return what came.

        Raises:
            OSError: Nothing came, the client is gone, or it has passed descriptors.
        """
        with briefly():
            data, _, found, _ = self.recvmsg(min(bufsize, self.portion), 0, flags)
        if found & socket.MSG_CTRUNC:
            raise ConnectionAbortedError("the client has passed descriptors")
        return data

    def close(self) -> None:
        """Close the connection, and what nobody has received of it."""
        with briefly():
            super().close()


def client_of(accepted: socket.socket, portion: int = PORTION) -> ClientSocket:
    """The accepted connection, to be read in portions of `portion` bytes."""
    kind = UnixClient if accepted.family == socket.AF_UNIX else ClientSocket
    client = kind(fileno=accepted.detach())
    client.portion = portion
    return client
