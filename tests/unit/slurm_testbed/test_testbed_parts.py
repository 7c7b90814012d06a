"""Parts of the testbed that need no Slurm: ports and users on a machine that is somebody else's, too."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from slurm.testbed import TestbedError, ports, users


@pytest.mark.parametrize("outgoing", ["1024 65535", "15001 61000", "32768 60999"])
def test_there_are_ports_wherever_those_for_outgoing_connections_begin(
    outgoing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text(outgoing)
    monkeypatch.setattr(ports, "RANGE", tmp_path / "range")
    with ports.free_ports(3) as found:
        first, second, third = found
        assert ports.LOWEST <= first < second < third < 32768
        with socket.socket() as daemon:  # as Slurm's do, it can listen on what we hold
            daemon.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            daemon.bind(("127.0.0.1", first))
            daemon.listen()


@pytest.mark.parametrize("code", [1, 8, 10])
def test_what_is_in_the_way_for_now_is_waited_for(code: int, tmp_path: Path) -> None:
    once = f"mkdir {tmp_path}/seen 2> /dev/null && exit {code}; exit 0"
    users._repeat(["sh", "-c", once])


def test_a_refusal_is_told() -> None:
    with pytest.raises(TestbedError, match="no such user"):
        users._repeat(["sh", "-c", "echo no such user >&2; exit 6"])
