"""Variables that change while a loop trains are named; what the run has, or is only replaced, is not."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch

from bftrainer.elastic.checks.loop_variables import LoopVariables

MODEL = torch.nn.Linear(2, 1)
KNOWN = (MODEL, *MODEL.parameters())


def counts() -> str:
    seen, best = 0, 9e9
    watched = LoopVariables(KNOWN)
    for loss in (0.5, 0.4):
        seen, best = seen + 5, min(best, loss)
    return watched.changed()


def average_by_hand() -> str:
    ema = copy.deepcopy(MODEL)
    weights = {name: p.detach().clone() for name, p in MODEL.named_parameters()}
    losses = [1.0]
    watched = LoopVariables(KNOWN)
    with torch.no_grad():
        ema.weight.add_(1)
        weights["bias"].add_(1)
    losses.append(2.0)
    return watched.changed()


def nothing() -> str:
    x, loss, model = torch.zeros(8, 2), None, MODEL
    watched = LoopVariables(KNOWN)
    for x in torch.ones(3, 2, 2):  # the loop's own names
        loss = x.sum()
        with torch.no_grad():
            model.weight.add_(loss)
    return watched.changed()


def a_loss_of_before() -> str:
    """As a search for a rate, or the training of a teacher, leaves it: the loop replaces it in each turn."""
    loss = MODEL(torch.ones(1, 2)).sum()
    average = loss.detach()
    watched = LoopVariables(KNOWN)
    for x in torch.ones(3, 2, 2):
        loss = MODEL(x).sum() + 1
        average = average + loss.detach()
    return watched.changed()


def hidden_states() -> str:
    """As models of words take them from one batch to the next; one begins with none."""
    hidden, later, best = None, (torch.zeros(1, 2), torch.zeros(1, 2)), None
    watched = LoopVariables(KNOWN)
    for x in torch.rand(3, 2, 2):
        out = MODEL(x).sum() + sum(each.detach().sum() for each in (*later, *(hidden or ())))
        hidden, later = (out.expand(1, 1), out.expand(1)), (out.expand(1, 2), x)
        best = max(best or 0.0, out.item())
    return watched.changed()


class Stopper:
    """As many scripts have it: it remembers the best figure, and how often there was none."""

    def __init__(self) -> None:
        self.best, self.waited = 9.0, 0


class Targets(torch.nn.Module):
    """A loss that keeps a target for each sample, beside its parameters and buffers."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.target = torch.zeros(4, 2)
        self.register_buffer("seen", torch.zeros(4))


class Graded(torch.utils.data.Dataset[torch.Tensor]):
    """A data set with a level, and samples that it has read already."""

    def __init__(self) -> None:
        self.level, self.cache = 0, {0: torch.zeros(2)}


class OwnTrainer:
    """A class that trains, as scripts without a framework have it."""

    def __init__(self) -> None:
        self.model, self.stopper, self.history = MODEL, Stopper(), [1.0]

    def fit(self) -> str:
        watched = LoopVariables.beside([MODEL])
        for x in torch.ones(3, 2, 2):
            self.loss = float(x.sum())
            self.history.append(self.loss)
            self.stopper.waited += 1
            with torch.no_grad():
                self.model.weight.add_(x.sum())
        return watched.changed()


def hidden_states_that_are_tensors() -> str:
    """As of a GRU, from none or from zeros; what the model gave before the loop is replaced."""
    hidden, zeros, out = None, torch.zeros(2, 1), MODEL(torch.ones(2, 2))
    watched = LoopVariables(KNOWN)
    for x in torch.rand(3, 2, 2):
        hidden, zeros = None if hidden is None else hidden.detach(), zeros.detach()
        out = MODEL(x)
        hidden, zeros = out + (0 if hidden is None else hidden), out + zeros
    return watched.changed()


def attributes_of_a_trainer() -> str:
    return OwnTrainer().fit()


def a_loss_and_a_data_set() -> str:
    criterion, data = Targets(), Graded()
    watched = LoopVariables.beside([MODEL])
    for i in range(3):
        criterion.target[i] = 1.0
        criterion.seen[i] += 1
        data.level += 1
        data.cache[i] = torch.ones(2)
    return watched.changed()


def what_a_hook_changes() -> str:
    """The loop is in a function that the script calls, and the hook's variable in the calling one."""
    waited = 0

    def look() -> None:
        nonlocal waited
        waited += 1

    def loop() -> str:
        watched = LoopVariables.beside([MODEL])
        look()
        return watched.changed()

    return loop()


def layers_of_the_model() -> str:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    norm, counts = model[1], Stopper()
    watched = LoopVariables.beside([model, Keeps(lambda: {"counts": {"waited": counts.waited}})])
    model(torch.rand(3, 2))
    with torch.no_grad():
        for p in norm.parameters():
            p.add_(1)
    counts.waited += 1
    return watched.changed()


@pytest.mark.parametrize(
    ("script", "names"),
    [
        (counts, "best, seen"),
        (average_by_hand, "ema, losses, weights"),
        (nothing, ""),
        (a_loss_of_before, "average"),
        (hidden_states, "best, hidden, later"),
        (hidden_states_that_are_tensors, "hidden, zeros"),
        (attributes_of_a_trainer, "self.history, self.stopper.waited"),
        (a_loss_and_a_data_set, "criterion, criterion.target, data.level"),
        (what_a_hook_changes, "waited"),
        (layers_of_the_model, ""),
    ],
)
def test_what_changes_is_named(script: Callable[[], str], names: str) -> None:
    told = script()
    assert (f"does not have them: {names}. " in told and "BFT-119" in told) if names else not told


class Keeps:
    """A part of a run that gives what it finds as its state."""

    def __init__(self, state: Callable[[], dict[str, object]]) -> None:
        self.state_dict = state

    def load_state_dict(self, state: dict[str, object]) -> None:
        raise NotImplementedError


def test_what_a_part_gives_as_its_state_is_kept_though_its_object_is_another() -> None:
    history, best, seen, lost, stepped = [1.0], 9e9, 0, 0.5, 0
    watched = LoopVariables.beside([MODEL, Keeps(lambda: {"h": list(history), "low": best, "seen": seen})])
    for loss in (0.5, 0.4):
        history.append(loss)
        best, lost = min(best, loss), lost + loss
        seen, stepped = seen + 1, stepped + 1  # the same by chance
    assert "does not have them: lost, stepped. " in watched.changed()


def test_each_name_is_told_once_and_at_few_steps() -> None:
    seen = 0
    watched = LoopVariables([])
    told: list[str] = []
    while len(told) < 300:
        seen += len(told) + 1
        told.append(watched.stepped())
    assert [step for step, text in enumerate(told, 1) if text] == [20]
    assert "seen" in told[19]
    assert not watched.changed()
