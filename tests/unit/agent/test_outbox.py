"""What an agent sends, in which order, and what it keeps while the daemon is gone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bftrainer.agent import outbox as outbox_module
from bftrainer.agent.connection import MAX_SENT, written
from bftrainer.agent.outbox import MAX_ENDS, MAX_WAITING, AgentOutbox


def said(kind: str, trainer: int = 1, generation: int = 1, **fields: Any) -> dict[str, Any]:
    own = {"type": kind, "generation": generation, **fields}
    return {"type": "worker", "trainer": trainer, "started": 1, "run": 0, "said": own}


def end(trainer: int) -> dict[str, Any]:
    return {"type": "exited", "trainer": trainer, "started": 1, "run": 0, "code": 0}


async def all_of(outbox: AgentOutbox) -> list[dict[str, Any]]:
    return [await outbox.get() for _ in range(len(outbox._queue))]


def test_reports_of_progress_are_merged_and_never_overtaken() -> None:
    async def story() -> None:
        outbox = AgentOutbox()
        outbox.connect()
        outbox.tell(said("progress", step=1, rate=2.0, metrics={"loss": 3.0}))
        first = await asyncio.wait_for(outbox.get(), 1)
        assert first["said"]["step"] == 1, "the first goes at once"
        for step in range(2, 100):
            outbox.tell(said("progress", step=step, rate=5.0, metrics={"loss": 1.0 / step}))
            outbox.tell(said("metrics", step=step, metrics={"accuracy": step / 100}))
        outbox.tell(said("progress", trainer=2, step=7, metrics={}))
        outbox.tell(said("finished", step=99, metrics={}))
        merged, finished = await all_of(outbox)
        assert merged["said"] == {
            "type": "progress",
            "generation": 1,
            "step": 99,
            "rate": 5.0,
            "metrics": {"loss": 1.0 / 99, "accuracy": 0.99},
        }
        assert finished["said"]["type"] == "finished"
        later = await asyncio.wait_for(outbox.get(), 5)
        assert (later["trainer"], later["said"]["step"]) == (2, 7), "of another trainer, when it is time"

    asyncio.run(story())


def test_reports_of_two_memberships_are_not_merged() -> None:
    async def story() -> None:
        outbox = AgentOutbox()
        outbox.connect()
        outbox.tell(said("progress", step=0))
        outbox.tell(said("progress", step=1, metrics={"loss": 3.0}))
        outbox.tell(said("metrics", generation=2, step=2, metrics={}))
        outbox.tell(said("left", generation=2))
        found = [message["said"] for message in await all_of(outbox)]
        assert [(own["type"], own.get("step")) for own in found] == [
            ("progress", 0),
            ("progress", 1),
            ("metrics", 2),
            ("left", None),
        ]

    asyncio.run(story())


def test_without_a_connection_only_ends_are_kept_until_the_daemon_has_heard_them() -> None:
    async def story() -> None:
        outbox = AgentOutbox()
        outbox.tell(said("ready"))
        outbox.tell(end(1))
        outbox.connect()
        outbox.tell(end(2))
        assert [m["trainer"] for m in await all_of(outbox)] == [1, 2]
        outbox.heard({"type": "heard", "trainer": 1, "started": 1, "run": 0})
        outbox.heard({"type": "heard", "trainer": 9, "started": 1, "run": 0})
        outbox.tell(said("ready"))
        outbox.disconnect()
        outbox.connect()
        assert [m["trainer"] for m in await all_of(outbox)] == [2] == [m["trainer"] for m in outbox.ends()]

    asyncio.run(story())


def test_what_waits_is_bounded_and_ends_come_first(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        outbox = AgentOutbox()
        outbox.connect()
        for _ in range(2 * MAX_WAITING):
            outbox.tell(said("joined"))
        outbox.tell({"type": "bye"})
        outbox.tell(end(1))
        kinds = [message["type"] for message in await all_of(outbox)]
        assert kinds == ["worker"] * MAX_WAITING + ["bye", "exited"]
        for trainer in range(3 * MAX_ENDS):
            outbox.tell(end(trainer))
        assert [m["trainer"] for m in outbox.ends()] == list(range(2 * MAX_ENDS, 3 * MAX_ENDS))

    asyncio.run(story())
    assert sum("dropping what workers say" in record.getMessage() for record in caplog.records) == 1


def test_progress_that_waits_is_lost_with_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "REPORT_S", 0.01)

    async def story() -> None:
        outbox = AgentOutbox()
        outbox.connect()
        outbox.tell(said("progress", step=0))
        outbox.tell(said("progress", step=1))
        outbox.connect()
        outbox.tell(said("progress", step=2))
        assert (await asyncio.wait_for(outbox.get(), 1))["said"]["step"] == 2
        await asyncio.sleep(0.03)
        assert not outbox._queue and outbox._timer is None, "nothing runs while there is nothing to say"

    asyncio.run(story())


def test_no_message_is_larger_than_the_daemon_takes() -> None:
    metrics = {f"{n:03}" + "ü" * 97: 1.0 for n in range(500)}
    report = said("progress", step=1, metrics=metrics)
    assert len(json.dumps(report)) > MAX_SENT
    assert json.loads(written(report) or "") == said("progress", step=1, metrics={})
    last = {**end(1), "last": report["said"]}
    assert json.loads(written(last) or "") == {**end(1), "last": {}}
    assert written(said("kv", key="k", value="v" * MAX_SENT)) is None
    assert written(said("ready")) == json.dumps(said("ready"))
