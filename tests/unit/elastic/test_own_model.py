"""Models whose steps would depend on the nodes, where others train them, are refused or told."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bftrainer.elastic.own_model import AsAtStart, means, require_loss_by_items


class Ignores(torch.nn.Module):
    """A model that takes what it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, labels: Any = None, **kwargs: Any) -> torch.Tensor:
        return self.linear(x).mean()


class PassesOn(Ignores):
    """A model that hands it to another."""

    def forward(self, x: torch.Tensor, labels: Any = None, **kwargs: Any) -> torch.Tensor:
        return self.linear(x, **kwargs)


class SaysSo(Ignores):
    """A model that says that its loss is a mean."""

    accepts_loss_kwargs = False


def test_a_model_whose_loss_would_grow_with_the_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Ignores\.forward takes \*\*kwargs and does not use them"):
        require_loss_by_items(Ignores())
    for model in (PassesOn(), SaysSo(), torch.nn.Linear(1, 1), torch.nn.Sequential()):
        require_loss_by_items(model)


def test_layers_that_are_unfrozen_are_named() -> None:
    model = torch.nn.Linear(1, 1)
    model.bias.requires_grad = False
    start = AsAtStart(model)
    start.require_frozen(model)
    model.bias.requires_grad = True
    model.weight.requires_grad = False
    with pytest.raises(ValueError, match="bias and 1 more parameters were frozen or unfrozen"):
        start.require_frozen(model)


def test_numbers_that_change_are_named_once() -> None:
    model: Any = Ignores()
    model.seen, model.scale, model.name = 0, 0.5, "a"
    start = AsAtStart(model)
    model.eval()
    assert start.lost(model) == []
    model.seen += 1
    model.name = "b"
    assert start.lost(model) == ["seen"]
    model.seen += 1
    assert start.lost(model) == []


def test_a_loss_that_a_trainer_computes_as_a_mean_is_named() -> None:
    class Base:
        def __init__(self) -> None:
            self.model_accepts_loss_kwargs = True

        def compute_loss(self, inputs: Any, num_items_in_batch: Any = None) -> Any:
            return inputs

    class Mean(Base):
        def __init__(self) -> None:
            super().__init__()

        def compute_loss(self, inputs: Any, num_items_in_batch: Any = None) -> Any:
            return inputs.mean()

    class Sum(Base):
        def compute_loss(self, inputs: Any, num_items_in_batch: Any = None) -> Any:
            return inputs.sum() / num_items_in_batch

    class AsIs(Mean):
        pass

    class Beside(Base):
        def compute_loss(self, inputs: Any, num_items_in_batch: Any = None) -> Any:
            return super().compute_loss(inputs, num_items_in_batch)

    class Told(Base):
        def __init__(self) -> None:
            self.model_accepts_loss_kwargs = False

        def compute_loss(self, inputs: Any, num_items_in_batch: Any = None) -> Any:
            return inputs.mean()

    assert means(Base, Ignores()) == means(Base, PassesOn()) == ["Mean"]
    assert means(Base, SaysSo()) == means(Base, torch.nn.Linear(1, 1)) == []
