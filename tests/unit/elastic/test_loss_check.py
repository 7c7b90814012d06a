"""Whether a script under Lightning hears that its loss is no mean over samples."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from bftrainer.elastic.attach.job import Job

pytest.importorskip("lightning")
lightning = importlib.import_module("bftrainer.elastic.frameworks.lightning.callback")
pl = importlib.import_module("lightning.pytorch")


class Weighs(pl.LightningModule):  # type: ignore[misc, name-defined]
    """A classifier, with class weights or without."""

    def __init__(self, weights: list[float]) -> None:
        super().__init__()
        self.layer, self.weights = torch.nn.Linear(2, 2), torch.tensor(weights)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return functional.cross_entropy(self.layer(batch[0]), batch[1], weight=self.weights)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("weights", "nodes", "is_told"),
    [([1.0, 9.0], (1, 3), True), ([1.0, 9.0], (1, 1), False), ([1.0, 1.0], (1, 3), False)],
)
def test_a_loss_with_class_weights_is_told_of_once(
    weights: list[float],
    nodes: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    *,
    is_told: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Job, "nodes", nodes)
    monkeypatch.setattr(lightning, "attach", lambda folder: Job(None, tmp_path))
    elastic = lightning.ElasticCallback(batch=12)
    data = torch.utils.data.TensorDataset(torch.randn(48, 2), (torch.arange(48) % 5 == 0).long())
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    module = Weighs(weights)
    own = {**elastic.arguments(), "accelerator": "cpu", "max_epochs": 1, **quiet}
    pl.Trainer(**own, callbacks=[elastic]).fit(module, elastic.loader(data))
    assert "".join(capfd.readouterr()).count("BFT-128") == is_told
    assert "backward" not in vars(module)
    pickle.dumps(module.layer)
