"""The processes that lead Horovod's workers, as the daemon keeps them."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path

from bftrainer.launch.horovod import drivers as drivers_
from bftrainer.launch.horovod.drivers import DriverProcesses
from bftrainer.model.reports import Message
from tests.support.waiting import until_true


def test_a_line_as_long_as_a_large_machines_names_is_heard(tmp_path: Path) -> None:
    hosts = [f"node-{number:05}.{number}" for number in range(20_000)]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for generation in (1, 2):
            writer.write(
                json.dumps({"type": "formed", "generation": generation, "hosts": hosts}).encode() + b"\n"
            )
            await writer.drain()
        await reader.read()

    async def story() -> None:
        heard: list[Message] = []
        server = await asyncio.start_unix_server(talk, tmp_path / "7-1.sock")
        drivers = DriverProcesses("127.0.0.1", tmp_path, orphan_s=1.0, memory_mb=64, connections=64)
        drivers.open(7, heard.append)
        await until_true(lambda: len(heard) == 2)
        assert [message["generation"] for message in heard] == [1, 2]
        drivers.close()
        server.close()

    asyncio.run(story())


def test_a_driver_that_says_nonsense_is_connected_to_again(tmp_path: Path) -> None:
    came: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(b"{" if not came else b'{"type": "up", "port": 1}')
        writer.write(came[-1] + b"\n")
        await reader.read()

    async def story() -> None:
        heard: list[Message] = []
        server = await asyncio.start_unix_server(talk, tmp_path / "7-1.sock")
        drivers = DriverProcesses("127.0.0.1", tmp_path, orphan_s=1.0, memory_mb=64, connections=64)
        drivers.open(7, heard.append)
        await until_true(lambda: len(heard) == 2)
        assert [message["type"] for message in heard] == ["lost", "up"]
        drivers.close()
        server.close()

    asyncio.run(story())


def test_the_logs_of_drivers_are_bounded_in_number_and_size(tmp_path: Path) -> None:
    for number in range(drivers_.LOGS + 10):
        (tmp_path / f"{number}.log").touch()
        os.utime(tmp_path / f"{number}.log", (number, number))
    (tmp_path / "3.log").write_bytes(b"x" * (drivers_.LOG_BYTES + 1))
    os.utime(tmp_path / "3.log", (1e9, 1e9))
    drivers_._open_log(tmp_path / "1000.log").close()
    there = {path.name for path in tmp_path.glob("*.log")}
    assert len(there) == drivers_.LOGS
    assert "3.log" in there and "4.log" not in there
    drivers_._open_log(tmp_path / "3.log").close()
    assert (tmp_path / "3.log").stat().st_size == 0


def test_a_disk_that_hangs_keeps_no_other_part_waiting(tmp_path: Path) -> None:
    go_on = threading.Event()

    async def story() -> None:
        drivers = DriverProcesses("127.0.0.1", tmp_path, orphan_s=1.0, memory_mb=64, connections=64)
        drivers._disk.submit(go_on.wait, 60.0)
        drivers.open(7, lambda message: None)
        await asyncio.sleep(0)
        drivers._paths[7] = tmp_path / "7-1.sock"
        drivers.end(7)
        go_on.set()
        drivers.close()

    asyncio.run(story())
