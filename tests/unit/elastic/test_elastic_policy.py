"""Batch policies and what they do to the learning rate."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bftrainer.elastic import FixedGlobal, FixedPerNode
from bftrainer.elastic.train.policy import RULES, Pace, Policy, overridden
from bftrainer.elastic.train.schedule import Schedule
from bftrainer.elastic.train.trained import ONE, trained
from bftrainer.elastic.train.update import Update
from bftrainer.spec.parse import parse


@pytest.mark.parametrize(
    ("policy", "total", "factor"),
    [
        (FixedGlobal(256), 256, 1.0),
        (FixedPerNode(32), 128, 1.0),
        (FixedPerNode(32, lr="linear"), 128, 4.0),
        (FixedPerNode(32, lr="sqrt"), 128, 2.0),
        (FixedPerNode(32, lr=lambda n: 1 + n / 8), 128, 1.5),
    ],
)
def test_four_nodes(policy: Policy, total: int, factor: float) -> None:
    assert (policy.total(4), policy.factor(4)) == (total, factor)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FixedGlobal(0), "at least 1"),
        (lambda: FixedPerNode(8, lr="cube"), "none, linear, sqrt"),
        (lambda: FixedPerNode(8, warmup_steps=-1), "0 or more"),
        (lambda: FixedPerNode(8, lr=lambda n: -1.0).factor(2), "above 0"),
    ],
)
def test_what_cannot_be_says_what_can(make: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()  # type: ignore[operator]


def test_a_spec_goes_before_the_script() -> None:
    script = FixedPerNode(32, lr="linear", warmup_steps=7)
    assert overridden(script, {}) is script
    assert overridden(script, {"global": 64}) == FixedGlobal(64)
    assert overridden(script, {"per_node": 8}) == FixedPerNode(8, "linear", 7)
    assert overridden(script, {"per_node": 8, "lr": "sqrt", "warmup_steps": 0}) == FixedPerNode(8, "sqrt")
    assert overridden(FixedGlobal(64), {"per_node": 8}) == FixedPerNode(8)


def test_specs_and_scripts_know_the_same_rules() -> None:
    for rule in RULES:
        text = f"{{name: a, command: [x], nodes: {{max: 2}}, batch: {{per_node: 8, lr: {rule}}}}}"
        said = dict(parse(text, "spec", Path()).batch)
        assert overridden(FixedGlobal(1), said) == FixedPerNode(8, rule)


def test_the_factor_warms_up_from_old_to_new() -> None:
    pace = Pace()
    pace.turn_to(2.0, 0, 4)
    assert pace.factor(0, 4) == 2.0, "a run that begins has nothing to warm up from"
    pace.turn_to(4.0, 100, 3)
    assert [pace.factor(100 + i, 3) for i in range(5)] == [2.5, 3.0, 3.5, 4.0, 4.0]
    pace.turn_to(1.0, 101, 3)  # in mid-warm-up
    assert pace.factor(101, 3) == 3.0 - 2.0 / 4
    again = Pace()
    again.load_state_dict(pace.state_dict())
    again.turn_to(1.0, 102, 3)  # a newcomer moves to the same target
    assert again.factor(102, 3) == pace.factor(102, 3)


def test_without_a_warm_up_a_pace_does_not_tell_how_it_came_there() -> None:
    """Of two members one may have begun a step that was lost, with another factor."""
    one, other = Pace(), Pace()
    for pace in (one, other):
        pace.turn_to(2.0, 0, 0)
    one.turn_to(1.5, 40, 0)
    one.turn_to(4.0, 40, 0)
    other.turn_to(4.0, 41, 0)
    assert one.state_dict() == other.state_dict()
    assert one.factor(41, 0) == 4.0


def test_schedulers_never_see_the_factor() -> None:
    model = torch.nn.ParameterList([torch.zeros(1)])
    weight, optimizer = model[0], torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    update = Update(
        trained(model, optimizer, None),
        Schedule({ONE: scheduler}, None),
        None,
        None,
        FixedPerNode(8, lr="linear"),
    )
    update.rescaled(4, 0)
    for step, lr in enumerate((1.0, 0.5, 0.25)):
        before = weight.item()
        weight.grad = torch.ones(1)
        update.take(ONE, step)
        update.done([ONE])
        assert before - weight.item() == 4 * lr
    assert optimizer.param_groups[0]["lr"] == 0.125


def test_a_gradient_is_clipped_after_it_is_unscaled() -> None:
    model = torch.nn.ParameterList([torch.zeros(1)])
    weight = model[0]
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    update = Update(trained(model, optimizer, None), Schedule({}, None), scaler, 3.0, FixedGlobal(8))
    update.scaled((weight * 2.0).sum()).backward()
    update.take(ONE, 0)
    update.done([ONE])
    assert weight.item() == pytest.approx(-2.0)
    update.clear()
    update.scaled((weight * 5.0).sum()).backward()
    update.take(ONE, 1)
    assert weight.item() == pytest.approx(-5.0)


class Counting(torch.optim.SGD):
    """Counts its steps in its parameter groups, as Prodigy does."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        super().step()
        for group in self.param_groups:
            group["k"] += 1


def test_what_an_optimizer_counts_in_its_groups_stays_where_weights_have_rates_of_their_own() -> None:
    model = torch.nn.ParameterList([torch.zeros(1), torch.zeros(1)])
    optimizer = Counting([{"params": [*model], "k": 0}], lr=1.0)
    update = Update(trained(model, optimizer, None), Schedule({}, None), None, None, FixedGlobal(8))
    update.shares = {id(model[1]): 0.5}
    for step in range(3):
        for weight in model:
            weight.grad = torch.ones(1)
        update.take(ONE, step)
    (group,) = optimizer.param_groups
    assert (group["k"], group["lr"], [weight.item() for weight in model]) == (3, 1.0, [-3.0, -1.5])
