"""A script of gpu_faults.py whose result does not depend on the nodes: gpu_exact.py WIDTH [--ddp] [--amp].

Under bftrainer it trains until the folder of the benchmark has a file `stop`; by hand `--steps N`. Its last
word is the file --out NAME there: the weights, and how far they have moved. It notes with each step its
number and the MB of memory that this process has, on the GPU and all of it.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import torch
from gpu_worker import as_a_machine_of_its_own, noting
from torch import nn
from torch.utils.data import TensorDataset

from bftrainer import elastic

ROWS, BATCH = 4096, 64


def network(width: int, dtype: torch.dtype) -> nn.Module:
    """Smooth, so that what rounding changes does not grow."""
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(width, 8)).to(dtype)


def memory_mb() -> tuple[int, int]:
    """Return PyTorch's reserved memory on the GPU, and the process's main memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    on_gpu = torch.cuda.memory_reserved() if torch.cuda.is_available() else 0
    return on_gpu >> 20, pages * os.sysconf("SC_PAGE_SIZE") >> 20


def main() -> None:
    """Train, and write down the weights."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("width", type=int)
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--amp", action="store_true")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--out", default="weights")
    options = parser.parse_args()
    where = Path(os.environ["BENCHMARK_WHERE"])
    node = json.loads(os.environ.get("BFTRAINER_WORKER", '{"node": "by hand"}'))["node"]
    as_a_machine_of_its_own(node)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.float32 if options.amp else torch.float64
    model = network(options.width, dtype).to(device)
    first = nn.utils.parameters_to_vector(model.parameters()).detach().cpu()
    drawn = torch.Generator().manual_seed(1)
    data = TensorDataset(
        *(torch.randn(ROWS, size, generator=drawn, dtype=dtype) for size in (options.width, 8))
    )
    sgd = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type) if options.amp else None
    half = torch.float16 if device.type == "cuda" else torch.bfloat16
    run = elastic.Run(
        model,
        sgd,
        data,
        batch_size=BATCH,
        policy=elastic.FixedGlobal(BATCH),
        epochs=1 << 20,
        ddp=options.ddp,
        scaler=scaler,
    )
    note = noting(node)
    for x, y in run:
        with torch.autocast(device.type, half, enabled=options.amp):
            found = run.model(x.to(device))
        run.backward(nn.functional.mse_loss(found.to(dtype), y.to(device)))
        run.step()
        note(run.size // run.local_size, run.position.step, *memory_mb())
        last = run.position.step == options.steps
        if last or (options.steps is None and (where / "stop").exists()):
            run.stop()
    if run.rank == 0:
        weights = nn.utils.parameters_to_vector(model.parameters()).detach().cpu()
        moved = (weights - first).norm().item()
        new = where / f"{options.out}.new"
        torch.save({"step": run.position.step, "weights": weights, "moved": moved}, new)
        new.rename(where / options.out)


if __name__ == "__main__":
    main()
