"""What a rehearsal notes of the steps of a process."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from bftrainer.elastic.recorded.recorder import StepRecorder


@pytest.mark.parametrize(("weight", "noted"), [(None, 2), (0.5, 2), (0.0, 0)])
def test_a_stand_in_for_no_samples_is_none(
    weight: float | None, noted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`weight` of the batch under `elastic.Run`; None: without one."""
    recorder, model, x = StepRecorder(), torch.nn.Linear(3, 1), torch.ones(2, 3)
    monkeypatch.setattr(recorder, "is_off", False)
    monkeypatch.setattr(recorder, "_file", SimpleNamespace())
    monkeypatch.setattr(recorder, "_run", None if weight is None else SimpleNamespace(weight=weight))
    monkeypatch.setattr(recorder, "_begin", lambda: None)
    monkeypatch.setattr(recorder, "_begun_at", 1.0)
    recorder.before_forward(model, (x,))
    recorder.after_forward(model, (x,), {}, model(x))
    assert len(recorder._rows) == noted
