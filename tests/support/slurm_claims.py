"""What main jobs of Slurm claim, as tests ask for it."""

from __future__ import annotations

from typing import Any

from bftrainer.schedulers.shared.claims import Claims
from bftrainer.schedulers.slurm.queue.claims import walked


def claims(*args: Any, **options: Any) -> Claims:
    """What a walk through all of the queue has found; arguments as of `walked`."""
    return walked(*args, **options).found()
