"""What a script does to this node's own gradients before they are averaged is refused, or told."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from bftrainer import elastic
from bftrainer.elastic.checks.own_gradients import ALWAYS, LOOKED_AT, SELDOM, OwnGradients
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.train.sampler import RankShare
from bftrainer.elastic.train.trained import trained

Body = Callable[[elastic.Run, nn.Module, torch.Tensor], object]


def train(body: Body, *, at_once: int = 4, blocks: int = 1, **options: Any) -> None:
    """Two steps of four samples; `body` does what comes before run.step()."""
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(blocks)))
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.ones(8, 2))
    run = elastic.Run(
        model, sgd, data, batch_size=at_once, policy=elastic.FixedGlobal(4), epochs=1, **options
    )
    for (x,) in run:
        body(run, model, x)
        run.step()
    assert run.position.step == 2


def by_the_run(run: elastic.Run, model: nn.Module, x: torch.Tensor) -> None:
    run.backward(model(x).mean())


def plainly(run: elastic.Run, model: nn.Module, x: torch.Tensor) -> None:
    model(x).mean().backward()


def clip(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 100.0)


def clip_values(model: nn.Module) -> None:
    nn.utils.clip_grad_value_(model.parameters(), 100.0)


@pytest.mark.parametrize("change", [clip, clip_values])
@pytest.mark.parametrize("backward", [by_the_run, plainly])
@pytest.mark.parametrize("blocks", [1, LOOKED_AT])
def test_gradients_changed_before_the_step_are_refused(
    change: Callable[[nn.Module], None], backward: Body, blocks: int
) -> None:
    def body(run: elastic.Run, model: nn.Module, x: torch.Tensor) -> None:
        backward(run, model, x)
        change(model)

    with pytest.raises(RuntimeError, match="changes gradients between backward"):
        train(body, blocks=blocks)


def test_gradients_changed_after_a_micro_batch_are_refused() -> None:
    def body(run: elastic.Run, model: nn.Module, x: torch.Tensor) -> None:
        by_the_run(run, model, x)
        clip(model)

    with pytest.raises(RuntimeError, match="clip_norm"):
        train(body, at_once=2)


def attacked(run: elastic.Run, model: nn.Module, x: torch.Tensor) -> None:
    model(x).sum().backward()
    by_the_run(run, model, x)


def test_gradients_from_before_the_backward_pass_are_told() -> None:
    with pytest.warns(UserWarning, match=r"torch\.autograd\.grad"):
        train(attacked)


def test_gradients_from_before_the_backward_pass_are_refused_where_they_cannot_be_weighed() -> None:
    with pytest.raises(RuntimeError, match=r"torch\.autograd\.grad"):
        train(attacked, at_once=2)


def looked_at(run: elastic.Run, model: nn.Module, x: torch.Tensor) -> None:
    by_the_run(run, model, x)
    nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    copy.deepcopy(model)


def twice(run: elastic.Run, model: nn.Module, x: torch.Tensor) -> None:
    by_the_run(run, model, x)
    by_the_run(run, model, x)


def assigned(run: elastic.Run, model: nn.Module, x: torch.Tensor) -> None:
    parameters = [*model.parameters()]
    for p, gradient in zip(parameters, torch.autograd.grad(model(x).mean(), parameters), strict=True):
        p.grad = gradient


def attacked_and_cleared(run: elastic.Run, model: nn.Module, x: torch.Tensor) -> None:
    model(x).sum().backward()
    model.zero_grad(set_to_none=False)
    by_the_run(run, model, x)


@pytest.mark.parametrize("body", [by_the_run, plainly, looked_at, twice, assigned, attacked_and_cleared])
def test_what_a_script_may_do_is_neither_refused_nor_told(body: Body) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(body)


def test_a_script_that_averages_by_itself_may_change_gradients() -> None:
    def body(run: elastic.Run, model: nn.Module, x: torch.Tensor) -> None:
        plainly(run, model, x)
        clip(model)

    train(body, average=False)


def idle_run(steps: int, *, changes: bool = False, backward_at: int | None = None) -> elastic.Run:
    """A run whose body calls `step` alone, but at one step; `changes`: its optimiser needs no gradients."""

    class Own(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            if changes:
                with torch.no_grad():
                    model.weight.add_(0.1)
            return super().step(closure)

    model = torch.nn.Linear(1, 1)
    run = elastic.Run(model, Own(model.parameters(), lr=0.1), torch.ones(steps, 1), batch_size=1)
    for x in run:
        if run.position.step == backward_at:
            run.backward(model(x).mean())
        run.step()
    return run


def test_a_loop_without_a_backward_pass_is_told_at_once_and_fails() -> None:
    warns = pytest.warns(UserWarning, match="2 steps in a row have changed nothing")
    with warns, pytest.raises(RuntimeError, match=r"100 steps in a row .*run\.backward"):
        idle_run(1000)
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="20 steps in a row"):
        idle_run(20)


def test_steps_without_a_gradient_are_no_failure_where_something_is_trained() -> None:
    with pytest.warns(UserWarning, match="2 steps in a row"):
        assert idle_run(50, backward_at=10).position.step == 50
    assert idle_run(150, changes=True).position.step == 150, "an optimiser may need no gradients"
    assert idle_run(1).position.step == 1


def test_after_many_steps_only_some_are_watched_and_the_others_have_no_hooks() -> None:
    weight = nn.Parameter(torch.ones(2))
    model = nn.Module()
    model.weight = weight
    own = OwnGradients(trained(model, torch.optim.SGD([weight], lr=0.1), None), is_watching=True)
    share = RankShare(0, 1, 1, Position(), 1)
    refused = []
    for step in range(1, ALWAYS + 2 * SELDOM + 1):
        weight.grad = None
        own.step_begins(share)
        weight.sum().backward()
        assert own.left() is bool(weight._post_accumulate_grad_hooks)  # type: ignore[attr-defined]
        weight.grad.mul_(0.5)  # type: ignore[attr-defined]
        refused += [step] * own.changed([weight])
    assert refused == [*range(1, ALWAYS + 1), ALWAYS + SELDOM, ALWAYS + 2 * SELDOM]
