"""To whom a connection is counted, seen from real sockets."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from bftrainer.api.transport.accept import owner_of
from bftrainer.api.transport.admission import Owner


def owner(listener: socket.socket, client: socket.socket) -> Owner:
    """To whom a connection of `client` is counted."""
    with closing(listener), closing(client):
        listener.listen()
        client.connect(listener.getsockname())
        accepted, address = listener.accept()
        with closing(accepted):
            return owner_of(accepted, address)


def test_on_a_unix_socket_to_its_user(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    assert owner(listener, socket.socket(socket.AF_UNIX)) == ("user", os.geteuid())


def test_over_tcp_to_its_address() -> None:
    assert owner(socket.create_server(("127.0.0.1", 0)), socket.socket()) == ("address", "127.0.0.1")


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_ipv6_client_has_one_share_for_its_whole_network(host: str, counted: str) -> None:
    with socket.socket() as client:
        assert owner_of(client, (host, 4711, 0, 0)) == ("address", counted)
