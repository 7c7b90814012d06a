"""What scripts leave in beside the run, or do twice, is refused: nothing else would tell of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from bftrainer import elastic
from bftrainer.elastic.process.channel import Orders
from bftrainer.elastic.train.streamed import passes

DATA = TensorDataset(torch.ones(12, 1))
ORDERS = {"fd": 0, "trainer": 1, "node": "n", "generation": 1, "address": "", "checkpoint_dir": ""}


class Script:
    """A run of one or two optimisers, and a scheduler that the run steps."""

    def __init__(self, *, several: bool = False, every: str = "step", **options: Any) -> None:
        self.models = {name: torch.nn.Linear(1, 1) for name in ("G", "D")}
        self.sgd = {name: torch.optim.SGD(one.parameters(), lr=0.1) for name, one in self.models.items()}
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.sgd["G"], 1, 0.5)
        given: tuple[Any, Any, Any] = (self.models["G"], self.sgd["G"], self.scheduler)
        if several:
            given = (self.models, self.sgd, {"G": self.scheduler})
        options = {"batch_size": 4, "epochs": 2, "scheduler_every": every, **options}
        self.run = elastic.Run(given[0], given[1], DATA, scheduler=given[2], **options)
        self.names = [("D",), ("G",)] if several else [()]

    def go(self, before: Callable[[], object], after: Callable[[], object]) -> None:
        for (x,) in self.run:
            for name in self.names:
                self.run.backward(self.models[name[0] if name else "G"](x).mean(), *name)
                before()
                self.run.step(*name)
            after()


def nothing() -> None:
    pass


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("before", [True, False])
def test_an_optimizer_that_the_script_steps_as_well_is_refused(several: bool, before: bool) -> None:
    script = Script(several=several)
    beside = script.sgd["G"].step
    with pytest.raises(RuntimeError, match=r"Leave optimizer\.step\(\) out: .*BFT-117"):
        script.go(beside if before else nothing, nothing if before else beside)


@pytest.mark.parametrize("every", ["step", "epoch"])
@pytest.mark.parametrize("where", ["before", "after", "in a hook"])
def test_a_scheduler_that_the_script_steps_as_well_is_refused(every: str, where: str) -> None:
    script = Script(every=every)
    beside = script.scheduler.step
    if where == "in a hook":
        script.run.after_epoch(beside)
    with (
        pytest.raises(RuntimeError, match=r"Leave scheduler\.step\(\) out\. .*BFT-118"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # of PyTorch, on the order of steps
        script.go(beside if where == "before" else nothing, beside if where == "after" else nothing)


def test_a_scheduler_that_a_hook_of_the_optimizer_steps_as_well_is_refused() -> None:
    script = Script()
    script.sgd["G"].register_step_post_hook(lambda *_: script.scheduler.step())
    with pytest.raises(RuntimeError, match=r"Leave scheduler\.step\(\) out\. .*BFT-118"):
        script.go(nothing, nothing)


@pytest.mark.parametrize("several", [False, True])
def test_before_and_after_the_loop_the_script_may_step(several: bool) -> None:
    script = Script(several=several)
    for one in script.sgd.values():
        one.step()
    script.scheduler.step()
    script.go(nothing, nothing)
    script.sgd["G"].step()
    script.scheduler.step()
    assert script.scheduler.last_epoch == 1 + 6 + 1


def test_an_outer_loop_over_epochs_that_does_nothing_is_refused() -> None:
    for epochs in (None, 1):
        script = Script(epochs=epochs)
        script.go(nothing, nothing)
        with pytest.raises(RuntimeError, match="leave the outer loop over epochs out"):
            script.go(nothing, nothing)
    done = Script(epochs=2)
    done.go(nothing, nothing)
    with pytest.warns(UserWarning, match="goes through all epochs"):
        done.go(nothing, nothing)
    assert done.run.position.epoch == 2


def test_a_loop_that_the_script_has_left_does_not_begin_again() -> None:
    script = Script()
    for (x,) in script.run:
        script.run.backward(script.models["G"](x).mean())
        script.run.step()
        break
    with pytest.raises(RuntimeError, match="loop is over"):
        script.go(nothing, nothing)


def test_epochs_are_whole_and_a_run_without_an_end_is_told() -> None:
    with pytest.raises(ValueError, match="whole number"):
        Script(epochs=2.5)
    orders: Any = {**ORDERS, "checkpoint_every_s": 1.0}
    assert passes(None, None) == 1 and passes(3, Orders(**orders, samples=None)) == 3
    assert passes(None, Orders(**orders, samples=5)) is None
    with pytest.warns(UserWarning, match=r"until the script stops it\. .*run\.stop\(\).*BFT-170"):
        assert passes(None, Orders(**orders, samples=None)) is None
