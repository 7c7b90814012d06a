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


class _Leaving:
    """A worker that has been told to leave, and takes its time."""

    phase = "leaving"
