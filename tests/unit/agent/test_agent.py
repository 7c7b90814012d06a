"""What an agent answers to orders, without a daemon and without processes."""

from __future__ import annotations

from typing import Any

from bftrainer.agent.agent import Agent


def start(trainer: int, generation: int) -> dict[str, Any]:
    return {"type": "start", "trainer": trainer, "generation": generation, "grace_s": 1.0}


def test_a_start_that_is_called_off_while_it_waits_for_the_node_ends_for_whoever_ordered_it() -> None:
    agent = Agent(node="n", tag="t", secret="", daemon="/none", orphan_s=1.0)
    agent._connection.connected = True
    agent._workers[1] = busy = _Leaving()  # type: ignore[assignment]
    agent.obey(start(2, 7))
    agent.obey({"type": "stop", "trainer": 2, "grace_s": 1.0})
    said = agent._connection._outbox.get_nowait()
    assert (said["type"], said["trainer"], said["started"], said["run"]) == ("exited", 2, 7, 0)
    assert agent._connection._outbox.empty() and agent._queue == [] and agent._workers == {1: busy}


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


class _Training:
    """A worker that generation 7 started, and what it was told."""

    generation, phase, pid = 7, "member", 4711

    def __init__(self) -> None:
        self.told: list[str] = []

    def go(self, order: dict[str, Any]) -> None:
        self.told.append("go")

    def stop(self, grace_s: float) -> None:
        self.told.append("stop")


class _Leaving:
    """A worker that has been told to leave, and takes its time."""

    phase = "leaving"
