"""Training scripts as functions, for stage.py, whose batch adapts."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from bftrainer import elastic
from tests.support.stage_scripts import LENGTH, Points, network, sgd

INITIAL, MOST, AT_ONCE = 8, 64, 16


class Noisy(Points):
    """Targets that no model meets: gradients keep their noise."""

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        x, y, i = super().__getitem__(i)
        return x, y + 4 * (i * 31 % LENGTH) / LENGTH - 2, i


def _adapt(
    folder: Path,
    model: torch.nn.Module | None = None,
    *,
    kind: torch.dtype = torch.float64,
    overflows: bool = False,
    **options: Any,
) -> None:
    """Train until there is a file `stop`; one line for each micro-batch whose step was taken."""
    model = model or network(kind)
    policy = elastic.Adaptive(initial=INITIAL, max=MOST, max_per_worker=AT_ONCE, lr="sqrt")
    run = elastic.Run(model, sgd(model), Noisy(), policy=policy, **options)
    pending = []
    with (folder / f"{os.getpid()}.jsonl").open("a", buffering=1) as out:
        for x, y, indices in run:
            at = run.position
            loss = (run.model(x.to(kind)) - y.to(kind)).square().mean()
            if overflows and at.epoch % 8 == 0 and 17 in indices.tolist():
                loss = loss * float("inf")
            pending += indices.tolist() if run.weight else []
            run.backward(loss)
            if not options.get("average", True) and not run.accumulating:
                with run.together():
                    for p in model.parameters():
                        assert p.grad is not None
                        p.grad *= run.weight
                        dist.all_reduce(p.grad)
            accumulates = run.accumulating
            taken = run.step()
            if taken:
                note = {"step": at.step, "epoch": at.epoch, "indices": pending, "size": run.size}
                out.write(json.dumps(note) + "\n")
            if not accumulates:
                pending = []
                time.sleep(0.002)  # what a step takes however large it is: larger ones pay
            if (folder / "stop").exists():
                run.stop()
    position = run.position
    torch.save(
        {"model": model.state_dict(), "progress": position.progress, "step": position.step},
        folder / f"{os.getpid()}.pt",
    )


class Large(torch.nn.Module):
    """A small network with a state of 4 MiB, which is streamed."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()
        self.ballast = torch.nn.Parameter(torch.zeros(2**19, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.network(x) + self.ballast[0]
        return found


def adapts_large(folder: Path) -> None:
    """Newcomers get the state while the members train on, and change the batch."""
    _adapt(folder, Large())


def adapts(folder: Path) -> None:
    _adapt(folder)


def adapts_ddp(folder: Path) -> None:
    _adapt(folder, ddp={"bucket_cap_mb": 0.0001})


def adapts_mixed(folder: Path) -> None:
    """A GradScaler, and gradients that overflow now and then."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=10)
    _adapt(folder, kind=torch.float32, overflows=True, scaler=scaler, clip_norm=1.0)


def adapts_by_hand(folder: Path) -> None:
    _adapt(folder, average=False)
