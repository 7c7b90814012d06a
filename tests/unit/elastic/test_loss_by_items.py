"""Losses that are means where Hugging Face expects a sum divided by the items are refused or told."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bftrainer.elastic.frameworks.huggingface.loss_by_items import (
    check_function_by_items,
    check_smoothing_by_items,
    is_hugging_faces,
    watch_first_loss,
    watch_masked_labels,
    watch_own_loss,
)

ITEMS = torch.tensor(4)


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


def test_smoothing_that_is_a_mean_is_refused() -> None:
    class Older:
        def __call__(self, output: Any, labels: Any) -> None: ...

    class Newer:
        def __call__(self, output: Any, labels: Any, num_items_in_batch: Any = None) -> None: ...

    with pytest.raises(ValueError, match="smoothes labels without num_items_in_batch"):
        check_smoothing_by_items(Older, PassesOn())
    check_smoothing_by_items(Newer, PassesOn())
    check_smoothing_by_items(Older, SaysSo())
    check_smoothing_by_items(Older, torch.nn.Linear(1, 1))


def test_losses_of_hugging_faces_own_are_known() -> None:
    class Base:
        def compute_loss(self, inputs: Any, num_items_in_batch: Any = None) -> Any:
            return inputs

    class Own(Base):
        def compute_loss(self, inputs: Any, num_items_in_batch: Any = None) -> Any:
            return inputs.sum() / num_items_in_batch

    class Beside(Base):
        def compute_loss(self, inputs: Any, num_items_in_batch: Any = None) -> Any:
            return super().compute_loss(inputs, num_items_in_batch)

    whose = {kind.__name__: is_hugging_faces(kind(), Base) for kind in (Base, Own, Beside)}
    assert whose == {"Base": True, "Own": False, "Beside": True}


class Divides(Ignores):
    """A model whose loss is a sum divided by what it is given."""

    def forward(self, x: torch.Tensor, labels: Any = None, **kwargs: Any) -> torch.Tensor:
        loss = self.linear(x).sum()
        return loss / kwargs["num_items_in_batch"] if kwargs else loss


class HandsOn(Ignores):
    """A model that hands it to a part that does not use it, as BERT for classification does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Ignores()

    def forward(self, x: torch.Tensor, labels: Any = None, **kwargs: Any) -> torch.Tensor:
        found: torch.Tensor = self.inner(x, **kwargs)
        return found


@pytest.mark.parametrize("kind", [Ignores, HandsOn])
def test_a_model_that_does_not_use_the_items_is_refused_in_its_first_step(kind: type[Ignores]) -> None:
    model, x = kind(), torch.ones(4, 1)
    watch_first_loss(model)
    with pytest.raises(ValueError, match=f"{kind.__name__} computes its loss without num_items_in_batch"):
        model(x, labels=x, num_items_in_batch=ITEMS)


@pytest.mark.parametrize("given", [{"num_items_in_batch": ITEMS}, {}, {"num_items_in_batch": 4}])
def test_a_model_that_divides_by_the_items_trains_as_without_the_watching(given: dict[str, Any]) -> None:
    model, x = Divides(), torch.ones(4, 1)
    plain = model(x, labels=x, **given)
    watch_first_loss(model)
    for _ in range(2):
        watched = model(x, labels=x, **given)
        assert type(watched) is torch.Tensor and torch.equal(watched, plain)


def test_only_losses_of_the_model_itself_are_watched() -> None:
    model, x = HandsOn(), torch.ones(4, 1)
    watch_first_loss(model)
    model(x, num_items_in_batch=ITEMS)  # without labels: another function computes the loss


@pytest.mark.parametrize(
    ("kind", "is_refused"), [("ForSequenceClassification", True), ("LMHeadModel", False)]
)
def test_the_librarys_own_models(kind: str, *, is_refused: bool) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = getattr(transformers, f"Bert{kind}")(
        transformers.BertConfig(vocab_size=20, is_decoder=True, **sizes)
    )
    tokens = torch.ones(2, 3, dtype=torch.int64)
    labels = torch.ones(2, dtype=torch.int64) if is_refused else tokens
    watch_first_loss(model)
    if is_refused:
        with pytest.raises(ValueError, match=r"model\.accepts_loss_kwargs = False"):
            model(input_ids=tokens, labels=labels, num_items_in_batch=ITEMS)
    else:
        model(input_ids=tokens, labels=labels, num_items_in_batch=ITEMS).loss.backward()


def mean_of(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
    return (outputs - labels).mean()


def sum_of(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
    return (outputs - labels).sum() / num_items_in_batch


@pytest.mark.parametrize(
    ("function", "is_refused"),
    [
        (mean_of, True),
        (functools.partial(mean_of), True),
        (sum_of, False),
        (None, False),
        (torch.mean, False),
    ],
)
def test_a_function_that_does_not_use_the_items_is_refused(
    function: Callable[..., Any] | None, *, is_refused: bool
) -> None:
    class Base:
        def __init__(self, callback: object, function: Callable[..., Any] | None) -> None:
            self.callback_handler = SimpleNamespace(callbacks=[callback])
            self.compute_loss_func = function

    mine, others = object(), object()
    there = [Base(mine, function), Base(others, mean_of)]
    if is_refused:
        with pytest.raises(ValueError, match="compute_loss_func does not use num_items_in_batch"):
            check_function_by_items(Base, mine)
    else:
        check_function_by_items(Base, mine)
    assert len(there) == 2


class Hugging:
    """Hugging Face's Trainer, with what matters of it."""

    model_accepts_loss_kwargs, loss_is_scaled_for_ga = True, None
    current_gradient_accumulation_steps = 2

    def __init__(self, callback: object) -> None:
        self.callback_handler = SimpleNamespace(callbacks=[callback])
        self.accelerator = SimpleNamespace(num_processes=2)

    def compute_loss(self, model: Any, x: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        return model(x)["loss"] * self.accelerator.num_processes


class Mean(Hugging):
    def compute_loss(self, model: Any, x: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        return model(x)["loss"].mean()


class SaidMean(Mean):
    loss_is_scaled_for_ga = False


class Sum(Hugging):
    def compute_loss(self, model: Any, x: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        return x.sum() / (num_items_in_batch or 1)


class SumForAll(Hugging):
    def compute_loss(self, model: Any, x: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        return x.sum() / (num_items_in_batch or 1) * self.accelerator.num_processes


class Plus(Hugging):
    def compute_loss(self, *given: Any, **options: Any) -> torch.Tensor:
        return super().compute_loss(*given, **options) + 1.0


class PlusPart(Hugging):
    def compute_loss(self, *given: Any, **options: Any) -> torch.Tensor:
        return super().compute_loss(*given, **options) + 1.0 / self.current_gradient_accumulation_steps


class Passes(Hugging):
    def compute_loss(self, *given: Any, **options: Any) -> torch.Tensor:
        return super().compute_loss(*given, **options)


class Loss(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": x.mean()}


@pytest.mark.parametrize(
    ("kind", "cut", "shared", "said"),
    [
        (Hugging, True, True, ""),
        (Mean, True, True, "refused: compute_loss does not use num_items_in_batch"),
        (Mean, False, True, ""),
        (SaidMean, True, True, ""),
        (Sum, True, True, "compute_loss uses num_items_in_batch"),
        (Sum, True, False, ""),
        (SumForAll, True, True, ""),
        (Plus, True, True, "compute_loss changes Hugging Face's loss"),
        (Plus, False, True, ""),
        (PlusPart, True, True, ""),
        (Passes, True, True, ""),
    ],
)
def test_a_loss_of_the_scripts_own_that_depends_on_the_nodes_is_told(
    kind: type[Hugging], *, cut: bool, shared: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = object()
    trainer = kind(mine)
    watch_own_loss(Hugging, mine, is_cut=cut, is_shared=shared)
    x = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        trainer.compute_loss(Loss(), x)  # no items: Hugging Face divides it by the micro-batches itself
    assert not capsys.readouterr().err
    try:
        for _ in range(2):
            trainer.compute_loss(Loss(), x, num_items_in_batch=torch.tensor(3))
    except ValueError as error:
        told = f"refused: {error}"
    else:
        told = capsys.readouterr().err.partition("bftrainer: ")[2]
    assert told.startswith(said) and bool(told) == bool(said)
    assert vars(trainer).get("compute_loss") is None or told.startswith("refused") or not said


@pytest.mark.parametrize(
    ("labels", "by_items", "at_once", "is_told"),
    [
        ([1, -100], False, {1: 6, 2: 6, 3: 4}, True),
        ([1, -100], True, {1: 6, 2: 6, 3: 4}, False),
        ([1, -100], False, {1: 4, 2: 4, 3: 4}, False),
        ([1, 0], False, {1: 6, 2: 6, 3: 4}, False),
    ],
)
def test_a_mean_over_masked_labels_of_shares_of_several_sizes_is_told_of(
    labels: list[int],
    at_once: dict[int, int],
    capsys: pytest.CaptureFixture[str],
    *,
    by_items: bool,
    is_told: bool,
) -> None:
    class Steps(Hugging):
        loss_is_scaled_for_ga = by_items

        def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> str:
            return "trained"

    mine = object()
    trainer = Steps(mine)
    watch_masked_labels(Hugging, mine, at_once)
    for _ in range(2):
        assert trainer.training_step(None, {"labels": torch.tensor(labels)}, None) == "trained"
    said = capsys.readouterr().err
    assert ("those of 4 samples at once on 3 ranks, of 6 on 2. Say at_most=2, so" in said) == is_told
    assert said.count("BFT-333") == is_told and not vars(trainer).get("training_step")
