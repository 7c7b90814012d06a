"""Several processes that are one worker to the daemon: how they start, and end together."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from bftrainer.agent.devices import Device
from bftrainer.agent.node_workers import NodeWorkers
from bftrainer.agent.process import COMPILED
from bftrainer.agent.seats import Seat
from bftrainer.agent.warm import WarmPool

COUNT = 3


class Node:
    """Three processes of one shell script on node n, and what the daemon hears of them."""

    def __init__(self, folder: Path, script: str, *, gated: bool = False) -> None:
        self.folder = folder
        self.ended: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self.failed: list[int] = []
        order = {
            "trainer": 7,
            "generation": 2,
            "workdir": str(folder),
            "env": {},
            "worker": {},
            "warm": False,
            "command": ["bash", "-c", script],
            "log": str(folder / "t" / "n.log"),
            "gated": gated,
        }
        self.workers = NodeWorkers(
            order,
            "n",
            "127.0.0.1",
            WarmPool("n"),
            lambda _, message: None,
            lambda _, code, reason: self.ended.set_result((code, reason)),
            seats=[Seat(i, COUNT, Device(str(i), ()), env=(("SEAT", str(i)),)) for i in range(COUNT)],
            failed=lambda seat: self.failed.append(seat.local_rank),
        )

    async def start(self) -> None:
        await self.workers.start()
        if self.workers.order["gated"]:
            self.workers.go({"run": 4, "env": {"A": "all"}, "each": [{"B": str(i)} for i in range(COUNT)]})
        async with asyncio.timeout(20):
            while len(list(self.folder.glob("up.*"))) < COUNT:
                await asyncio.sleep(0.01)

    async def end(self) -> tuple[int, str]:
        async with asyncio.timeout(20):
            return await self.ended

    def pid(self, rank: int) -> int:
        return int((self.folder / f"up.{rank}").read_text())


def told(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(story())


UP = "echo $$ > new.$SEAT; mv new.$SEAT up.$SEAT; "
STAY = UP + "exec sleep 100"


def test_one_that_is_killed_takes_the_others_along(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, STAY)
        await node.start()
        os.kill(node.pid(1), signal.SIGKILL)
        assert await node.end() == (-9, "worker 1 of 3 on n was killed by signal 9")
        assert node.failed == [], "that is no failure of a device"
        for rank in range(COUNT):
            with pytest.raises(ProcessLookupError):
                os.kill(node.pid(rank), 0)

    told(story)


def test_a_library_that_an_earlier_worker_linked_in_part_is_removed_at_their_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torn = tmp_path / "cache" / "ab" / "torn.so"
    torn.parent.mkdir(parents=True)
    torn.touch()
    os.utime(torn, (0, 0))
    monkeypatch.setenv(COMPILED, str(tmp_path / "cache"))

    async def story() -> None:
        node = Node(tmp_path, UP + "until [ -e go ]; do sleep 0.01; done")
        await node.start()
        async with asyncio.timeout(20):
            while torn.exists():
                await asyncio.sleep(0.01)
        (tmp_path / "go").touch()
        assert await node.end() == (0, "")

    told(story)


def test_the_first_failure_is_the_nodes_and_its_devices(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(
            tmp_path,
            UP + "[ $SEAT = 2 ] && { until [ -e go ]; do sleep 0.01; done; exit 3; }; exec sleep 100",
        )
        await node.start()
        (tmp_path / "go").touch()
        assert await node.end() == (3, "worker 2 of 3 on n ended with exit code 3")
        assert node.failed == [2]

    told(story)


def test_all_that_end_by_themselves_end_as_the_first(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, UP + "exit 0")
        await node.start()
        assert await node.end() == (0, "")

    told(story)


def test_a_kill_of_the_daemon_is_told_with_its_reason(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, STAY)
        await node.start()
        node.workers.kill("told of no progress")
        assert await node.end() == (-9, "told of no progress") and node.failed == []

    told(story)


def test_where_the_first_alone_is_told_to_stop_the_others_follow(tmp_path: Path) -> None:
    script = UP + "trap 'date +%s%N > stopped.$SEAT; sleep 0.3; exit 0' TERM; while :; do sleep 0.01; done"

    async def story() -> None:
        node = Node(tmp_path, script, gated=True)
        await node.start()
        node.workers.stop(20.0, leader_first=True)
        assert await node.end() == (0, "")

    told(story)
    when = [int((tmp_path / f"stopped.{rank}").read_text()) for rank in range(COUNT)]
    assert min(when[1:]) - when[0] > 0.3e9


def test_each_has_its_own_environment_and_log(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, 'echo "$SEAT $A $B $BFTRAINER_WORKER"; ' + UP, gated=True)
        await node.start()
        await node.end()

    told(story)
    for rank, name in enumerate(("n", "n+1", "n+2")):
        said = (tmp_path / "t" / f"{name}.log").read_text()
        assert f"{rank} all {rank} " in said and f'"local_rank": {rank}, "local_size": 3' in said


def test_processes_that_cannot_be_started_fail_together(tmp_path: Path) -> None:
    async def story() -> None:
        node = Node(tmp_path, STAY)
        await node.start()
        node.workers.fail("no such program")
        assert await node.end() == (127, "no such program")

    told(story)


def test_cores_are_those_of_the_seat(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    script = f"{sys.executable} -c 'import os; print(\"cores\", os.sched_getaffinity(0))'; " + UP

    async def story() -> None:
        node = Node(tmp_path, "sleep 0.2; " + script)
        for worker in node.workers._all:
            worker.seat = Seat(worker.seat.local_rank, COUNT, None, env=worker.seat.env, cores=(core,))
        await node.start()
        await node.end()

    told(story)
    assert f"cores {{{core}}}" in (tmp_path / "t" / "n+2.log").read_text()


@pytest.mark.parametrize(
    ("done", "end"), [((0,), (0, "")), ((0, 1, 2), (3, "worker 1 of 3 on n ended with exit code 3"))]
)
def test_once_the_work_is_done_none_takes_others_along_and_a_failure_counts(
    tmp_path: Path, done: tuple[int, ...], end: tuple[int, str]
) -> None:
    script = UP + "until [ -e go ]; do sleep 0.01; done; [ $SEAT = 1 ] && exit 3; sleep 0.3; exit 0"

    async def story() -> None:
        node = Node(tmp_path, script)
        await node.start()
        for rank in done:  # under torchrun and Horovod, the first alone says so
            node.workers._all[rank]._hear({"type": "finished"})
        (tmp_path / "go").touch()
        assert await node.end() == end

    told(story)
