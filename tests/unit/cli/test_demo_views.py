"""What a demonstration shows: nodes or GPUs with their devices, and workers that do not train yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bftrainer.cli.shared.live.demo_views import closing, line, picture
from bftrainer.cli.shared.trainers.worker_phases import PhaseTimes
from bftrainer.demo.view import DaemonView, Told

TRAINER: dict[str, Any] = {
    "id": 1,
    "name": "digits",
    "status": "running",
    "members": ["n1"],
    "nodes": ["n1", "n2"],
    "workers": {"n1": "member", "n2": "starting"},
    "step": 3,
    "samples": 1000,
    "rate": 10.0,
    "work": 10_000,
    "left_s": 5.0,
    "metrics": {},
    "why": "",
    "submitted_at": 0.0,
    "ended_at": None,
}


def test_the_end_says_what_was_to_be_seen_and_what_was_not_played(capsys: pytest.CaptureFixture[str]) -> None:
    told = (
        Told(at_s=1.0, act=1, title="grows", text="The cause."),
        Told(at_s=2.0, act=1, title="grows", text="The result."),
        Told(at_s=3.0, act=2, title="gives back", text="Its cause."),
    )
    closing(replace(view(""), told=told, acts_left=("gives back",)), ["samples: 5"], Path("x.svg"))
    out = capsys.readouterr().out
    assert "  1. The result." in out and "cause" not in out
    assert "Not played to the end, as the time was over: gives back" in out
    assert "samples: 5" in out and "x.svg" in out


def view(*devices: str) -> DaemonView:
    nodes = [
        {"node": f"n{i}", "state": "idle", "devices": own, "trainer": "digits", "role": "member"}
        for i, own in enumerate(devices, 1)
    ]
    return DaemonView(elapsed_s=2.0, pool={"size": len(nodes), "nodes": nodes}, trainers=[TRAINER], pauses=[])


def test_a_line_has_devices_and_workers() -> None:
    times = PhaseTimes()
    times.update(1.0, [TRAINER])
    shown = line(view("2 simulated", "2 simulated"), times)
    assert "n1[2 simulated]=digits n2[2 simulated]=digits | digits running 1,000" in shown
    assert "starting 1" in shown
    assert "n1=digits" in line(view(""), times), "nothing of devices where there are none"


def test_the_picture_has_devices() -> None:
    console = Console(width=200, record=True)
    console.print(picture(view("1 cuda"), 90.0, PhaseTimes(), console))
    assert "n1: 1 cuda" in console.export_text()
