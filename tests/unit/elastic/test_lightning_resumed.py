"""Lightning's Trainer goes on in a new process at the sample where it was, with the epoch's figures."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bftrainer.elastic.attach import checkpoints
from bftrainer.elastic.attach.job import Job

pytest.importorskip("lightning")
MeanMetric = pytest.importorskip("torchmetrics").MeanMetric
pl = importlib.import_module("lightning.pytorch")
lightning = importlib.import_module("bftrainer.elastic.frameworks.lightning.callback")
LENGTH, BATCH, EPOCHS = 20, 4, 3


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Runs of other tests would tell of an average of the weights that they do not have."""
    yield
    gc.collect()


class Seeing(pl.LightningModule):  # type: ignore[misc,name-defined]  # lightning need not be installed
    """Notes which samples it computes, and what it has logged of each epoch."""

    def __init__(self, asks_for_steps: bool) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.asks_for_steps = asks_for_steps
        self.counts = MeanMetric()
        self.seen: list[int] = []
        self.logged: list[dict[str, float]] = []
        self.rates: list[float] = []
        self.register_buffer("average", torch.zeros(1))
        self.average: torch.Tensor

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """Note them."""
        self.seen += batch.int().tolist()
        self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
        for name in ("mean", "sum", "max"):
            self.log(name, batch.float().mean(), on_step=False, on_epoch=True, reduce_fx=name)
        self.counts(batch.float())
        self.log("counts", self.counts, on_step=False, on_epoch=True)
        self.log("both", batch.float().mean(), on_step=True, on_epoch=True, sync_dist=True)
        loss: torch.Tensor = self.layer(batch.to(self.layer.weight)[:, None]).sum()
        return loss

    def on_train_epoch_end(self) -> None:
        """Note the figures."""
        found = self.trainer.callback_metrics
        names = ("mean", "sum", "max", "both_epoch")
        self.logged.append({name: round(float(found[name]), 3) for name in names})

    def on_train_batch_end(self, *_: Any) -> None:
        """Average a weight by oneself, as many modules do."""
        self.average = 0.5 * self.average + 0.5 * self.layer.weight.detach()[0]

    def configure_optimizers(self) -> Any:
        """Lightning reads the data for the number of steps. Both schedulers count epochs."""
        assert not self.asks_for_steps or self.trainer.estimated_stepping_batches == EPOCHS * LENGTH // BATCH
        optimizer = torch.optim.SGD(self.parameters(), lr=1e-3)
        halved = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.9)
        return [optimizer], [halved, {"scheduler": plateau, "monitor": "mean"}]

    def on_train_epoch_start(self) -> None:
        """Lightning does not call it where an epoch goes on."""


class Module(pl.LightningDataModule):  # type: ignore[misc,name-defined]
    """Makes the loader when Lightning asks for it."""

    def __init__(self, elastic: Any) -> None:
        super().__init__()
        self.elastic = elastic

    def train_dataloader(self) -> Any:
        """The loader."""
        return self.elastic.loader(range(LENGTH), num_workers=1)


def process(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    leave_after: int | None,
    way: str,
    *,
    asks: bool,
    epochs: int = EPOCHS,
    before: Sequence[Any] = (),
    after: Sequence[Any] = (),
    kind: type[Seeing] = Seeing,
    **options: Any,
) -> Seeing:
    """Train as one process does, which is told to leave after a step. Returns what it has seen."""
    job = Job(None, folder)
    monkeypatch.setattr(lightning, "attach", lambda _: job)
    monkeypatch.setattr(job, "listen_for_sigterm", lambda: None)
    elastic = lightning.ElasticCallback(batch=BATCH)
    torch.manual_seed(0)
    model = kind(asks)
    trainer = pl.Trainer(
        **elastic.arguments(),
        callbacks=[*before, elastic, *after],
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    leaves, taken = leave_after or 1000, trainer.fit_loop.epoch_loop.batch_progress
    monkeypatch.setattr(Job, "stopping", property(lambda _: taken.total.ready >= leaves))
    module = Module(elastic)
    data = {"datamodule": module} if way == "module" else {"train_dataloaders": module.train_dataloader()}
    try:
        trainer.fit(model, **data, ckpt_path=elastic.checkpoint)
    except SystemExit:
        assert leave_after is not None
    return model


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("way", ["module", "loader"])
def test_every_sample_once(
    way: str,
    asks: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    whole = process(tmp_path / "whole", monkeypatch, None, way, asks=asks)
    assert sorted(whole.seen) == sorted([*range(LENGTH)] * EPOCHS)
    assert [epoch["mean"] for epoch in whole.logged] == [(LENGTH - 1) / 2] * EPOCHS
    parts = [process(tmp_path / "cut", monkeypatch, at, way, asks=asks) for at in (2, 7, None)]
    assert [sample for part in parts for sample in part.seen] == whole.seen
    assert [figures for part in parts for figures in part.logged] == whole.logged
    torch.testing.assert_close(parts[-1].average, whole.average)
    assert [rate for part in parts for rate in part.rates] == whole.rates and len({*whole.rates}) == EPOCHS
    told = capsys.readouterr().err
    assert "counts: of epoch 0, only what came after its step 2 counts" in told
    assert "counts: of epoch 1, only what came after its step 2 counts" in told
    assert told.count("Seeing.on_train_epoch_start is not called for the rest of epoch") == 2


def test_all_epochs_are_saved_so_that_nothing_is_done_twice_and_more_epochs_go_on_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    whole = process(tmp_path / "whole", monkeypatch, None, "module", asks=False, epochs=2 * EPOCHS)
    first = process(tmp_path / "cut", monkeypatch, None, "module", asks=False)
    told: list[dict[str, int]] = []
    monkeypatch.setattr(Job, "samples", 1000)
    monkeypatch.setattr(Job, "done", lambda _, **about: told.append(about))
    again = process(tmp_path / "cut", monkeypatch, None, "module", asks=False)
    assert again.seen == [] and told == [
        {"step": EPOCHS * LENGTH // BATCH, "samples": EPOCHS * LENGTH, "epoch": EPOCHS}
    ]
    more = process(tmp_path / "cut", monkeypatch, None, "module", asks=False, epochs=2 * EPOCHS)
    assert first.seen + more.seen == whole.seen and first.logged + more.logged == whole.logged


def test_a_hook_that_sets_weights_at_every_start_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    process(tmp_path, monkeypatch, 2, "loader", asks=False)
    monkeypatch.setattr(Seeing, "on_train_start", lambda self: self.layer.bias.data.fill_(0.5))
    with pytest.raises(ValueError, match=r"layer\.bias is not what the checkpoint has"):
        process(tmp_path, monkeypatch, None, "loader", asks=False)


@pytest.mark.parametrize("is_first", [False, True])
def test_an_average_of_the_weights_goes_on(
    is_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())

    def trained(folder: str, leave_after: int | None) -> Seeing:
        average = [pl.callbacks.EMAWeightAveraging(decay=0.5)]
        where = {"before": average} if is_first else {"after": average}
        return process(tmp_path / folder, monkeypatch, leave_after, "loader", asks=False, **where)

    whole = trained("whole", None).state_dict()
    for at in (2, 7, None):
        part = trained("cut", at).state_dict()
    torch.testing.assert_close(part, whole)
    again = trained("cut", None)  # nothing is left to do but what comes after `fit`
    assert again.seen == []
    torch.testing.assert_close(again.state_dict(), whole)


@pytest.mark.parametrize(
    "options",
    [
        {"val_check_interval": 0.4},
        {"val_check_interval": 2, "check_val_every_n_epoch": None},
        {"val_check_interval": 2, "check_val_every_n_epoch": 2},
    ],
)
def test_a_validation_within_an_epoch_comes_before_the_process_leaves(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    at: list[int] = []
    monkeypatch.setattr(Seeing, "validation_step", lambda m, *_: at.append(m.trainer.global_step))
    monkeypatch.setattr(Seeing, "val_dataloader", lambda _: torch.utils.data.DataLoader(torch.ones(1, 1)))
    options |= {"num_sanity_val_steps": 0}
    process(tmp_path / "whole", monkeypatch, None, "loader", asks=False, **options)
    whole = at[:]
    for leave_after in (2, 4, 5, 7):
        at.clear()
        folder = tmp_path / f"cut-{leave_after}"
        for leaves in (leave_after, None):
            process(folder, monkeypatch, leaves, "loader", asks=False, **options)
        assert at == whole, leave_after


class ByHand(Seeing):
    """Accumulates gradients by itself, and sees what a step takes."""

    def __init__(self, asks_for_steps: bool) -> None:
        super().__init__(asks_for_steps)
        self.automatic_optimization = False

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """Step every third batch."""
        loss = super().training_step(batch, batch_idx)
        self.manual_backward(loss / 3)
        if batch_idx % 3 == 2:
            optimizer = self.optimizers()
            optimizer.step()
            optimizer.zero_grad()
        return loss

    def configure_optimizers(self) -> Any:
        """Without schedulers, which a module with manual optimisation steps by itself."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


@pytest.mark.parametrize(
    ("way", "all_leaves"),
    [("module", [(2, 5, 8), (4, 7, 9)]), ("before", [(2, 5, 8)]), ("after", [(4, 7, 9)])],
)
def test_gradients_that_wait_for_further_batches_are_not_lost(
    way: str, all_leaves: list[tuple[int, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process leaves after the step that takes them, and a window is as wide in the rest of an epoch."""
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())

    def trained(folder: str, leave_after: int | None) -> Seeing:
        widths = pl.callbacks.GradientAccumulationScheduler({0: 1, 1: 2, 2: 3})
        own: dict[str, Any] = {"kind": ByHand} if way == "module" else {way: [widths]}
        return process(tmp_path / folder, monkeypatch, leave_after, "loader", asks=False, **own)

    whole = trained("whole", None).state_dict()
    for leaves in all_leaves:
        for leave_after in (*leaves, None):
            found = trained(str(leaves), leave_after).state_dict()
        torch.testing.assert_close(found, whole)


def test_a_model_that_would_be_converted_after_it_was_restored_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    with pytest.raises(ValueError, match=r"is made in float32, .*set_default_dtype\(torch.float64\)"):
        process(tmp_path, monkeypatch, 2, "loader", asks=False, precision="64-true")


class Steered(Seeing):
    """Follows a figure that it has logged an epoch before, and counts by a metric that it does not log."""

    def __init__(self, asks_for_steps: bool) -> None:
        super().__init__(asks_for_steps)
        self.own = MeanMetric()
        self.known: list[float | None] = []

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        """Look it up."""
        found = self.trainer.callback_metrics.get("mean")
        self.known.append(None if found is None else float(found))
        self.own.update(batch.float())
        return super().training_step(batch, batch_idx)


def test_figures_of_before_are_known_after_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within an epoch, and where nothing is left to do. What a metric counts by itself is told of."""
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    whole = process(tmp_path / "whole", monkeypatch, None, "loader", asks=False, kind=Steered)
    parts = [
        process(tmp_path / "cut", monkeypatch, at, "loader", asks=False, kind=Steered)
        for at in (7, None, None)
    ]
    assert [known for part in parts for known in part.known] == whole.known and whole.known[5] is not None
    assert float(parts[-1].trainer.callback_metrics["mean"]) == float(whole.trainer.callback_metrics["mean"])
    told = capsys.readouterr().err
    assert told.count("own counts by itself, and no checkpoint has") == 1
    assert "counts counts by itself" not in told, "it is logged"


class Warmed(Seeing):
    """Its scheduler computes rates with NumPy, as many do."""

    def configure_optimizers(self) -> Any:
        """Return it."""
        optimizer = torch.optim.SGD(self.parameters(), lr=1e-3)
        cosine = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: np.cos(step / 100))
        return [optimizer], [{"scheduler": cosine, "interval": "step"}]


def test_a_rate_of_numpy_is_in_checkpoints_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    whole = process(tmp_path / "whole", monkeypatch, None, "loader", asks=False, kind=Warmed)
    for leave_after in (3, None):
        cut = process(tmp_path / "cut", monkeypatch, leave_after, "loader", asks=False, kind=Warmed)
    torch.testing.assert_close(cut.state_dict(), whole.state_dict())


class Short(Seeing):
    """Ends each epoch after three of its five batches."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        """-1: Lightning leaves out the rest."""
        return -1 if batch_idx >= 3 else None


@pytest.mark.parametrize("leave_after", [2, 6, 10])
def test_epochs_that_a_module_ends_itself_are_as_long_after_a_change_of_nodes(
    leave_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`leave_after` counts batches that Lightning has fetched: one more in each epoch."""
    monkeypatch.setattr(checkpoints, "_begun", set[Any]())
    whole = process(tmp_path / "whole", monkeypatch, None, "loader", asks=False, kind=Short)
    parts = [
        process(tmp_path / "cut", monkeypatch, at, "loader", asks=False, kind=Short)
        for at in (leave_after, None)
    ]
    assert [sample for part in parts for sample in part.seen] == whole.seen
    assert len(whole.seen) == EPOCHS * 3 * BATCH
