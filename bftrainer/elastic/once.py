"""One training for each script under a framework's Trainer: a second one would go on from the first one's
checkpoints."""

from __future__ import annotations

import weakref
from typing import Any

_begun: weakref.WeakSet[Any] = weakref.WeakSet()


def begin(job: Any) -> None:
    """Note that the training of this process's job begins.

    Raises:
        ValueError: one has begun before, for example of another fold.
    """
    if job in _begun:
        raise ValueError(
            "this script begins a second training, which would go on from the checkpoints of the first and "
            "train nothing: make a trainer of each, with a spec of its own, such as "
            "`command: [python, train.py, --fold, '2']`. Evaluations may follow a training"
        )
    _begun.add(job)
