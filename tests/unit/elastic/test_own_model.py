"""Models whose steps would depend on the nodes, where others train them, are refused or told."""

from __future__ import annotations

import pytest
import torch

from bftrainer.elastic.frameworks.model_check import AsAtStart, Restored
from bftrainer.messages.lightning import NOT_RESTORED


def test_layers_that_are_unfrozen_are_named() -> None:
    model = torch.nn.Linear(1, 1)
    model.bias.requires_grad = False
    start = AsAtStart(model)
    start.check_frozen(model)
    model.bias.requires_grad = True
    model.weight.requires_grad = False
    with pytest.raises(ValueError, match="bias and 1 more parameters or layers were frozen or unfrozen"):
        start.check_frozen(model)


def test_layers_that_are_put_into_evaluation_mode_while_a_model_trains_are_named() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1))
    model.eval()  # as many libraries give it
    start = AsAtStart(model)
    start.check_frozen(model)
    model.train()
    model[1].eval()  # a class of the script's own may do so whenever it trains
    start.check_frozen(model)
    model.eval()  # an evaluation
    start.check_frozen(model)
    model.train()
    with pytest.raises(ValueError, match="1 and 0 more parameters or layers"):
        start.check_frozen(model)


def test_weights_that_change_after_they_were_restored_are_named() -> None:
    model = torch.nn.BatchNorm1d(3)
    restored = Restored({**model.state_dict(), "extra": "a text"}, NOT_RESTORED)
    restored.check_unchanged(model)
    with torch.no_grad():
        model.bias.fill_(0.5)
    with pytest.raises(
        ValueError, match=r"bias is not what the checkpoint has: on_fit_start .*Do that in __init__.*BFT-429"
    ):
        restored.check_unchanged(model)


def test_a_checkpoint_that_lacks_weights_is_refused_but_for_tied_and_frozen_ones() -> None:
    model = torch.nn.ModuleDict({"body": torch.nn.Linear(2, 2), "head": torch.nn.Linear(2, 2)})
    model["head"].weight = model["body"].weight
    state = {name: value for name, value in model.state_dict().items() if name != "head.weight"}

    def restored(**more: torch.Tensor) -> Restored:
        return Restored({**state, **more}, NOT_RESTORED)

    restored().check_complete(model)
    state.pop("body.bias")
    with pytest.raises(ValueError, match=r"lacks 1 of 3 weights .*, such as body\.bias\. .*BFT-217"):
        restored().check_complete(model)
    model["body"].bias.requires_grad_(False)
    restored().check_complete(model)
    wrapped = {f"module.{name}": value for name, value in model.state_dict().items()}
    Restored(wrapped, NOT_RESTORED).check_complete(model)
