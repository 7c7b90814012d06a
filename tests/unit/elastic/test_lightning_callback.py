"""What the callback for Lightning refuses, and which checkpoints it goes on from."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from bftrainer.elastic.attach import checkpoints as attach_checkpoints
from bftrainer.elastic.attach.job import Job
from bftrainer.elastic.process.refusal import RefusedError

pytest.importorskip("lightning")
lightning = importlib.import_module("bftrainer.elastic.frameworks.lightning.callback")
pl = importlib.import_module("lightning.pytorch")


@pytest.fixture
def callback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Of a process that a spec lets run on 1 to 3 nodes."""
    job = Job(None, tmp_path)
    monkeypatch.setattr(Job, "nodes", (1, 3))
    monkeypatch.setattr(lightning, "attach", lambda folder: job)
    return lightning.ElasticCallback


def trainer(**changed: Any) -> SimpleNamespace:
    """As the callback's own arguments make it, unless told otherwise."""
    own = {"num_devices": 1, "num_nodes": 1, "accumulate_grad_batches": 2}
    own |= {
        "callbacks": [],
        "ckpt_path": None,
        "state": SimpleNamespace(fn="fit"),
        "callback_metrics": {},
        "fit_loop": SimpleNamespace(),
        "world_size": 1,
        "strategy": SimpleNamespace(model=None),
        "checkpoint_callbacks": [],
        "max_epochs": 1,
        "max_steps": -1,
    }
    connector = SimpleNamespace(use_distributed_sampler=False)
    return SimpleNamespace(**{**own, "_accelerator_connector": connector, **changed})


def checkpoint(batch: int, micro_batches: int, epoch: int, done: int) -> dict[str, Any]:
    """What counts in a checkpoint of Lightning."""
    counts = {"ready": done, "completed": done - 1, "started": done, "processed": done}
    progress = {"total": dict(counts), "current": dict(counts), "is_last_batch": False}
    loop = {
        "epoch_loop.batch_progress": progress,
        "epoch_progress": {"current": {"ready": epoch + 1, "processed": epoch}},
    }
    own = {"batch": batch, "micro_batches": micro_batches}
    return {"bftrainer": own, "loops": {"fit_loop": loop}}


def test_a_batch_that_some_number_of_nodes_does_not_divide_is_refused(callback: Any) -> None:
    with pytest.raises(ValueError, match=r"spec allows 1 to 3\. .*or take 18 .*BFT-215"):
        callback(batch=16)


def test_what_would_go_wrong_is_refused_before_the_first_step(callback: Any, tmp_path: Path) -> None:
    elastic = callback(batch=12, at_most=6)
    with pytest.raises(ValueError, match=r"Take one elastic.loader\(data\)"):
        elastic.on_train_start(trainer(), None)
    with pytest.raises(ValueError, match="23 samples are not enough for two steps of 12"):
        elastic.loader(range(23))
    with pytest.raises(RefusedError, match="Leave batch_size, sampler out"):
        elastic.loader(range(24), sampler=None, batch_size=3)
    with pytest.raises(RefusedError, match="range_iterator has no length"):
        elastic.loader(iter(range(24)))
    elastic.loader(range(24))
    elastic.on_fit_start(trainer(), None)
    with pytest.raises(ValueError, match="or has others: accumulate_grad_batches"):
        elastic.on_fit_start(trainer(accumulate_grad_batches=1), None)
    with pytest.raises(ValueError, match="or has others: use_distributed_sampler"):
        elastic.on_fit_start(
            trainer(_accelerator_connector=SimpleNamespace(use_distributed_sampler=True)), None
        )


@pytest.mark.parametrize("changed", [{"limit_train_batches": 0.5}, {"overfit_batches": 2}])
def test_an_epoch_has_all_its_steps(callback: Any, changed: dict[str, Any]) -> None:
    elastic = callback(batch=12, at_most=6)
    elastic.loader(range(60))
    with pytest.raises(ValueError, match="Leave limit_train_batches and overfit_batches out"):
        elastic.on_fit_start(trainer(**changed), None)


class ClipsByHand(pl.LightningModule):  # type: ignore[misc, name-defined]
    def on_after_backward(self) -> None: ...


@pytest.mark.parametrize(("module", "accumulates", "told"), [(ClipsByHand, True, 1), (ClipsByHand, False, 0)])
def test_a_hook_that_sees_gradients_of_one_rank_is_named(
    capfd: pytest.CaptureFixture[str], module: Any, accumulates: bool, told: int
) -> None:
    lightning.warn_of_parts(trainer(), module(), accumulates=accumulates)
    lightning.warn_of_parts(trainer(), pl.LightningModule(), accumulates=accumulates)
    said = "".join(capfd.readouterr())
    assert said.count("on_after_backward of ClipsByHand is called for each micro-batch") == told
    assert said.count("on_after_backward") == told


def test_what_trains_for_itself_in_between_is_refused(callback: Any) -> None:
    elastic = callback(batch=12, at_most=6)
    finder = pl.callbacks.LearningRateFinder()
    with pytest.raises(ValueError, match="LearningRateFinder would train for itself after every start"):
        elastic.setup(trainer(callbacks=[finder]), None, "fit")


def test_what_lightning_does_not_restore_is_refused(callback: Any) -> None:
    elastic = callback(batch=12, at_most=6)
    averaging = pl.callbacks.StochasticWeightAveraging(0.1)
    with pytest.raises(ValueError, match="Take WeightAveraging or EMAWeightAveraging"):
        elastic.on_fit_start(trainer(callbacks=[averaging]), None)
    with pytest.raises(ValueError, match="Leave reload_dataloaders_every_n_epochs out"):
        elastic.on_fit_start(trainer(reload_dataloaders_every_n_epochs=1), None)


def test_an_interval_of_validations_in_micro_batches_is_refused(callback: Any) -> None:
    elastic = callback(batch=12, at_most=6)
    with pytest.raises(ValueError, match=r"val_check_interval=7 counts micro-batches.* such as 0.5"):
        elastic.on_fit_start(trainer(val_check_interval=7), None)
    elastic.on_fit_start(trainer(val_check_interval=0.5), None)


def test_a_test_after_the_training_loads_any_weights(callback: Any) -> None:
    elastic = callback(batch=12)
    testing = trainer(state=SimpleNamespace(fn="test"))
    elastic.on_load_checkpoint(testing, None, {})
    elastic.on_load_checkpoint(testing, None, checkpoint(24, 1, 3, 2))
    assert elastic._resumed is None


@pytest.mark.parametrize(("steps", "is_told"), [(15, True), (10, False)])
def test_a_scheduler_for_another_number_of_steps_is_told_of(
    callback: Any, capfd: pytest.CaptureFixture[str], steps: int, *, is_told: bool
) -> None:
    elastic = callback(batch=12, at_most=6)
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
    configs = [SimpleNamespace(interval="step", frequency=1, scheduler=cycle)]
    used = trainer(
        train_dataloader=elastic.loader(range(60)), lr_scheduler_configs=configs, max_epochs=2, max_steps=-1
    )
    elastic.on_train_start(used, pl.LightningModule())
    assert ("OneCycleLR is made for 15 steps, and the training has 10" in capfd.readouterr().err) == is_told


def test_a_scheduler_that_counts_micro_batches_is_refused(callback: Any) -> None:
    def given(interval: str, frequency: int) -> Any:
        return [SimpleNamespace(interval=interval, frequency=frequency, scheduler=None)]

    elastic = callback(batch=12, at_most=6)
    own, module = elastic.loader(range(60)), pl.LightningModule()
    with pytest.raises(ValueError, match="has frequency 2, which counts micro-batches"):
        elastic.on_train_start(trainer(train_dataloader=own, lr_scheduler_configs=given("step", 2)), module)
    for harmless in (given("step", 1), given("epoch", 2)):
        elastic.on_train_start(trainer(train_dataloader=own, lr_scheduler_configs=harmless), module)


class ByHand(pl.LightningModule):  # type: ignore[misc, name-defined]
    automatic_optimization = False


@pytest.mark.parametrize(
    ("at_most", "sizes", "module", "kind", "is_refused"),
    [
        (6, (1,), pl.LightningModule, torch.optim.LBFGS, True),
        (None, (1, 2, 3), pl.LightningModule, torch.optim.LBFGS, True),
        (None, (1,), pl.LightningModule, torch.optim.LBFGS, False),
        (6, (1, 2, 3), pl.LightningModule, torch.optim.SGD, False),
        (None, (1, 2, 3), ByHand, torch.optim.LBFGS, False),
    ],
)
def test_an_optimiser_that_repeats_the_loss_is_refused_where_no_loss_is_the_steps(
    callback: Any,
    monkeypatch: pytest.MonkeyPatch,
    at_most: int | None,
    sizes: tuple[int, ...],
    module: Any,
    kind: Any,
    *,
    is_refused: bool,
) -> None:
    monkeypatch.setattr(Job, "sizes", sizes)
    elastic = callback(batch=12, at_most=at_most)
    optimizer = kind([torch.ones(1, requires_grad=True)], lr=0.1)
    used = trainer(train_dataloader=elastic.loader(range(60)), optimizers=[optimizer])
    expected = pytest.raises(RefusedError, match=r"LBFGS computes the loss several times .* BFT-430")
    with expected if is_refused else contextlib.nullcontext():
        elastic.on_train_start(used, module())


def test_without_micro_batches_an_interval_counts_steps(callback: Any) -> None:
    callback(batch=12).on_fit_start(trainer(val_check_interval=7, accumulate_grad_batches=1), None)


def test_the_training_data_has_to_be_shared_out(callback: Any) -> None:
    elastic = callback(batch=12, at_most=6)
    own = elastic.loader(range(60))
    elastic.on_train_start(trainer(train_dataloader=own), pl.LightningModule())
    for wrong in (DataLoader(range(60)), {"a": own, "b": own}):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"Take one elastic.loader\(data\)"):
            elastic.on_train_start(trainer(train_dataloader=wrong), torch.nn.Linear(1, 1))


@pytest.mark.parametrize(
    ("ends", "of"),
    [
        ({"max_epochs": 3}, 3 * 60),
        ({"max_steps": 7}, 7 * 12),
        ({"max_epochs": 3, "max_steps": 7}, 7 * 12),
        ({"max_epochs": 1, "max_steps": 7}, 60),
        ({}, None),
        ({"max_epochs": 3, "max_steps": 7, "automatic": False}, 3 * 60),  # steps of which optimiser?
    ],
)
def test_how_many_samples_there_are_in_all_is_told(
    callback: Any, monkeypatch: pytest.MonkeyPatch, ends: dict[str, Any], of: int | None
) -> None:
    told: list[int | None] = []
    monkeypatch.setattr(Job, "progress", lambda _, *, of, **about: told.append(of))
    monkeypatch.setattr(Job, "should_stop", lambda _, *, saves: False)
    elastic, module = callback(batch=12), SimpleNamespace(automatic_optimization=ends.pop("automatic", True))
    elastic.loader(range(65))
    own = {"max_epochs": -1, "max_steps": -1, "current_epoch": 0, "callback_metrics": {}, **ends}
    elastic.after_batch(trainer(**own), module, 0)
    assert told == [of]


def test_a_second_training_would_go_on_from_the_first_ones_checkpoints(callback: Any) -> None:
    callback(batch=12, at_most=6).on_fit_start(trainer(), None)
    with pytest.raises(ValueError, match=r"a second training.*Make a trainer of each"):
        callback(batch=12, at_most=6).on_fit_start(trainer(), None)


def test_random_numbers_of_the_first_steps_do_not_come_again(
    callback: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    newest = tmp_path / "step-000000000009.ckpt"
    newest.touch()
    drawn = set()
    for rank in ("0", "1", None):  # None: the first process, from step 0
        elastic = callback(batch=12, at_most=6)
        monkeypatch.setattr(attach_checkpoints, "_begun", set())
        torch.manual_seed(1)
        if rank is not None:
            monkeypatch.setenv("RANK", rank)
            elastic.on_fit_start(trainer(ckpt_path=newest), None)
        drawn.add(torch.rand(1).item())
    assert len(drawn) == 3


def test_a_data_modules_loader_that_comes_after_the_checkpoint_goes_on_as_well(callback: Any) -> None:
    elastic = callback(batch=12, at_most=12)
    elastic.on_load_checkpoint(trainer(), None, checkpoint(batch=12, micro_batches=1, epoch=1, done=2))
    assert [int(samples[0]) for samples in elastic.loader(range(60), shuffle=False)] == [24, 36, 48]


def test_data_that_is_fetched_before_the_checkpoint_is_known_is_refused(callback: Any) -> None:
    elastic = callback(batch=12, at_most=12)
    next(iter(elastic.loader(range(60))))
    with pytest.raises(ValueError, match="estimated_stepping_batches"):
        elastic.on_load_checkpoint(trainer(), None, checkpoint(batch=12, micro_batches=1, epoch=1, done=2))


def test_a_run_goes_on_at_the_step_with_the_batches_of_its_own_number_of_nodes(callback: Any) -> None:
    elastic = callback(batch=12, at_most=4)  # on one node 3 micro-batches, where there was one before
    loader = elastic.loader(range(60), shuffle=False)
    found = checkpoint(batch=12, micro_batches=1, epoch=1, done=2)
    elastic.on_load_checkpoint(trainer(), None, found)
    counts = found["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]
    assert (counts["ready"], counts["completed"]) == (6, 5)
    assert [int(samples[0]) for samples in loader] == list(range(24, 60, 4))


def test_after_whole_epochs_a_number_of_steps_is_refused(callback: Any) -> None:
    found = checkpoint(batch=12, micro_batches=1, epoch=2, done=5)
    found["loops"]["fit_loop"]["epoch_progress"]["current"]["ready"] = 2
    elastic = callback(batch=12)
    with pytest.raises(ValueError, match=r"after all of 2 epochs.* Give max_epochs alone"):
        elastic.on_load_checkpoint(trainer(max_steps=30), None, found)
    elastic.on_load_checkpoint(trainer(max_steps=-1), None, found)


@pytest.mark.parametrize("found", [checkpoint(batch=6, micro_batches=1, epoch=0, done=1), {}])
def test_a_checkpoint_of_another_batch_is_refused(callback: Any, found: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"samples a step, and this run has 12\. Keep the batch"):
        callback(batch=12).on_load_checkpoint(trainer(), None, found)


def test_the_newest_whole_checkpoint_counts_and_the_script_has_to_take_it(
    callback: Any, tmp_path: Path
) -> None:
    assert callback(batch=12).checkpoint is None
    for name in ("step-000000000009.ckpt", "step-000000000010.ckpt", "step-000000000011.partial.ckpt"):
        (tmp_path / name).touch()
    elastic = callback(batch=12, at_most=6)
    assert elastic.checkpoint == str(tmp_path / "step-000000000010.ckpt")
    assert not (tmp_path / "step-000000000011.partial.ckpt").exists()
    elastic.loader(range(60))
    with pytest.raises(ValueError, match=r"ckpt_path=elastic.checkpoint"):
        elastic.on_fit_start(trainer(), None)


def test_without_the_library_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.delitem(sys.modules, "bftrainer.elastic.frameworks.lightning.callback")
    with pytest.raises(ImportError, match="pip install lightning"):
        importlib.import_module("bftrainer.elastic.frameworks.lightning.callback")


def test_what_of_a_module_a_restart_would_lose_is_refused(callback: Any) -> None:
    class Module(pl.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(1, 1)

    elastic, module = callback(batch=12), Module()
    loader = elastic.loader(range(60))
    elastic.on_train_start(trainer(train_dataloader=loader), module)
    module.linear.bias.requires_grad = False
    with pytest.raises(ValueError, match=r"linear\.bias and 0 more parameters or layers were frozen"):
        elastic.after_batch(trainer(), module, 0)


@pytest.mark.parametrize(
    ("at_most", "part", "told"), [(6, 0.5, "such as 2/5"), (6, 0.4, ""), (None, 0.5, ""), (6, 1.0, "")]
)
def test_validations_after_other_steps_on_other_nodes_are_told_of(
    callback: Any, capsys: pytest.CaptureFixture[str], at_most: int | None, part: float, told: str
) -> None:
    elastic = callback(batch=12, at_most=at_most)
    own = elastic.loader(range(60))
    elastic.on_train_start(trainer(train_dataloader=own, val_check_interval=part), pl.LightningModule())
    said = capsys.readouterr().err
    assert told in said and ("val_check_interval" in said) == bool(told)


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        ({"save_last": True}, True),
        ({"save_last": True, "dirpath": "own"}, False),
        ({"save_last": True, "enable_version_counter": False}, False),
        ({}, False),
    ],
)
def test_a_last_checkpoint_that_is_an_old_one_is_told_of(
    callback: Any, capsys: pytest.CaptureFixture[str], options: dict[str, Any], is_told: bool
) -> None:
    elastic = callback(batch=12)
    own = elastic.loader(range(60))
    options |= {"dirpath": Path.cwd() / "best"} if "dirpath" in options else {}  # by hand: the own folder
    saving = [pl.callbacks.ModelCheckpoint(**options)]
    elastic.on_train_start(trainer(train_dataloader=own, checkpoint_callbacks=saving), pl.LightningModule())
    assert ("last-v1.ckpt" in capsys.readouterr().err) == is_told


@pytest.fixture
def default_group() -> Iterator[None]:
    """PyTorch's default group, of this process alone."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("default_group")
@pytest.mark.parametrize("unused", [True, False])
def test_a_step_whose_gradients_were_not_averaged_is_refused(unused: bool) -> None:
    refused = importlib.import_module("bftrainer.elastic.frameworks.lightning.arguments")
    module = torch.nn.ModuleDict({"used": torch.nn.Linear(1, 1), "unused": torch.nn.Linear(1, 1)})
    module["unused"].requires_grad_(unused)
    wrapped = torch.nn.parallel.DistributedDataParallel(Through(module))
    wrapped(torch.ones(1, 1)).sum().backward()
    told = r"as 2 parameters got none \(unused.weight, unused.bias\).*ddp_find_unused_parameters_true"
    with pytest.raises(ValueError, match=told) if unused else contextlib.nullcontext():
        refused.check_averaged(wrapped, module)


class Through(torch.nn.Module):
    """Uses one of its layers."""

    def __init__(self, layers: torch.nn.ModuleDict) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of one layer."""
        out: torch.Tensor = self.layers["used"](x)
        return out


def test_a_folder_that_is_another_after_every_start_is_told_of(
    callback: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    elastic = callback(batch=12)
    own = elastic.loader(range(60))
    saving = [pl.callbacks.ModelCheckpoint(dirpath="lightning_logs/version_0/checkpoints")]
    elastic.on_train_start(trainer(train_dataloader=own, checkpoint_callbacks=saving), pl.LightningModule())
    assert "which is another folder after every start" in capsys.readouterr().err
