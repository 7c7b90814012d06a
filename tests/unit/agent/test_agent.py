"""What an agent answers to orders, without a daemon and without processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bftrainer.agent.agent import Agent


def start(trainer: int, generation: int) -> dict[str, Any]:
    return {"type": "start", "trainer": trainer, "generation": generation, "grace_s": 1.0}


def test_a_start_that_is_called_off_while_it_waits_for_the_node_ends_for_whoever_ordered_it() -> None:
    agent = Agent(node="n", tag="t", secret="", daemon="/none", orphan_s=1.0)
    agent._connection._outbox.connect()
    agent._workers[1] = busy = _Leaving()  # type: ignore[assignment]
    agent.obey(start(2, 7))
    agent.obey({"type": "stop", "trainer": 2, "grace_s": 1.0})
    (said,) = agent._connection._outbox.ends()
    assert (said["type"], said["trainer"], said["started"], said["run"]) == ("exited", 2, 7, 0)
    assert agent._queue == [] and agent._workers == {1: busy}


def test_orders_of_another_generation_than_what_runs_are_ignored() -> None:
    agent = Agent(node="n", tag="t", secret="", daemon="/none", orphan_s=1.0)
    agent._workers[1] = worker = _Training()  # type: ignore[assignment]
    for generation in (6, 7):
        agent.obey(start(1, generation))
    assert agent._queue == [] and worker.told == []
    for generation in (6, 8):
        agent.obey({"type": "go", "trainer": 1, "generation": generation, "run": 9, "env": {}})
    assert worker.told == []
    agent.obey({"type": "go", "trainer": 1, "generation": 7, "run": 9, "env": {}})
    assert worker.told == ["go"]
    agent.obey(start(1, 8))
    assert worker.told == ["go", "stop"] and [order["generation"] for order in agent._queue] == [8]


def test_more_workers_than_devices_end_at_once_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMULATED_VISIBLE_DEVICES", "3,5")
    agent = Agent(node="n", tag="t", secret="", daemon="/none", orphan_s=1.0)
    assert agent.devices() == {"kind": "simulated", "count": 2, "out": []}
    agent.obey({**start(1, 7), "workers": 4, "env": {}, "gated": False})
    (said,) = agent._connection._outbox.ends()
    assert (said["type"], said["code"], said["phase"]) == ("exited", 127, "starting")
    assert said["reason"].startswith("4 workers are asked for (nodes.workers), and the node has 2 devices")
    assert said["unfit"], "the node is to blame"
    assert agent._workers == {} and agent._queue == []


@pytest.mark.parametrize(
    "order",
    [
        {"type": "start", "trainer": 2, "generation": 7, "grace_s": 1.0, "base": 3},
        {"type": "start", "trainer": 2, "generation": 7},
        {"type": "stop", "trainer": 1, "grace_s": None},
        {"type": "regroup", "trainer": 1},
        {"type": "go", "trainer": 1},
        {"type": "start"},
        {"trainer": 1},
        {"type": []},
        {"type": "warm"},
        {"type": "kill", "trainer": []},
    ],
)
def test_an_order_that_fails_ends_its_worker_at_most(order: dict[str, Any]) -> None:
    agent = Agent(node="n", tag="t", secret="", daemon="/none", orphan_s=1.0)
    agent._workers[1] = worker = _Training()  # type: ignore[assignment]
    agent._workers[1].phase = "leaving"
    if order.get("trainer") == 2:
        agent._workers.clear()
    agent.obey(order)
    ended = [(end["trainer"], end["started"], end["code"]) for end in agent._connection._outbox.ends()]
    assert ended == ([(2, 7, 127)] if order.get("trainer") == 2 else [])
    assert ("an order failed" in worker.reason) == (order.get("trainer") == 1)


def test_an_agent_whose_connection_fails_for_good_ends() -> None:
    async def fails(owner: object) -> None:
        raise KeyError("base")

    agent = Agent(node="n", tag="t", secret="", daemon="/none", orphan_s=1.0)
    agent._connection.keep = fails  # type: ignore[method-assign]
    with pytest.raises(KeyError):
        asyncio.run(asyncio.wait_for(agent.serve(), 10))


def test_workers_that_do_not_leave_hold_a_preempted_pilot_only_until_slurmd_looks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It does after 0.17 s, and then only after 0.67 s, and what is killed takes some time to be gone."""
    waits: list[float] = []

    async def scenario() -> None:
        agent = Agent(node="n", tag="t", secret="", daemon="/none", orphan_s=1.0)
        agent._connection._outbox.connect()
        monkeypatch.setattr(type(agent._connection), "connected", True)
        agent._workers[1] = _Training()  # type: ignore[assignment]
        with monkeypatch.context() as patch:
            patch.setattr(
                asyncio.get_running_loop(), "call_later", lambda seconds, what: waits.append(seconds)
            )
            agent._say_goodbye()
        agent._say_goodbye()
        assert agent._exit.is_set(), "told again, it goes at once"

    asyncio.run(scenario())
    assert len(waits) == 1 and 0 < waits[0] <= 0.1


class _Training:
    """A worker that generation 7 started, and what it was told."""

    generation, phase, has_started, has_the_only_state = 7, "member", True, False

    def __init__(self) -> None:
        self.told: list[str] = []
        self.reason = ""

    def kill(self, reason: str = "") -> None:
        self.reason = reason

    def send(self, message: dict[str, Any]) -> None:
        self.told.append(message["type"])

    def go(self, order: dict[str, Any]) -> None:
        self.told.append("go")

    def stop(self, grace_s: float) -> None:
        if grace_s is None:
            raise TypeError
        self.told.append("stop")


class _Leaving:
    """A worker that has been told to leave, and takes its time."""

    phase = "leaving"
