"""A worker's last words, and the warm process from which it is forked; the tests start neither."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from bftrainer.agent import worker as worker_module
from bftrainer.agent.files.logs import make_folder
from bftrainer.agent.process import Program
from bftrainer.agent.warm import WarmPool
from bftrainer.agent.worker import WorkerProcess

ORDER: dict[str, Any] = {"trainer": 1, "generation": 2, "command": ["a"], "workdir": None, "env": {}}


def test_the_last_words_of_a_worker_are_told_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    async def ended(pid: int) -> int:
        return 0

    async def story() -> None:
        worker = WorkerProcess(
            ORDER,
            "n",
            "127.0.0.1",
            WarmPool("n"),
            lambda _, message: told.append(message["type"]),
            lambda _, code, reason: told.append(code),
        )
        reader = asyncio.StreamReader()
        worker._tasks = [asyncio.create_task(worker._listen(reader))]
        end = asyncio.create_task(worker._wait(4711))
        await asyncio.sleep(0.01)
        reader.feed_data(b'{"type": "finished"}\n')  # the kernel had it already
        reader.feed_eof()
        await end

    monkeypatch.setattr(worker_module, "ended", ended)
    asyncio.run(story())
    assert told == ["finished", 0]


def test_the_last_progress_has_all_figures_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were reported while the daemon was gone go with the worker's end."""
    monkeypatch.setattr(worker_module, "MAX_FIGURES", 3)
    worker = WorkerProcess(ORDER, "n", "127.0.0.1", WarmPool("n"), lambda *_: None, lambda *_: None)
    worker._hear({"type": "metrics", "metrics": {"loss": 3.0}})
    assert worker.last == {}, "figures alone are no progress"
    for message in (
        {"type": "progress", "step": 1, "metrics": {"loss": 2.0, "accuracy": 0.5}},
        {"type": "metrics", "metrics": {"score": 0.7}},
        {"type": "metrics", "metrics": {"one": 1.0, "too": 2.0, "many": 3.0}},
        {"type": "metrics", "metrics": "none"},
        {"type": "finished", "step": 2, "metrics": {}},
    ):
        worker._hear(message)
    assert worker.last == {
        "type": "finished",
        "step": 2,
        "metrics": {"loss": 2.0, "accuracy": 0.5, "score": 0.7},
    }


def test_the_log_says_when_a_worker_started(tmp_path: Path) -> None:
    log = tmp_path / "trainers" / "n.log"
    order = {**ORDER, "log": str(log), "gated": True, "warm": False, "worker": {}}

    async def story() -> None:
        worker = WorkerProcess(order, "n", "127.0.0.1", WarmPool("n"), lambda *_: None, lambda *_: None)
        await worker.start()
        worker.fail("")

    asyncio.run(story())
    stamped = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d bftrainer: trainer 1 starts on n\n"
    assert re.fullmatch(stamped, log.read_text())


@pytest.mark.parametrize("gated", [False, True])
def test_a_worker_that_is_told_to_stop_just_as_it_starts_never_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gated: bool
) -> None:
    order = {**ORDER, "log": str(tmp_path / "t" / "n.log"), "gated": gated, "warm": False, "worker": {}}
    ends: list[int] = []
    monkeypatch.setattr(worker_module, "spawn", lambda *_, **__: pytest.fail("its script was started"))

    async def story() -> None:
        worker = WorkerProcess(
            order, "n", "127.0.0.1", WarmPool("n"), lambda *_: None, lambda _, code, why: ends.append(code)
        )
        starting = asyncio.create_task(worker.start())
        await asyncio.sleep(0)  # as far as its connection
        worker.stop(60.0)
        await starting
        assert ends == [0]

    asyncio.run(story())


def test_what_is_no_message_of_a_worker_is_dropped_and_the_rest_heard(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[str] = []

    async def story() -> None:
        worker = WorkerProcess(
            *(ORDER, "n", "127.0.0.1", WarmPool("n")),
            *(lambda _, message: told.append(message["type"]), lambda *_: None),
        )
        reader = asyncio.StreamReader(limit=4096)
        for line in (
            b'{"type": "exited", "code": 1, "reason": "\\ud800", "last": {}}',
            b'{"type": "joined", "generation": []}',
            b"[" * 2_000,
            b"x" * 10_000,
            *[b"nonsense"] * 50,
            b'{"type": "joined", "generation": 3}',
        ):
            reader.feed_data(line + b"\n")
        reader.feed_eof()
        await worker._listen(reader)
        assert worker.joined == 3

    asyncio.run(story())
    assert told == ["joined"]
    assert len(caplog.records) == 1, "told once, however often"


def test_a_worker_that_says_too_much_waits_and_its_reports_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    waits: list[float] = []
    rate = worker_module.PER_S * worker_module.BURST_S

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    async def story() -> None:
        worker = WorkerProcess(
            *(ORDER, "n", "127.0.0.1", WarmPool("n")),
            *(lambda _, message: told.append(message["type"]), lambda *_: None),
        )
        reader = asyncio.StreamReader()
        for _ in range(round(rate) + 5):
            reader.feed_data(b'{"type": "ready"}\n{"type": "progress"}\n')
        reader.feed_eof()
        await worker._listen(reader)

    monkeypatch.setattr(worker_module.asyncio, "sleep", wait)
    asyncio.run(story())
    assert told == ["ready", "progress"] * (round(rate) + 5)
    assert len(waits) == rate + 5 and waits[:100] == [0.0] * 100 and waits[-1] > 0.2


def test_a_worker_that_does_not_read_its_orders_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "MAX_UNREAD", 1000)
    monkeypatch.setattr(worker_module, "kill_group", killed := [].append)

    async def story() -> None:
        worker = WorkerProcess(ORDER, "n", "127.0.0.1", WarmPool("n"), lambda *_: None, lambda *_: None)
        ours, theirs = socket.socketpair()
        with theirs:
            _, worker._writer = await asyncio.open_connection(sock=ours)
            worker.pid = 4711
            for _ in range(1000):
                worker.send({"type": "kv", "value": "x" * 10_000})
            assert worker._reason.endswith("of its orders unread and was killed")
            assert worker._writer.transport.get_write_buffer_size() < 50_000
            worker._writer.close()

    asyncio.run(story())
    assert set(killed.__self__) == {4711}  # type: ignore[attr-defined]


def test_nothing_is_forked_from_a_process_with_another_environment() -> None:
    async def story() -> int | None:
        pool = WarmPool("n")
        pool.pid, pool._env = 4711, {"A": "1"}
        ours, theirs = socket.socketpair()
        with ours, theirs:
            pool._socket = ours
            theirs.send(b'{"pid": 4712}')
            ours.setblocking(False)
            program = Program(command=("python", "a.py"), workdir="/", env={"A": "2"})
            return await pool.fork(program, {}, title="a", gated=False, channel=0, output=1)

    assert asyncio.run(story()) is None


def test_a_program_with_a_folder_of_its_own_has_there_what_the_workdir_has(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "train.py").write_text("pass")
    folder = tmp_path / ".bftrainer" / "s-1" / "0-files"
    program = Program(command=("python", "train.py"), workdir=str(tmp_path), env={}, folder=str(folder))
    for _ in range(2):  # each start, on each node
        make_folder(program)
        assert {path.name for path in folder.iterdir()} == {"data", "train.py"}, "and no link to itself"
        assert (folder / "train.py").read_text() == "pass"
    (folder / "best.pt").write_text("own")
    (tmp_path / "best.pt").write_text("another's")
    make_folder(program)
    assert (folder / "best.pt").read_text() == "own", "what the script has written stays"
