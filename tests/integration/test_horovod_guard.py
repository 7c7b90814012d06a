"""Horovod's driver has the daemon's rights: no process that reaches it can make it do what it should not."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

pytest.importorskip("horovod", reason="Horovod is not installed; run make horovod")

from horovod.runner.common.util import codec, network

from bftrainer.elastic.horovod import guard
from tests.support.driver_alone import as_daemon, driver_alone


class Evil:
    """Its pickle makes a file where it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Where a driver listens for workers."""
    with driver_alone(tmp_path) as path, as_daemon(path) as daemon:
        yield json.loads(daemon.makefile().readline())["port"]


def ask(port: int, method: str, path: str, body: bytes = b"") -> int | None:
    """The status of the answer; None where the connection just ends."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body)
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def test_no_worker_can_run_code_in_the_driver(port: int, tmp_path: Path) -> None:
    marker = tmp_path / "made"
    evil = codec.dumps_base64(Evil(marker), to_ascii=False)
    assert ask(port, "PUT", "/worker_addresses/n1:0", evil) is None
    plain = codec.dumps_base64(({}, b"key"), to_ascii=False)
    ask(port, "PUT", "/worker_addresses/n1:0", plain)
    assert ask(port, "PUT", "/scope/key", b"value") == 200, "it is still there"
    assert not marker.exists()


def test_the_driver_tells_nothing_of_files(port: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert ask(port, "HEAD", "/file") == ask(port, "HEAD", "/no-file") == 405


def test_what_workers_have_to_say_is_understood(tmp_path: Path) -> None:
    addresses = ({"lo": [("127.0.0.1", 4711)]}, b"secret")
    assert guard.loads_base64(codec.dumps_base64(addresses).encode()) == addresses
    ping = guard.loads(pickle.dumps(network.PingResponse("service", "10.0.0.1")))
    assert (ping.service_name, ping.source_address) == ("service", "10.0.0.1")
    assert isinstance(guard.loads(pickle.dumps(network.AckResponse())), network.AckResponse)
    for evil in (Evil(tmp_path / "made"), print, network.Wire(b""), object()):
        with pytest.raises(pickle.UnpicklingError, match="nothing that a worker has to say"):
            guard.loads(pickle.dumps(evil))
