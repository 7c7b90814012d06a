"""What a script on torchrun or Horovod tells its agent, in a test's own process."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.elastic.attach import Job
from bftrainer.elastic.horovod import mend
from tests.support.agent_end import agent_of, until


def test_the_first_step_in_every_world_is_told_though_its_size_is_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with agent_of(monkeypatch, tmp_path, samples=100) as (agent, orders):
        job = Job(orders)
        for step, world in ((1, 1), (2, 1), (3, 2)):
            monkeypatch.setattr(mend, "worlds", world)
            job.progress(step=step, samples=10 * step, size=2)
        job.done(step=3, samples=30)
        until(lambda: any(message["type"] == "finished" for message in agent.hear()))
        resumed = [message for message in agent.hear() if message["type"] == "resumed"]
    assert [(message["world"], message["step"]) for message in resumed] == [(1, 0), (2, 2)]
