"""The worker of gpu.py: gpu_worker.py PARAMETERS BATCH [--ddp], or with --plain under plain torchrun."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.utils.data import TensorDataset

LAYERS = 4
TOGETHER = 20
"""Steps after which the CPU waits for the GPU, under either: it may run ahead otherwise."""


def model_of(parameters: int, batch: int, device: torch.device) -> tuple[torch.nn.Module, torch.Tensor]:
    """Return a network of about `parameters` on the device, and a batch for it on the CPU."""
    torch.manual_seed(0)
    width = max(1, int((parameters / LAYERS) ** 0.5))
    layers = [
        part for _ in range(LAYERS) for part in (torch.nn.Linear(width, width, bias=False), torch.nn.ReLU())
    ]
    return torch.nn.Sequential(*layers).to(device), torch.randn(batch, width)


def as_a_machine_of_its_own(name: str) -> None:
    """Let several processes share one GPU: NCCL refuses two of one machine on it."""
    if os.environ.get("BENCHMARK_SHARES_GPU"):
        os.environ["NCCL_HOSTID"] = name


def noting(host: str) -> Callable[..., None]:
    """Return a function that notes a step, with its time, the number of nodes, and other whole numbers."""
    steps = Path(os.environ["BENCHMARK_WHERE"], f"{host}.steps")

    def note(size: int, *more: int) -> None:
        with steps.open("a") as out:
            out.write(" ".join([f"{time.time():.4f}", *map(str, (size, *more)), ";\n"]))

    return note


def elastic_run(parameters: int, batch: int, *, ddp: bool) -> None:
    """Train under bftrainer until it is ended."""
    from bftrainer import elastic

    node = json.loads(os.environ["BFTRAINER_WORKER"])["node"]
    as_a_machine_of_its_own(node)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, x = model_of(parameters, batch, device)
    note = noting(node)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    data = TensorDataset(torch.arange(1 << 20))
    x = x.to(device)
    run = elastic.Run(model, optimizer, data, batch_size=batch, epochs=1 << 30, ddp=ddp)
    for step, _ in enumerate(run):
        run.backward(run.model(x).square().mean())
        run.step()
        if step % TOGETHER == 0 and device.type == "cuda":
            torch.cuda.synchronize()
        if run.local_rank == 0:
            note(run.size // run.local_size, run.position.step)


def plain_run(parameters: int, batch: int) -> None:
    """Train under torchrun with DistributedDataParallel until it is killed."""
    from torch import distributed
    from torch.utils.data import DataLoader, DistributedSampler

    cuda = torch.cuda.is_available()
    as_a_machine_of_its_own(os.environ["RANK"])
    own = int(os.environ["LOCAL_RANK"]) % max(1, torch.cuda.device_count())
    device = torch.device("cuda", own) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if cuda else "gloo")
    model, x = model_of(parameters, batch, device)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=1e-3, momentum=0.9)
    note, x = noting("plain"), x.to(device)
    data = TensorDataset(torch.arange(1 << 20))
    for step, _ in enumerate(DataLoader(data, batch_size=batch, sampler=DistributedSampler(data))):
        optimizer.zero_grad()
        parallel(x).square().mean().backward()
        optimizer.step()
        if step % TOGETHER == 0 and cuda:
            torch.cuda.synchronize()
        if distributed.get_rank() == 0:
            note(1)


if __name__ == "__main__":
    if "--plain" in sys.argv:
        plain_run(int(sys.argv[1]), int(sys.argv[2]))
    else:
        elastic_run(int(sys.argv[1]), int(sys.argv[2]), ddp="--ddp" in sys.argv)
