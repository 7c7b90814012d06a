"""Whether a script under a framework hears that batch normalisation depends on the number of nodes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from bftrainer.elastic.frameworks.batch_norm import watch_batch_norm
from bftrainer.elastic.frameworks.fixed_batch import at_once


@pytest.mark.parametrize(
    ("norm", "total", "at_most", "told"),
    [
        (nn.BatchNorm1d(4), 12, None, "sees 4 samples at once on 3 ranks, and 12 on 1. Say at_most=2, so"),
        (nn.BatchNorm1d(4), 3, None, "sees 1 samples at once on 3 ranks, and 3 on 1. Take a batch whose"),
        (nn.BatchNorm1d(4), 12, 2, ""),
        (nn.LayerNorm(4), 12, None, ""),
    ],
)
def test_shares_of_several_sizes_are_told_of_once_and_where_a_model_trains(
    capfd: pytest.CaptureFixture[str], norm: nn.Module, total: int, at_most: int | None, told: str
) -> None:
    sizes = [1, 3] if total == 3 else [1, 2, 3]
    model = nn.Sequential(nn.Linear(3, 4), norm)
    watch_batch_norm(model, at_once(total, sizes, at_most))
    with torch.no_grad():
        model.eval()(torch.randn(2, 3))
    assert "".join(capfd.readouterr()) == "", "an evaluation normalises over no batch"
    for _ in range(2):
        model.train()(torch.randn(2, 3))
    said = "".join(capfd.readouterr())
    assert told in said and said.count("BFT-229") == bool(told)


@pytest.mark.parametrize(("at_most", "is_told"), [(None, False), (2, True)])
def test_what_normalises_over_all_ranks_sees_their_samples(
    capfd: pytest.CaptureFixture[str], at_most: int | None, *, is_told: bool
) -> None:
    norm = nn.SyncBatchNorm(4)
    watch_batch_norm(norm, at_once(6, [1, 2, 3], at_most))
    next(iter(norm._forward_pre_hooks.values()))(norm, ())
    assert ("BFT-229" in "".join(capfd.readouterr())) == is_told
