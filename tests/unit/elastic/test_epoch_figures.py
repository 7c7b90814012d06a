"""The figures of an epoch of Lightning, from one number of ranks to another."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bftrainer.elastic.frameworks.lightning import epoch_figures
from bftrainer.elastic.frameworks.lightning.step_figures import StepFigures


def metric(kind: str, value: float, count: int = 0, *, rank_zero_only: bool = False) -> SimpleNamespace:
    """As Lightning has one for each logged figure."""
    meta = SimpleNamespace(
        on_epoch=True,
        is_mean_reduction=kind == "mean",
        is_max_reduction=kind == "max",
        is_min_reduction=kind == "min",
        sync=SimpleNamespace(rank_zero_only=rank_zero_only),
    )
    both = {"value": torch.tensor(value), "cumulated_batch_size": torch.tensor(count)}
    return SimpleNamespace(is_tensor=True, has_reset=False, meta=meta, **both)


def trainer(**logged: SimpleNamespace) -> SimpleNamespace:
    """One that has logged these."""
    return SimpleNamespace(fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(_results=logged)))


def test_two_ranks_figures_go_on_on_three(monkeypatch: pytest.MonkeyPatch) -> None:
    one = trainer(a=metric("mean", 6.0, 3), top=metric("max", 5.0), own=metric("sum", 9.0))
    other = trainer(a=metric("mean", 12.0, 6), top=metric("max", 7.0))
    with monkeypatch.context() as alone:
        alone.setattr(epoch_figures, "exchanged", lambda mine: [mine])
        both = [epoch_figures.collect(rank) for rank in (one, other)]
    monkeypatch.setattr(epoch_figures, "exchanged", lambda mine: both)
    kept = epoch_figures.collect(one)
    assert kept == {"a": [18.0, 9.0, "sum"], "top": [7.0, 0.0, "max"], "own": [9.0, 0.0, "sum"]}
    ranks: list[dict[str, Any]] = []
    for _ in range(3):
        now = {"a": metric("mean", 1.0, 1), "top": metric("max", 6.0)}
        left = epoch_figures.add(trainer(**now), kept, size=3)
        assert left == {"own": [9.0, 0.0, "sum"]}, "not logged yet"
        ranks.append(now)
    assert sum(float(rank["a"].value) for rank in ranks) == 18 + 3
    assert sum(float(rank["a"].cumulated_batch_size) for rank in ranks) == 9 + 3
    assert {float(rank["top"].value) for rank in ranks} == {7.0}


def test_a_figure_of_rank_0_alone_is_not_shared_out() -> None:
    now = {"a": metric("sum", 1.0, rank_zero_only=True)}
    assert epoch_figures.add(trainer(**now), {"a": [6.0, 0.0, "sum"]}, size=3) == {}
    assert float(now["a"].value) == 7


def test_metrics_that_count_by_themselves_are_named() -> None:
    own = metric("mean", 1.0)
    own.is_tensor, own.meta.name = False, "train_acc"
    logged = trainer(a=metric("mean", 6.0, 3), own=own)
    assert epoch_figures.lost(logged) == ["train_acc"]
    assert epoch_figures.collect(logged).keys() == {"a"}


def test_a_lightning_without_such_results_keeps_nothing() -> None:
    assert epoch_figures.collect(SimpleNamespace()) == {}
    kept = {"a": [1.0, 1.0, "sum"]}
    assert epoch_figures.add(SimpleNamespace(), kept, size=1) == kept


def test_a_steps_figures_are_those_of_all_its_micro_batches() -> None:
    kinds = ("mean", "sum", "max", "min")
    metrics = {kind: metric(kind, 0.0) for kind in (*kinds, "seldom")}
    for each in metrics.values():
        each.meta.on_step, each.meta.is_sum_reduction = True, each is metrics["sum"]
    figures, training = StepFigures(), trainer(**metrics)
    for step in ([1.0, 5.0, 3.0], [2.0, 2.0, 8.0]):
        for at, value in enumerate(step):
            for kind in kinds:
                metrics[kind]._forward_cache = torch.tensor(value)
            if value == 5:
                metrics["seldom"]._forward_cache = torch.tensor(value)
            figures.after_part(training, is_last=at == 2)
        found = {kind: float(each._forward_cache) for kind, each in metrics.items()}
        assert found == {
            "mean": sum(step) / 3,
            "sum": sum(step),
            "max": max(step),
            "min": min(step),
            "seldom": 5,
        }
