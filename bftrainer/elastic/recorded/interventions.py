"""Interventions in a process, as the directions of its run say: it waits, dies, or draws other numbers."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from bftrainer.elastic.recorded.directions import CUT, Directions, held_of, release_of

TICK_S = 0.005
LONGEST_HOLD_S = 100.0
"""Seconds after which a process that nobody releases goes on."""
ULPS = 2.0
"""Rounding that another order of sums would leave in a gradient, in units of its precision."""
OTHER_SEED = 20_011


def is_to_die(told: Directions, folder: Path, step: int, rank: int) -> bool:
    """True if this rank must be killed after a step; once only."""
    return any(step == at and rank == who and _once(folder / f"killed-{at}-{who}") for at, who in told.kills)


def is_to_die_in_the_end(told: Directions, folder: Path, step: int, rank: int) -> bool:
    """True if this rank must be killed when its script has ended; once only."""
    is_done = 0 < told.kill_at_end <= step
    return is_done and rank == 0 and _once(folder / "killed-at-end")


def die() -> None:
    """Kill this process, as the loss of its node would."""
    os.kill(os.getpid(), signal.SIGKILL)


def hold(told: Directions, folder: Path, step: int, rank: int) -> None:
    """Wait after a step until the conductor releases this process, if it must be held there."""
    release = release_of(folder, step)
    if step not in told.holds or release.exists():
        return
    held_of(folder, step, rank).touch()
    deadline = time.monotonic() + LONGEST_HOLD_S
    while not release.exists() and time.monotonic() < deadline:
        time.sleep(TICK_S)


def is_cut(told: Directions, folder: Path, step: int, trained_s: float) -> bool:
    """True if the run ends after a step, before its script does."""
    is_long = bool(told.least) and step >= told.least and trained_s > told.most_s
    if not is_long and (told.cut is None or step < told.cut):
        return False
    if not (folder / CUT).exists():  # elastic.Run takes one more step, in which this is asked again
        (folder / CUT).write_text(str(step), encoding="utf-8")
    return True


def draw_other_numbers() -> None:
    """Reseed the random numbers that scripts draw, with another seed."""
    torch.manual_seed(OTHER_SEED)
    np.random.seed(OTHER_SEED)
    random.seed(OTHER_SEED)


def round_gradients(parameters: Sequence[torch.Tensor], eps: float, generator: torch.Generator) -> None:
    """Add to gradients what another order of sums would, where they are not zero."""
    for parameter in parameters:
        grad = parameter.grad
        if grad is None or grad.is_sparse or not grad.numel():
            continue
        scale = float(grad.detach().to(torch.float64).norm()) / grad.numel() ** 0.5
        noise = torch.randn(grad.shape, generator=generator, dtype=torch.float64)
        unit = max(eps, torch.finfo(grad.dtype).eps)
        grad.add_((noise * (unit * ULPS * scale)).to(grad) * (grad != 0))


def _once(mark: Path) -> bool:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
