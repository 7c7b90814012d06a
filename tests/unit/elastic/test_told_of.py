"""What a script may do on purpose, and mostly does by mistake, is told of when it does it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch

from bftrainer import elastic
from tests.support.ddp_of_pytorch import needs_ddp

Body = Callable[[elastic.Run], None]


def nothing(run: elastic.Run) -> None:
    pass


def told(body: Body = nothing, *, before: Body = nothing) -> str:
    """What a run by hand warns of, in which the body does this before each step."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of what tests before have left open
        model = torch.nn.Linear(1, 1)
        sgd = torch.optim.SGD(model.parameters(), lr=0.1)
        run = elastic.Run(model, sgd, torch.ones(16, 1), batch_size=4)
        before(run)
        for x in run:
            run.backward(run.model(x).mean())
            body(run)
            run.step()
    return "\n".join(str(one.message) for one in found)


def perturb(run: elastic.Run) -> None:
    with torch.no_grad():
        for p in run.model.parameters():
            p.add_(0.1)


def perturb_data(run: elastic.Run) -> None:
    for p in run.model.parameters():
        p.data.mul_(0.9)


@pytest.mark.parametrize("body", [perturb, perturb_data])
def test_weights_that_the_body_changes_before_the_step_are_told_of_once(body: Body) -> None:
    assert told(body).count("BFT-113") == 1


def test_weights_that_the_body_restores_or_that_change_after_the_step_are_not() -> None:
    def there_and_back(run: elastic.Run) -> None:
        kept = [p.detach().clone() for p in run.model.parameters()]
        perturb(run)
        with torch.no_grad():
            for p, old in zip(run.model.parameters(), kept, strict=True):
                p.copy_(old)

    def afterwards(run: elastic.Run) -> None:
        run.after_step(lambda: perturb(run))

    assert not told(there_and_back)
    assert not told(before=afterwards)


class Momentum(torch.nn.Linear):
    """Its forward pass has frozen weights follow those that are trained."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.key = torch.nn.Linear(1, 1).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.key.weight.lerp_(self.weight + 1.0, 0.1)
        return super().forward(x)


def test_frozen_weights_that_a_forward_pass_changes_are_told_of_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = Momentum()
    monkeypatch.setattr(torch.nn, "Linear", lambda *_: model)
    assert told().count("BFT-113") == 1


def test_layers_that_exchange_by_themselves_are_told_of() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.SyncBatchNorm(2))
    with pytest.warns(UserWarning, match="SyncBatchNorm, whose forward pass exchanges") as found:
        elastic.Run(model, torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(16, 1), batch_size=4)
    assert [each.filename for each in found] == [__file__], "the script's line"


@needs_ddp
def test_with_ddp_a_pass_that_averages_nothing_is_refused() -> None:
    model = torch.nn.Linear(1, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    run = elastic.Run(model, sgd, torch.ones(16, 1), batch_size=4, ddp=True)
    for x in run:
        run.backward(model(x).mean())
        with pytest.raises(RuntimeError, match=r"Call run\.model in the forward pass.*BFT-120"):
            run.step()
        break


def test_weights_that_the_body_changes_before_the_backward_pass_are_told_of_once() -> None:
    def sharpness_aware(run: elastic.Run) -> None:
        kept = [p.detach().clone() for p in run.model.parameters()]
        run.model.zero_grad()
        perturb(run)
        run.backward(run.model(torch.ones(4, 1)).mean())
        with torch.no_grad():
            for p, old in zip(run.model.parameters(), kept, strict=True):
                p.copy_(old)

    assert told(sharpness_aware).count("before a backward pass") == 1


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_on_gradients_are_told_of(register: str) -> None:
    def hook(run: elastic.Run) -> None:
        for p in run.model.parameters():
            getattr(p, register)(lambda grad: None)

    assert told(before=hook).count("hooks on their gradients") == 1
    assert "hooks on their gradients" not in told()


def test_a_loop_that_began_in_training_mode_does_not_go_on_in_evaluation_mode() -> None:
    def evaluate(run: elastic.Run) -> None:
        run.model.eval()

    with pytest.raises(RuntimeError, match="evaluation mode"):
        told(evaluate)
    assert not told(before=evaluate), "all nodes begin so"


def test_what_cannot_be_trained_is_refused_with_what_to_do() -> None:
    lazy = torch.nn.LazyLinear(1)
    with pytest.raises(TypeError, match=r"Put one batch through it.*BFT-177"):
        elastic.Run(lazy, torch.optim.SGD(lazy.parameters(), lr=0.1), torch.ones(16, 1), batch_size=4)

    class Wrapper:
        param_groups: ClassVar[list[Any]] = []

    with pytest.raises(TypeError, match="Wrapper is no torch"):
        elastic.Run(torch.nn.Linear(1, 1), Wrapper(), torch.ones(16, 1), batch_size=4)  # type: ignore[arg-type]


def several(**options: Any) -> elastic.Run:
    nets = {name: torch.nn.Linear(1, 1) for name in ("G", "D")}
    steps = {name: torch.optim.SGD(net.parameters(), lr=0.1) for name, net in nets.items()}
    return elastic.Run(nets, steps, torch.ones(16, 1), **options)


def told_of_several(run: elastic.Run, names: str) -> str:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of what tests before have left open
        for x in run:
            for name in names:
                run.backward(run.model[name](x).mean(), name)  # type: ignore[index]
                run.step(name)
    return "\n".join(str(one.message) for one in found)


def test_steps_of_the_runs_own_are_no_change_by_the_body() -> None:
    assert not told_of_several(several(batch_size=4), "DG")


def test_several_optimisers_with_micro_batches_are_told_of_once() -> None:
    assert told_of_several(several(batch_size=4, accumulate=2), "DG").count("several micro-batches") == 1
