"""What a client sends is read in portions; what it passes, and takes an hour to close, is not wanted."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bftrainer.api.transport.listen import bind_unix
from bftrainer.api.transport.sockets import AGENT_PORTION, ClientSocket, client_of, refuse_descriptors
from tests.support.passing import pass_lingering

HOUR_S = 3600
SOON_S = 60.0
ROOT = Path(__file__).parents[3]
RECEIVER = """
import socket, sys
from bftrainer.api.transport.sockets import UnixClient, interrupt_waits
from tests.support.passing import pass_lingering

interrupt_waits()
theirs, ours = socket.socketpair()
ours = UnixClient(fileno=ours.detach())
kept = pass_lingering(theirs, {seconds})
if {reads}:
    try:
        ours.recv(1000)
    except ConnectionAbortedError as error:
        print(error)
ours.close()
print("closed")
"""


@pytest.mark.parametrize(
    ("reads", "said"), [(True, "the client has passed descriptors\nclosed\n"), (False, "closed\n")]
)
def test_what_a_client_has_passed_is_closed_soon(reads: bool, said: str) -> None:
    receiver = [sys.executable, "-c", RECEIVER.format(seconds=HOUR_S, reads=reads)]
    ended = subprocess.run(receiver, check=False, cwd=ROOT, capture_output=True, timeout=SOON_S)
    assert (ended.stdout.decode(), ended.stderr.decode()) == (said, "")


def test_a_socket_for_users_refuses_descriptors_where_the_kernel_can(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        if not refuse_descriptors(other):
            pytest.skip("this kernel cannot refuse descriptors (Linux 6.16 and later can)")
    with bind_unix(tmp_path / "s", for_all=False) as bound, socket.socket(socket.AF_UNIX) as client:
        bound.listen()
        client.connect(str(tmp_path / "s"))
        with pytest.raises(PermissionError):  # while the connection waits, too
            pass_lingering(client, HOUR_S)
        accepted, _ = bound.accept()
        with accepted, pytest.raises(PermissionError):
            pass_lingering(client, HOUR_S)


def pair(family: int) -> tuple[socket.socket, ClientSocket]:
    """A client's end and ours."""
    if family == socket.AF_UNIX:
        theirs, ours = socket.socketpair()
        return theirs, client_of(ours, AGENT_PORTION)
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        return theirs, client_of(server.accept()[0], AGENT_PORTION)


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_a_client_is_read_in_small_portions(family: int) -> None:
    theirs, client = pair(family)
    with theirs, client:
        assert client.family == family
        theirs.sendall(b"x" * (2 * AGENT_PORTION) + b"GET")
        assert len(client.recv(1000)) == 1000
        assert len(client.recv(10 * AGENT_PORTION)) == AGENT_PORTION
        assert client.recv(10 * AGENT_PORTION) == b"x" * (AGENT_PORTION - 1000) + b"GET"
        client.setblocking(False)
        with pytest.raises(BlockingIOError) as nothing:
            client.recv(1000)
        assert nothing.value.errno == errno.EAGAIN
        theirs.close()
        assert client.recv(1000) == b""
