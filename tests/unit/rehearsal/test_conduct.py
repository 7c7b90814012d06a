"""A rehearsal's course: where it holds a run, stops and resumes it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bftrainer.elastic.recorded.directions import held_of, release_of
from bftrainer.rehearsal.conduct import Conductor


def test_a_run_that_the_order_to_stop_reaches_late_is_not_held_at_the_next_step_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be killed there before it can save, and its script accused of beginning from nothing."""
    view: dict[str, Any] = {"workers": {"n": "leaving"}, "status": "running"}
    conductor, resumed = object.__new__(Conductor), list[int]()
    monkeypatch.setattr(conductor, "_most_s", 100.0, raising=False)
    monkeypatch.setattr(conductor, "_call", lambda *_, **__: view)
    monkeypatch.setattr(conductor, "_submit", lambda body, resume: resumed.insert(0, resume))
    under: Any = SimpleNamespace(
        plan=SimpleNamespace(stops=(3, 7)),
        folder=tmp_path,
        view={},
        events=[],
        trainer=1,
        body={},
        began=time.monotonic(),
    )
    course = conductor._stop_and_resume(under, 3)
    next(course)
    held_of(tmp_path, 3, 0).touch()
    next(course)
    assert release_of(tmp_path, 3).exists() and not release_of(tmp_path, 7).exists()
    held_of(tmp_path, 7, 0).touch()
    next(course)
    assert release_of(tmp_path, 7).exists()
    view |= {"ended_at": 1.0, "status": "cancelled"}
    assert list(course) == [] and resumed == [1]
    view.pop("ended_at")
    next(conductor._stop_and_resume(under, 7))
    assert len(under.events) == 1, "it is not stopped at once where it goes on"
