"""What a rehearsal notes of the steps of a process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bftrainer.elastic.recorded.costs import AskedSteps
from bftrainer.elastic.recorded.fingerprints import final_state
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


def test_what_a_model_gives_to_a_loss_is_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one process a criterion may be called beside the model, and on several within a wrapper's pass. And
    what a model gives follows from its weights."""
    recorder, model, criterion = StepRecorder(), torch.nn.Linear(3, 1), torch.nn.MSELoss()
    monkeypatch.setattr(recorder, "is_off", False)
    monkeypatch.setattr(recorder, "_file", SimpleNamespace())
    monkeypatch.setattr(recorder, "_begin", lambda: None)
    monkeypatch.setattr(recorder, "_begun_at", 1.0)
    attacked = torch.ones(2, 3, requires_grad=True)
    for module, given in ((model, (attacked,)), (criterion, (model(attacked), torch.ones(2, 1)))):
        recorder.before_forward(module, given)
        recorder.after_forward(module, given, {}, module(*given))
    assert len(recorder._rows) == 2


@pytest.mark.parametrize("is_aside", [False, True])
def test_a_step_that_is_taken_back_is_none(is_aside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As that which Hugging Face takes after the end of a training that was stopped."""
    written: list[Any] = []
    recorder, model, x = StepRecorder(), torch.nn.Linear(3, 1), torch.ones(2, 3)
    optimizer = torch.optim.SGD(model.parameters())
    monkeypatch.setattr(recorder, "is_off", False)
    monkeypatch.setattr(recorder, "_begin", lambda: None)
    monkeypatch.setattr(recorder, "_write", lambda event, **_: written.append(event))
    if is_aside:
        recorder.said("aside", {})
    model(x).sum().backward()
    recorder.before_step(optimizer, (), {})
    recorder.after_step(optimizer, (), {})
    assert written == ([] if is_aside else ["initial", "step"])


def test_a_step_within_a_forward_pass_has_the_samples_of_that_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with Lightning's manual optimisation: the wrapper's forward pass is all of training_step."""
    written: list[int] = []
    recorder, x = StepRecorder(), torch.ones(2, 3)
    monkeypatch.setattr(recorder, "is_off", False)
    monkeypatch.setattr(recorder, "_begin", lambda: None)
    monkeypatch.setattr(recorder, "_file", SimpleNamespace())
    monkeypatch.setattr(
        recorder,
        "_write",
        lambda event, **said: written.append(len(said["rows"])) if event == "step" else None,
    )

    class Trains(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for optimizer in optimizers:
                loss = super().forward(x).sum()
                loss.backward()
                recorder.before_step(optimizer, (), {})
                recorder.after_step(optimizer, (), {})
            return loss

    model = Trains(3, 1)
    optimizers = [torch.optim.SGD(model.parameters()) for _ in range(2)]
    for _ in range(2):
        recorder.before_forward(model, (x,))
        recorder.after_forward(model, (x,), {}, model(x))
    assert written == [2, 0, 2, 0]


def test_a_state_that_another_rank_has_is_left_out() -> None:
    """As of ZeroRedundancyOptimizer."""
    weight = torch.nn.Parameter(torch.ones(2))
    sharded = SimpleNamespace(param_groups=[{"params": [weight]}], state={weight: None})
    assert final_state([sharded], []).keys() == {"weights/0"}


def test_a_forward_pass_that_fails_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch calls hooks on all modules without the keywords then: as where a peer is lost in it."""
    recorder = StepRecorder()
    monkeypatch.setattr(recorder, "is_off", False)
    monkeypatch.setattr(recorder, "_begin", lambda: None)
    add, model = torch.nn.modules.module.register_module_forward_hook, torch.nn.Linear(3, 1)
    before = torch.nn.modules.module.register_module_forward_pre_hook(recorder.before_forward)
    after = add(recorder.after_forward, with_kwargs=True, always_call=True)
    with before, after, pytest.raises(RuntimeError, match="shapes"):
        model(torch.ones(2, 5))
    assert not recorder.is_off and recorder._depth == 0


def test_samples_of_a_step_that_was_taken_before_are_not_the_next_ones() -> None:
    """Of two optimisers "D" was stepped before a member was lost: the batch comes again, for "G" alone."""
    noted = SimpleNamespace(_rows=list[str](), _steps=[0, 0])
    asked: Any = AskedSteps(noted)
    last = SimpleNamespace(last=True)

    def turn(*, steps: str) -> list[list[str]]:
        found = []
        asked.step_begins(None)
        for at, name in enumerate("DG"):
            noted._rows += [f"{name} of the batch"]
            asked.before_average(name, last)
            if name in steps:
                found.append([*noted._rows])
                noted._rows[:] = []
                noted._steps[at] += 1
        return found

    assert turn(steps="DG") == [["D of the batch"], ["G of the batch"]]
    assert turn(steps="D") == [["D of the batch"]]
    noted._rows[:] = []  # the member is lost
    assert turn(steps="G") == [["G of the batch"]]
