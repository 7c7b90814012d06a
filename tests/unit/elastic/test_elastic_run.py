"""`elastic.Run` by hand, in this process: what scripts may combine, and what a wrong one is told."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

from bftrainer import elastic
from bftrainer.elastic.process.rng import reseed
from bftrainer.elastic.train import overlapped
from bftrainer.elastic.train.modes import least_of
from tests.support.ddp_of_pytorch import needs_ddp

LENGTH = 23


class Numbers(Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.tensor([float(i)])


class Endless(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[int]:
        yield 1


def run(data: Any = None, **options: Any) -> elastic.Run:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return elastic.Run(model, optimizer, data if data is not None else Numbers(), **options)


def seen(run: elastic.Run) -> list[list[int]]:
    batches = []
    for x in run:
        batches.append([int(i) for i in x.flatten()])
        run.backward(run.model(x).sum())
        run.step()
    return batches


def loader(**options: Any) -> DataLoader[Any]:
    return DataLoader(Numbers(), batch_size=5, **options)


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (Endless(), {}, "Give batch_size, .*BFT-156"),
        (DataLoader(Endless(), batch_size=None), {}, "batch_size=None.*BFT-159"),
        (Numbers(), {}, "Give batch_size, .*BFT-156"),
        (Numbers(), {"batch_size": 0}, "below 1: 0.*BFT-156"),
        (TensorDataset(torch.empty(0)), {"batch_size": 1}, "empty"),
        (loader(), {"batch_size": 6}, "batch_size=6 .*DataLoader has 5.*BFT-154"),
        (DataLoader(Numbers(), batch_size=LENGTH + 1, drop_last=True), {}, "drop_last leaves none"),
        (Numbers(), {"batch_size": 5, "least_per_worker": 6}, "Give 1 to 5 .*BFT-147"),
        (DataLoader(Numbers(), batch_size=None), {}, "batch_sampler"),
        (DataLoader(Numbers(), batch_sampler=[[1, 2], [3]]), {}, "batch_sampler"),
        (loader(sampler=WeightedRandomSampler([1.0] * LENGTH, LENGTH)), {}, "Leave sampler out .*BFT-160"),
        (Numbers(), {"batch_size": 5, "accumulate": 0}, "accumulate=0 .*at least 1 .*BFT-167"),
        (Numbers(), {"batch_size": 5, "accumulate": 2, "policy": elastic.FixedGlobal(5)}, "with a policy"),
        (Numbers(), {"batch_size": 5, "ddp": True, "average": False}, "average=False, .*BFT-145"),
    ],
)
def test_wrong_combinations_say_what_to_give(data: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        run(data, **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_is_taken_over(workers: int) -> None:
    batches = seen(run(loader(num_workers=workers), epochs=2))
    assert batches == [[*range(a, min(a + 5, LENGTH))] for a in range(0, LENGTH, 5)] * 2, "in order"
    shuffled = seen(run(loader(num_workers=workers, shuffle=True), epochs=1))
    assert [len(b) for b in shuffled] == [5, 5, 5, 5, 3]
    order = [i for batch in shuffled for i in batch]
    assert sorted(order) == [*range(LENGTH)] != order


@pytest.mark.parametrize("workers", [0, 2])
def test_drop_last_leaves_out_what_is_no_whole_batch(workers: int) -> None:
    epochs = seen(run(loader(num_workers=workers, drop_last=True), epochs=2))
    assert epochs == [[*range(a, a + 5)] for a in range(0, 20, 5)] * 2
    shuffled = seen(run(loader(num_workers=workers, drop_last=True, shuffle=True), epochs=8))
    passes = [{i for batch in shuffled[a : a + 4] for i in batch} for a in range(0, 32, 4)]
    assert {len(each) for each in passes} == {20} and len({*map(frozenset, passes)}) > 1
    assert set().union(*passes) == {*range(LENGTH)}, "each epoch leaves out others"


def test_memory_is_pinned_where_there_is_an_accelerator_alone() -> None:
    batches = seen(run(loader(pin_memory=True), epochs=1))  # PyTorch's own loader goes on, too
    assert sorted(i for batch in batches for i in batch) == [*range(LENGTH)]


@pytest.mark.parametrize(
    ("model", "batch_size", "least"),
    [
        (torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1)), 5, 2),
        (torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1)), 1, 1),
        (torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.BatchNorm1d(1).eval()), 5, 1),
        (torch.nn.Linear(1, 1), 5, 1),
    ],
)
def test_batch_normalisation_needs_two_samples(model: torch.nn.Module, batch_size: int, least: int) -> None:
    assert least_of({"": model}, None, batch_size) == least
    assert least_of({"": model}, 1, batch_size) == 1, "the script may say otherwise"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"find_unused_parameters": False}, "arranges its buckets anew.*Leave it out.*BFT-141"),
        ({"static_graph": True}, "arranges its buckets anew"),
        ({"init_sync": True}, "get their weights from the run"),
        ({"process_group": "gloo"}, "a group of its own"),
        ({"bucket_cap": 50}, "no option 'bucket_cap'.*: .*bucket_cap_mb.*BFT-142"),
        ({"module": None}, "no option 'module'"),
    ],
)
def test_options_of_ddp_that_the_run_sets_are_refused_with_the_reason(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        run(batch_size=5, ddp=options)


def test_a_pytorch_whose_ddp_meets_its_group_at_once_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Older:
        def __init__(self, module: Any, process_group: Any, find_unused_parameters: bool, static_graph: bool):
            raise AssertionError("it would wait for ever")

    monkeypatch.setattr(overlapped, "DistributedDataParallel", Older)
    with pytest.raises(RuntimeError, match="ddp needs PyTorch"):
        run(batch_size=5, ddp=True)


@needs_ddp
def test_options_of_ddp_that_are_as_the_run_has_them_do_no_harm() -> None:
    own = {"find_unused_parameters": True, "static_graph": False, "process_group": None}
    trained = run(batch_size=5, ddp={**own, "gradient_as_bucket_view": True, "bucket_cap_mb": 1})
    assert len(seen(trained)) == 5


def test_steps_are_taken_after_the_last_micro_batch() -> None:
    trained = run(batch_size=5, accumulate=2)
    model, found = trained.model, []
    for x in trained:
        before = model.weight.clone()
        accumulating = trained.accumulating
        trained.backward(trained.model(x).sum())
        taken = trained.step()
        assert taken is not accumulating is bool(before.equal(model.weight))
        found.append((len(x), taken))
    assert found == [(5, False), (5, True), (5, False), (5, True), (3, True)]


def test_mistakes_with_micro_batches_are_told() -> None:
    trained = run(batch_size=5, accumulate=2)
    for x in trained:
        trained.model(x).sum().backward()
        with pytest.raises(RuntimeError, match=r"run\.backward"):
            trained.step()
        break
    trained = run(batch_size=5, accumulate=2)
    with pytest.raises(RuntimeError, match="zero_grad"):
        for x in trained:
            trained.model.zero_grad()
            trained.backward(trained.model(x).sum())
            trained.step()


def test_steps_are_asked_for_once_per_batch() -> None:
    trained = run(batch_size=5)
    with pytest.raises(RuntimeError, match="once per batch"):
        trained.step()
    with pytest.raises(RuntimeError, match=r"without run\.step"):
        list(trained)


def test_collectives_work_alone_and_errors_in_them_come_up() -> None:
    trained = run(batch_size=5, average=False)
    for x in trained:
        with trained.together():
            dist.all_reduce(x)
        with pytest.raises(RuntimeError, match="mine"), trained.together():
            raise RuntimeError("mine")
        trained.backward(trained.model(x).sum())
        trained.step()
    assert not dist.is_initialized()


def test_a_default_group_of_the_script_is_refused() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(RuntimeError, match=r"Leave init_process_group out: .*BFT-122"):
            seen(run(batch_size=5))
    finally:
        dist.destroy_process_group()


def test_random_numbers_follow_seed_step_and_rank() -> None:
    def drawn(seed: int, step: int, rank: int) -> tuple[float, float, float]:
        reseed(seed, step, rank)
        return torch.rand(1).item(), float(np.random.random()), random.random()

    all_of_them = [drawn(s, t, r) for s in (0, 1) for t in (0, 10) for r in (0, 1)]
    assert len({x for numbers in all_of_them for x in numbers}) == 24
    assert drawn(1, 10, 1) == all_of_them[-1]
