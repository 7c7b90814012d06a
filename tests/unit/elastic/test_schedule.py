"""When schedulers are stepped, and what is said where that seems wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as schedulers

from bftrainer import elastic
from bftrainer.elastic.loop import assembly
from bftrainer.elastic.loop.peers import SingleProcess
from bftrainer.elastic.process.channel import Orders

DATA = torch.arange(40.0).reshape(40, 1)
EPOCHS = 5


def run(make: Callable[[Any], Any], **options: Any) -> tuple[elastic.Run, torch.optim.Optimizer]:
    model = torch.nn.Linear(1, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    options = {"batch_size": 4, "epochs": EPOCHS, **options}
    return elastic.Run(model, sgd, DATA, scheduler=make(sgd), **options), sgd


def rates(trained: elastic.Run, sgd: torch.optim.Optimizer) -> list[float]:
    found = []
    for x in trained:
        found.append(sgd.param_groups[0]["lr"])
        trained.backward(trained.model(x).sum() * 0.0)
        trained.step()
    return found


def cosine(optimizer: Any) -> Any:
    return schedulers.CosineAnnealingLR(optimizer, EPOCHS)


def test_a_scheduler_of_epochs_does_what_it_does_in_a_plain_loop() -> None:
    plain = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule, expected = cosine(plain), []
    for _ in range(EPOCHS):
        expected += [plain.param_groups[0]["lr"]] * 10
        plain.step()
        schedule.step()
    assert rates(*run(cosine, scheduler_every="epoch")) == expected


@pytest.mark.parametrize(
    "make",
    [
        cosine,
        lambda sgd: schedulers.MultiStepLR(sgd, [2, 4]),
        lambda sgd: schedulers.ExponentialLR(sgd, 0.5),
        lambda sgd: schedulers.SequentialLR(
            sgd, [schedulers.LinearLR(sgd, total_iters=2), schedulers.CosineAnnealingLR(sgd, 3)], [2]
        ),
    ],
)
def test_a_scheduler_that_seems_to_count_epochs_is_told(make: Callable[[Any], Any]) -> None:
    with pytest.warns(UserWarning, match='scheduler_every="epoch"'):
        run(make)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(make, scheduler_every="step")
        run(make, scheduler_every="epoch")


@pytest.mark.parametrize(
    "make",
    [
        lambda sgd: schedulers.OneCycleLR(sgd, 0.1, total_steps=51),
        lambda sgd: schedulers.StepLR(sgd, 30),
        lambda sgd: schedulers.ExponentialLR(sgd, 0.99),
        lambda sgd: schedulers.LambdaLR(sgd, lambda step: 1.0),
        lambda sgd: schedulers.ChainedScheduler(
            [schedulers.LinearLR(sgd, total_iters=2), schedulers.ExponentialLR(sgd, 0.99)]
        ),
    ],
)
def test_a_scheduler_of_steps_is_not(make: Callable[[Any], Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(make)


def test_a_scheduler_of_steps_that_is_stepped_every_epoch_is_told() -> None:
    with pytest.warns(UserWarning, match='"step"'):
        run(lambda sgd: schedulers.OneCycleLR(sgd, 0.1, total_steps=50), scheduler_every="epoch")


def test_a_rung_that_ends_the_run_early_is_no_reason_to_step_every_step() -> None:
    """As in a study: the course is of 20 epochs, and the run ends after 5, of 200 steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(
            lambda sgd: schedulers.CosineAnnealingLR(sgd, 20),
            scheduler_every="epoch",
            batch_size=1,
        )


@pytest.mark.parametrize(
    ("course", "n_max", "options", "is_told"),
    [
        (50, 3, {}, True),
        (50, 1, {}, False),
        (50, 3, {"policy": elastic.FixedGlobal(4)}, False),
        (50, 3, {"scheduler_every": "step"}, True),
        (20, 3, {}, False),
    ],
)
def test_a_course_that_more_nodes_cut_short_is_told(
    course: int,
    n_max: int,
    options: dict[str, Any],
    is_told: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    about: Any = {"fd": 0, "trainer": 1, "node": "n", "generation": 1, "address": "", "checkpoint_dir": ""}
    orders = Orders(**about, samples=40 * EPOCHS, checkpoint_every_s=1.0, n_min=1, n_max=n_max)
    monkeypatch.setattr(Orders, "from_environment", lambda: orders)
    monkeypatch.setattr(
        assembly, "peers_of", lambda _, state, joined, **options: SingleProcess(state, joined)
    )
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of what tests before have left open
        run(lambda sgd: schedulers.CosineAnnealingLR(sgd, course), **options)
    told = [str(one.message) for one in found]
    assert sum("20 on all that" in one and "course of 50" in one for one in told) == len(told) == int(is_told)


def test_what_the_run_cannot_step_says_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"run\.after_epoch"):
        run(schedulers.ReduceLROnPlateau)
    with pytest.raises(ValueError, match="epoch"):
        run(cosine, scheduler_every="batch")
