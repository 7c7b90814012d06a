"""Free ports for a testbed, kept from others until its processes listen on them."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from pathlib import Path

from benchmarks.testbeds.errors import TestbedError

LOWEST, HIGHEST = 15000, 32000
ROOM = 2000
"""Ports, among which even a large testbed finds its own."""
TRIES = 200
RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


@contextlib.contextmanager
def free_ports(count: int) -> Iterator[tuple[int, ...]]:
    """Ports in a row that nobody has, below those that the kernel gives to outgoing connections.

    They stay bound, not listening, while the context lasts: another testbed will not choose them, and
    a process that sets SO_REUSEADDR, as Slurm's daemons do, can listen on them.

    Raises:
        TestbedError: none are found.
    """
    highest = _highest(int(RANGE.read_text().split()[0])) - count
    for _ in range(TRIES):
        first = random.randrange(LOWEST, highest)  # noqa: S311  not for secrets
        with contextlib.ExitStack() as held:
            try:
                ports = tuple(_bind(held, port) for port in range(first, first + count))
            except OSError:
                continue
            yield ports
            return
    raise TestbedError(f"no {count} free ports in a row between {LOWEST} and {highest}; stop other testbeds")


def _highest(outgoing: int) -> int:
    """Return our highest port: an outgoing one where nearly all ports are for outgoing connections."""
    return outgoing if outgoing > LOWEST + ROOM else HIGHEST


def _bind(held: contextlib.ExitStack, port: int) -> int:
    claim = held.enter_context(socket.socket())
    claim.bind(("", port))  # without SO_REUSEADDR, so that it fails where anybody has the port
    claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return port
