"""To whom a connection is counted, seen from real sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from bftrainer.api.transport import accept
from bftrainer.api.transport.accept import owner_of
from bftrainer.api.transport.admission import Owner


def everybody(uid: int) -> bool:
    return True


def nobody(uid: int) -> bool:
    return False


def owner(listener: socket.socket, client: socket.socket, named: Callable[[int], bool] = everybody) -> Owner:
    """To whom a connection of `client` is counted."""
    with closing(listener), closing(client):
        listener.listen()
        client.connect(listener.getsockname())
        accepted, address = listener.accept()
        with closing(accepted):
            return owner_of(accepted, address, named)


def unix(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    return listener


def test_on_a_unix_socket_to_its_user(tmp_path: Path) -> None:
    assert owner(unix(tmp_path / "s"), socket.socket(socket.AF_UNIX)) == ("user", os.geteuid())


@pytest.mark.parametrize(
    ("uid", "counted"),
    [(1000, None), (65_534, None), (100_000, "uids 65536 to 131071"), (70_000, "uids 65536 to 131071")],
)
def test_numbers_without_a_known_name_count_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, counted: str | None
) -> None:
    """A user can connect as each of its subordinate numbers."""
    for number in (uid, uid + 1):
        monkeypatch.setattr(accept, "peer_uid", lambda client, number=number: number)
        found = owner(unix(tmp_path / str(number)), socket.socket(socket.AF_UNIX), nobody)
        assert found == (("unnamed", counted) if counted else ("user", number))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_over_tcp_on_this_machine_to_its_user_as_the_kernel_says(host: str) -> None:
    """Else whoever floods a port takes it from all, the site's monitor included."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert owner(listener, socket.socket(family)) == ("user", os.geteuid())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_over_tcp_another_user_is_another_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if not child:
            os.setuid(4711)
            with socket.socket() as client:
                client.connect(listener.getsockname())
                client.recv(1)
            os._exit(0)
        accepted, address = listener.accept()
        with closing(accepted):
            assert owner_of(accepted, address, everybody) == ("user", 4711)
        os.waitpid(child, 0)


def test_over_tcp_a_connection_that_its_client_has_closed_is_nobodys() -> None:
    """The kernel says 0 of it, and that is root."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.socket() as client:
            client.connect(listener.getsockname())
        accepted, address = listener.accept()
        with closing(accepted):
            assert owner_of(accepted, address, everybody) == ("address", "127.0.0.0/8")


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("127.9.8.7", "127.0.0.0/8"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_ipv6_client_has_one_share_for_its_whole_network(host: str, counted: str) -> None:
    with socket.socket() as client:
        assert owner_of(client, (host, 4711, 0, 0), everybody) == ("address", counted)
