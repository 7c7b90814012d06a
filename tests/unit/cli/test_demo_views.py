"""What a demonstration shows: nodes or GPUs with their devices, and workers that do not train yet."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from bftrainer.cli.shared.demo_views import line, picture
from bftrainer.cli.shared.trainers.worker_phases import PhaseTimes
from bftrainer.demo.view import DemoView

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


def view(*devices: str) -> DemoView:
    nodes = [
        {"node": f"n{i}", "state": "idle", "devices": own, "trainer": "digits", "role": "member"}
        for i, own in enumerate(devices, 1)
    ]
    return DemoView(elapsed_s=2.0, pool={"size": len(nodes), "nodes": nodes}, trainers=[TRAINER], pauses=[])


def test_a_line_has_devices_and_workers() -> None:
    times = PhaseTimes()
    times.update(1.0, [TRAINER])
    shown = line(view("2 simulated", "2 simulated"), times)
    assert "n1[2 simulated]=digits n2[2 simulated]=digits | digits running 1,000" in shown
    assert "starting 1" in shown
    assert "n1=digits" in line(view(""), times), "nothing of devices where there are none"


def test_the_picture_has_devices() -> None:
    console = Console(width=200, record=True)
    console.print(picture(view("1 cuda"), 90.0, PhaseTimes()))
    assert "devices" in (text := console.export_text())
    assert "1 cuda" in text and "took" not in text
