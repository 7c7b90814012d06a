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


@pytest.mark.parametrize(
    ("script", "names"),
    [
        (counts, "best, seen"),
        (average_by_hand, "ema, losses, weights"),
        (nothing, ""),
        (a_loss_of_before, "average"),
        (hidden_states, "best, hidden, later"),
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
