"""What these scripts share: data that is made up, notes of what steps used, a pace that a test sets.

A script's first argument is a folder for all that. With the word `unchanged` it lacks what its kind needs.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

folder = Path(sys.argv[1])
unchanged = "unchanged" in sys.argv[2:]
LENGTH, BATCH, EPOCHS = 98, 24, 60  # an epoch's last step has 2 samples: with three nodes, one has none


class Points(Dataset):
    """Points in a square, with what is to be learnt of each, and its number."""

    def __init__(self, length: int = LENGTH, offset: float = 0.0) -> None:
        self.length, self.offset = length, offset

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        x = torch.tensor([i / self.length, (i * 7 % self.length) / self.length], dtype=torch.float64)
        return x, (3 * x + self.offset).sin().sum(0, keepdim=True), i


def network(seed: int = 0) -> torch.nn.Module:
    """Two layers; of double precision, so that rounding stays far below any mistake."""
    torch.manual_seed(seed)
    layers = torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)
    return torch.nn.Sequential(*layers).double()


def mse(y: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return (y - wanted).square().mean()


class Notes:
    """A line for each step of this process that was taken, with the samples that it used."""

    def __init__(self) -> None:
        self._out = (folder / f"{os.getpid()}-{time.time_ns()}.jsonl").open("a", buffering=1)
        self._at = (-1, -1)
        self._samples: list[int] = []

    def uses(self, run: Any, samples: torch.Tensor) -> None:
        """Before `run.step`: the samples of a micro-batch, unless it is a stand-in. A step that
        comes again begins anew."""
        if self._at != (at := (run.position.step, run.generation)):
            self._at, self._samples = at, []
        self._samples += samples.tolist() if run.weight else []

    def taken(self, run: Any, is_taken: bool) -> None:
        """After `run.step`."""
        if is_taken:
            self.line(self._at[0], self._samples, run.size, self._at[1])
            pace(self._at[0])

    def line(self, step: int, samples: list[int], size: int, run: Any) -> None:
        note = {"step": step, "samples": samples, "size": size, "run": str(run), "at": time.time()}
        self._out.write(json.dumps(note) + "\n")


def ranks_notes() -> tuple[Notes, str]:
    """Notes of a rank under torchrun, and the name of its run."""
    return Notes(), f"{os.environ.get('TORCHELASTIC_RESTART_COUNT')} at {os.environ.get('MASTER_PORT')}"


def pace(step: int) -> None:
    """Up to the step that stands in the file `upto` take no time; then slow down, until it is raised."""
    if (folder / "fast").exists():
        return
    beyond = step - int((folder / "upto").read_text())
    if beyond >= 0:
        time.sleep(0.1 if beyond < 20 else 0.5)


def save(state: Any, name: str, epoch: int = 0) -> None:
    """To a file, whole or not at all; a test may hold it in between, from an epoch on."""
    partial = folder / f"{name}.{os.getpid()}"
    torch.save(state, partial)
    hold = folder / "hold"
    while hold.exists() and epoch >= int(hold.read_text()):
        time.sleep(0.05)
    partial.rename(folder / name)
