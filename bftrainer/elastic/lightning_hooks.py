"""The moment when a batch is over: after all that callbacks and the module do at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

HOOK = "on_train_batch_end"


def after_each_batch(module: Any, then: Callable[[int], None]) -> None:
    """Have `then(batch_idx)` called when a batch is over.

    Lightning calls the module's hook last. What it and callbacks do there, such as the update of an average,
    belongs to the step, and so into a checkpoint that is written after it.
    """
    forget(module)
    own = getattr(module, HOOK)

    def both(outputs: Any, batch: Any, batch_idx: int) -> None:
        own(outputs, batch, batch_idx)
        then(batch_idx)

    setattr(module, HOOK, both)


def forget(module: Any) -> None:
    """Undo it; a module that keeps a function of ours could not be pickled."""
    vars(module).pop(HOOK, None)
