"""Ranks on a store of their test, which train in many ways: each case writes down what is warned of.

`python ranks_apart.py FOLDER CASE...`, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, TensorDataset

from bftrainer.elastic.checks import replicas
from bftrainer.elastic.process import warnings

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def network(seed: int = 0, width: int = 8) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any = None) -> None:
    optimizer.zero_grad()
    x = torch.randn(16, 4) if batch is None else batch
    (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
    optimizer.step()


def trained(
    model: nn.Module,
    steps: int = 40,
    after: Callable[[int], None] = lambda number: None,
    make: Any = torch.optim.SGD,
    **options: Any,
) -> None:
    optimizer = make(model.parameters(), **{"lr": 0.01, **options})
    torch.manual_seed(100 + RANK)  # each rank has its own samples
    for number in range(1, steps + 1):
        step(model, optimizer)
        after(number)


def ddp() -> None:
    trained(DistributedDataParallel(network()), make=torch.optim.AdamW)


def gradients_by_hand() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(100 + RANK)
    for _ in range(40):
        optimizer.zero_grad()
        x = torch.randn(16, 4)
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        for p in model.parameters():
            assert p.grad is not None
            dist.all_reduce(p.grad)
            p.grad /= SIZE
        optimizer.step()


def never() -> None:
    trained(network())


def never_with_other_starts() -> None:
    trained(network(seed=RANK))


def never_with_a_small_rate() -> None:
    trained(network(), 200, make=torch.optim.AdamW, lr=2e-5)


def never_for_few_steps() -> None:
    trained(network(), 8)


def never_in_one_of_two() -> None:
    trained(DistributedDataParallel(network()), 4)
    trained(network())


def local_sgd(every: int, steps: int) -> None:
    model = network()

    def average(number: int) -> None:
        if number % every == 0:
            average_parameters(model.parameters(), dist.group.WORLD)

    trained(model, steps, average)


def averaged_every_step() -> None:
    local_sgd(1, 40)


def averaged_every_8() -> None:
    local_sgd(8, 40)


def averaged_every_50() -> None:
    """Warned of after the first window, and taken back."""
    local_sgd(50, 140)


def zero_redundancy() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)), nn.Linear(4, 1)))
    trained(model, make=ZeroRedundancyOptimizer, optimizer_class=torch.optim.Adam)


def sharded() -> None:
    from torch.distributed.fsdp import fully_shard

    model = network()
    fully_shard(model)
    trained(model)


def sharded_flat(use_orig_params: bool) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    trained(
        FullyShardedDataParallel(network(), use_orig_params=use_orig_params, device_id=torch.device("cpu"))
    )


def sharded_1() -> None:
    sharded_flat(use_orig_params=False)


def sharded_1_as_they_were() -> None:
    sharded_flat(use_orig_params=True)


def parts_of_a_pipeline() -> None:
    """Ranks have layers of other shapes."""
    trained(network(width=8 + RANK))


def adversaries() -> None:
    pair = [DistributedDataParallel(network(seed)) for seed in (0, 1)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in pair]
    torch.manual_seed(100 + RANK)
    for number in range(60):
        step(pair[0], optimizers[0])
        if number % 3 == 0:
            step(pair[1], optimizers[1])


def half_precision() -> None:
    model = DistributedDataParallel(network().to(torch.bfloat16))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    torch.manual_seed(100 + RANK)
    for _ in range(40):
        step(model, optimizer, torch.randn(16, 4).to(torch.bfloat16))


class Drawn(Dataset[Any]):
    """Nothing is known of its content but by asking for it."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), float(index))


def loaded(loader: Any) -> None:
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for _ in range(10):
        for batch in loader:
            step(model, optimizer, batch[0] if isinstance(batch, list) else batch)


POINTS = TensorDataset(torch.arange(256.0).reshape(64, 4))


def all_data_on_each() -> None:
    loaded(DataLoader(POINTS, batch_size=16, shuffle=True))


def shared_data() -> None:
    loaded(DataLoader(POINTS, batch_size=16, sampler=DistributedSampler(POINTS)))


def split_anew() -> None:
    drawn = torch.randperm(len(POINTS), generator=torch.Generator().manual_seed(RANK)).tolist()
    own = Subset(POINTS, drawn[:64])
    loaded(DataLoader(own, batch_size=16, sampler=DistributedSampler(own)))


def own_shares() -> None:
    own = TensorDataset(POINTS.tensors[0][RANK::SIZE])
    loaded(DataLoader(own, batch_size=16, shuffle=True))


def unknown_data() -> None:
    loaded(DataLoader(Drawn(), batch_size=16))


def main() -> None:
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    for case in sys.argv[2:]:
        replicas._watched = None
        replicas.watch()
        warnings._last.clear()
        before: list[list[str]] = []
        watched = replicas._watched
        assert watched is not None
        watched._tell = lambda before=before: before.append(warnings.last())
        globals()[case]()
        dist.barrier()
        replicas.look()
        (folder / f"{case}.{RANK}").write_text(json.dumps({"told": before, "last": warnings.last()}))
        dist.barrier()
        watched.end()
        if RANK == 0:
            for rank in range(SIZE):
                replicas._store().delete_key(replicas._key(rank))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
