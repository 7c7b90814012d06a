"""The processes that lead Horovod's workers, as the daemon keeps them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

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
