"""What the callback for Hugging Face's Trainer refuses, and which checkpoints it goes on from."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler, SequentialSampler

from bftrainer.elastic.attach import checkpoints as attach_checkpoints
from bftrainer.elastic.attach.job import Job

pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")
huggingface = importlib.import_module("bftrainer.elastic.frameworks.huggingface.callback")
checkpoints = importlib.import_module("bftrainer.elastic.frameworks.huggingface.checkpoints")


@pytest.fixture
def callback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Of a process that a spec lets run on 1 to 3 nodes."""
    job = Job(None, tmp_path)
    monkeypatch.setattr(Job, "nodes", (1, 3))
    monkeypatch.setattr(job, "listen_for_sigterm", lambda: None)
    monkeypatch.setattr(huggingface, "attach", lambda folder: job)
    return huggingface.ElasticCallback


def begin(
    callback: Any,
    *,
    step: int = 0,
    most: int = 70,
    length: int = 60,
    model: Any = None,
    loader: Any = None,
    **changed: Any,
) -> None:
    """As the Trainer begins, with these arguments."""
    args = {
        "output_dir": callback.output_dir,
        "per_device_train_batch_size": 12,
        "gradient_accumulation_steps": 1,
        "accelerator_config": SimpleNamespace(split_batches=False),
        "dataloader_drop_last": False,
        "train_sampling_strategy": "random",
        "save_only_model": False,
        "save_total_limit": None,
        "ignore_data_skip": False,
        "auto_find_batch_size": False,
        "restore_callback_states_from_checkpoint": True,
        **changed,
    }
    loader = loader or SimpleNamespace(dataset=range(length))
    state = SimpleNamespace(global_step=step, max_steps=most, epoch=1.4)
    callback.on_train_begin(SimpleNamespace(**args), state, None, train_dataloader=loader, model=model)


def saved(folder: Path, step: int, *, batch: int = 12, ours: bool = True, whole: bool = True) -> Path:
    """A checkpoint of the Trainer."""
    path = folder / f"checkpoint-{step}"
    path.mkdir()
    safetensors_torch.save_file({"weight": torch.zeros(1)}, path / "model.safetensors")
    if whole:
        (path / checkpoints.WHOLE).write_text(json.dumps({"global_batch": batch, "ours": ours}))
    return path


def test_figures_that_are_not_averaged_over_all_tokens_are_refused(callback: Any) -> None:
    elastic = callback()
    elastic.batch(12)
    with pytest.raises(ValueError, match="average_tokens_across_devices=False"):
        begin(elastic, average_tokens_across_devices=False)


def test_a_loader_of_the_scripts_own_that_no_rank_shares_is_refused(callback: Any) -> None:
    elastic = callback()
    elastic.batch(12)
    with pytest.raises(ValueError, match=r"Return self\.accelerator\.prepare\(loader\)"):
        begin(elastic, loader=DataLoader(range(60), batch_size=12))  # type: ignore[arg-type]


def test_a_sampler_whose_order_nothing_gives_back_is_refused(
    callback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(Sampler[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(60))

    class Told(Own):
        def set_epoch(self, epoch: int) -> None:
            pass

    elastic = callback()
    elastic.batch(12)

    def loader(sampler: object) -> SimpleNamespace:
        return SimpleNamespace(dataset=range(60), batch_sampler=SimpleNamespace(sampler=sampler))

    for wrong in (Own(), RandomSampler(range(60))):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="has no set_epoch, so it draws another order"):
            begin(elastic, loader=loader(wrong))
    for right in (Told(), SequentialSampler(range(60)), None):  # type: ignore[arg-type]
        monkeypatch.setattr(attach_checkpoints, "_begun", set())
        begin(elastic, loader=loader(right))


def test_a_start_at_the_very_end_takes_no_step(callback: Any) -> None:
    elastic, model = callback(), torch.nn.Linear(1, 1)
    elastic.batch(12)
    model(torch.ones(1, 1)).sum().backward()
    before = SimpleNamespace(global_step=6, max_steps=7, epoch=1.2)
    elastic.on_pre_optimizer_step(None, before, None, model=model)
    assert model.weight.grad is not None, "the last step is one"
    saved(Path(elastic.output_dir), 7)
    elastic = callback()
    elastic.batch(12)
    begin(elastic, step=7, most=7)
    after = SimpleNamespace(global_step=7, max_steps=7, epoch=1.4)
    elastic.on_pre_optimizer_step(None, after, None, model=model)
    assert model.weight.grad is None
    after.global_step, after.epoch = 8, 1.6
    control = SimpleNamespace(should_save=False, should_log=True)
    elastic.on_step_end(
        None, after, control, model=model, train_dataloader=SimpleNamespace(dataset=range(60))
    )
    assert not control.should_log and control.should_training_stop
    assert (after.global_step, after.epoch) == (7, 1.4)


def test_layers_that_are_unfrozen_while_a_script_trains_are_refused(callback: Any) -> None:
    elastic, model = callback(), torch.nn.Linear(1, 1)
    elastic.batch(12)
    model.bias.requires_grad = False
    begin(elastic, model=model)
    state = SimpleNamespace(global_step=1, epoch=0.2, max_steps=10)
    loader = SimpleNamespace(dataset=range(60))
    elastic.on_step_end(None, state, SimpleNamespace(should_save=False), model=model, train_dataloader=loader)
    model.bias.requires_grad = True
    with pytest.raises(ValueError, match=r"bias and 0 more parameters or layers were frozen or unfrozen"):
        elastic.on_step_end(None, state, None, model=model, train_dataloader=loader)


@pytest.mark.parametrize(("length", "steps", "of"), [(60, 10, 120), (57, 10, 114), (57, 7, 57 + 24)])
def test_how_many_samples_there_are_in_all_is_told(
    callback: Any, monkeypatch: pytest.MonkeyPatch, length: int, steps: int, of: int
) -> None:
    told: list[int] = []
    monkeypatch.setattr(Job, "progress", lambda _, *, of, **about: told.append(of))
    elastic = callback()
    elastic.batch(12)
    begin(elastic, length=length)
    state = SimpleNamespace(global_step=1, epoch=0.2, max_steps=steps)
    control, loader = SimpleNamespace(should_save=False), SimpleNamespace(dataset=range(length))
    elastic.on_step_end(None, state, control, model=None, train_dataloader=loader)
    assert told == [of]


def test_a_batch_that_follows_the_nodes_is_refused(callback: Any) -> None:
    elastic = callback()
    with pytest.raises(ValueError, match=r"elastic\.batch\(12\).*BFT-318"):
        begin(elastic)
    assert elastic.batch(12, at_most=6) == {
        "per_device_train_batch_size": 6,
        "gradient_accumulation_steps": 2,
    }
    begin(elastic)
    with pytest.raises(ValueError, match="BFT-318"):
        begin(elastic, gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match=r"or take 18 .*BFT-215"):
        elastic.batch(16)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dataloader_drop_last": True, "length": 61}, "leave 1 samples out yourself"),
        ({"train_sampling_strategy": "group_by_length"}, "samples in groups of a length"),
        ({"save_only_model": True}, "Leave save_only_model out"),
        ({"save_total_limit": 1}, "save_total_limit 2 or more"),
        ({"enable_jit_checkpoint": True}, "Leave enable_jit_checkpoint out"),
        ({"ignore_data_skip": True}, "Leave ignore_data_skip and"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size out"),
        ({"accelerator_config": SimpleNamespace(split_batches=True)}, "split_batches each node"),
        (
            {"accelerator_config": SimpleNamespace(split_batches=False, dispatch_batches=True)},
            "Leave it out of accelerator_config",
        ),
        (
            {
                "accelerator_config": SimpleNamespace(split_batches=False, even_batches=False),
                "length": 61,
            },
            "BFT-305",
        ),
        ({"restore_callback_states_from_checkpoint": False}, r"Trainer\(..., callbacks=\[elastic\]\)"),
        ({"output_dir": "elsewhere"}, r"output_dir=elastic.output_dir"),
    ],
)
def test_arguments_that_would_go_wrong_are_refused(callback: Any, changed: dict[str, Any], said: str) -> None:
    elastic = callback()
    elastic.batch(12)
    begin(elastic)
    with pytest.raises(ValueError, match=said):
        begin(elastic, **changed)


@pytest.mark.parametrize(("length", "told"), [(60, False), (61, True)])
def test_epochs_that_hugging_face_fills_up_on_several_nodes_are_told_of(
    callback: Any, capfd: pytest.CaptureFixture[str], length: int, told: bool
) -> None:
    elastic = callback()
    elastic.batch(12)
    begin(elastic, length=length)
    assert ("has 1 samples, not 12, and Hugging Face fills it up" in "".join(capfd.readouterr())) == told


class Stream(IterableDataset[int]):
    """Tells its workers the epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Take it."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(60))


Sharded = type("Sharded", (Stream,), {"__module__": "datasets.iterable_dataset"})


@pytest.mark.parametrize(
    ("data", "changed", "said"),
    [
        (Stream(), {"dataloader_num_workers": 2}, "Give dataloader_num_workers 1 or 0"),
        (Stream(), {"dataloader_persistent_workers": True}, "Leave dataloader_persistent_workers out"),
        (
            Sharded(),
            {"accelerator_config": SimpleNamespace(split_batches=False, dispatch_batches=False)},
            "shards of its own",
        ),
        (range(60), {"dataloader_in_order": False, "dataloader_num_workers": 2}, "as they are ready"),
    ],
)
def test_worker_processes_that_change_an_order_are_refused(
    callback: Any, data: Any, changed: dict[str, Any], said: str
) -> None:
    elastic = callback()
    elastic.batch(12)
    loader = SimpleNamespace(dataset=data)
    begin(elastic, loader=loader, dataloader_num_workers=1)
    with pytest.raises(ValueError, match=said):
        begin(elastic, loader=loader, **changed)


def test_a_second_training_would_go_on_from_the_first_ones_checkpoints(callback: Any) -> None:
    for elastic, begins in ((callback(), True), (callback(), False)):
        elastic.batch(12)
        if begins:
            begin(elastic)
        else:
            with pytest.raises(ValueError, match=r"a second training.*Make a trainer of each"):
                begin(elastic)


def test_callbacks_are_restored_as_well(callback: Any) -> None:
    args = SimpleNamespace(restore_callback_states_from_checkpoint=False)
    callback().on_init_end(args, None, None)
    assert args.restore_callback_states_from_checkpoint


def test_a_stream_that_ends_before_the_training_is_an_error(callback: Any) -> None:
    elastic = callback()

    def end(step: int, dataset: Any, *, stops: bool = False) -> None:
        elastic.on_epoch_end(
            None,
            SimpleNamespace(global_step=step, max_steps=70),
            SimpleNamespace(should_training_stop=stops, should_save=False),
            train_dataloader=SimpleNamespace(dataset=dataset),
        )

    end(20, range(240))
    end(70, iter(range(240)))
    end(20, iter(range(240)), stops=True)
    with pytest.raises(ValueError, match=r"ended after step 20 of 70.*begin again by itself"):
        end(20, iter(range(240)))


def test_random_numbers_of_the_first_steps_do_not_come_again(
    callback: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn = set()
    for step in (10, 15, None):  # None: the first process, from step 0
        elastic = callback()
        elastic.batch(12)
        monkeypatch.setattr(attach_checkpoints, "_begun", set())
        torch.manual_seed(1)
        if step is not None:
            saved(tmp_path, step)
            elastic = callback()
            elastic.batch(12)
            begin(elastic, step=step)
        drawn.add(torch.rand(1).item())
    assert len(drawn) == 3


def test_the_newest_whole_checkpoint_counts_and_half_ones_are_removed(
    callback: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "trainer", "1-a-m")
    assert callback().checkpoint is None
    for step in (5, 10):
        saved(tmp_path, step)
    saved(tmp_path, 20, whole=False)
    assert callback().checkpoint == str(tmp_path / "checkpoint-10")
    assert not (tmp_path / "checkpoint-20").exists()


def test_checkpoints_of_a_training_without_the_callback_stay(
    callback: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a `checkpoint.dir` in which a user has trained before, or to which another user's link leads."""
    before = saved(tmp_path, 500, whole=False)
    for trainer, half in (("", 1), ("1-a-m", 2), ("1-a-m", 3), ("2-a-m", 4), ("2-a-m", 5)):
        monkeypatch.setattr(Job, "trainer", trainer)
        assert callback().checkpoint is None
        saved(tmp_path, half, whole=False)
    assert before.is_dir() and {path.name for path in tmp_path.glob("checkpoint-?")} == {
        *("checkpoint-1", "checkpoint-3", "checkpoint-5")
    }
    (tmp_path / checkpoints.OTHERS).unlink()
    os.mkfifo(tmp_path / checkpoints.OTHERS)
    assert callback().checkpoint is None and before.is_dir()


def test_a_checkpoint_that_the_script_does_not_resume_from_is_an_error(callback: Any, tmp_path: Path) -> None:
    saved(tmp_path, 10)
    elastic = callback()
    elastic.batch(12)
    begin(elastic, step=10)
    with pytest.raises(ValueError, match=r"resume_from_checkpoint=elastic.checkpoint"):
        begin(elastic)


def test_a_checkpoint_of_another_batch_is_an_error(callback: Any, tmp_path: Path) -> None:
    saved(tmp_path, 10, batch=6)
    elastic = callback()
    elastic.batch(12)
    with pytest.raises(ValueError, match="written with 6 samples a step, and this run has 12"):
        begin(elastic, step=10)


def test_only_its_own_older_checkpoints_are_removed(callback: Any, tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        saved(tmp_path, step, ours=step != 1)
    checkpoints.prune(tmp_path, best=None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-1",
        "checkpoint-3",
        "checkpoint-4",
    ]


def test_without_the_library_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "bftrainer.elastic.frameworks.huggingface.callback")
    with pytest.raises(ImportError, match="pip install transformers accelerate"):
        importlib.import_module("bftrainer.elastic.frameworks.huggingface.callback")
