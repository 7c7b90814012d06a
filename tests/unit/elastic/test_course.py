"""What a worker notes of how it came to take part."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from bftrainer import elastic
from bftrainer.elastic.process import startup_times
from bftrainer.elastic.process.channel import Orders
from tests.support.agent_end import agent_of


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup_times, "_at", dict[str, float]())


def test_each_part_is_the_time_since_the_point_before_that_was_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    startup_times.begin({"told": 10.0, "process": 10.5, "what an older one does not know": 1.0})
    for at, point in ((12.0, "run"), (12.25, "ready"), (99.0, "run")):
        monkeypatch.setattr(startup_times.time, "monotonic", lambda at=at: at)
        startup_times.reached(point)
    assert startup_times.parts() == {"process": 0.5, "run": 1.5, "ready": 0.25}
    assert startup_times.told() == "2.250 s after it was started (process 0.500, run 1.500, ready 0.250)"


def test_the_log_says_once_how_long_it_took_to_the_first_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with agent_of(monkeypatch, tmp_path, samples=8) as (agent, orders):
        monkeypatch.setattr(Orders, "from_environment", lambda: orders)
        startup_times.begin({"told": 0.0})
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        run = elastic.Run(model, optimizer, torch.ones(8, 1), batch_size=4, epochs=1)
        agent.say("regroup", generation=2, members=["a"], leaving=[])
        for x in run:
            run.backward(run.model(x).mean())
            run.step()
    (note,) = re.findall(r"bftrainer: (takes part.*)", capsys.readouterr().err)
    assert re.fullmatch(r"takes part since step 1, [\d.]+ s after it was started \(.*\)", note)
    points = re.findall(r"(\w+) [\d.]+[,)]", note.partition("(")[2])
    assert points == ["ready", "published", "connected", "entered", "step"]
