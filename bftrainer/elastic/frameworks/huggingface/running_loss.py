"""Continues the loss that Hugging Face's Trainer sums up, which it resets in every process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from bftrainer.elastic.attach.collectives import exchanged

LAST = "_globalstep_last_logged"
TOTAL = "_total_loss_scalar"
FIRST = "_initial_global_step"
"""The Trainer's own names; some versions lack some of them."""


class RunningLoss:
    """Sums that go with a checkpoint, so that `loss` and `train_loss` are means over all their steps: the sum
    since the last log line, and that of the whole training.

    Args:
        trainer: that which is about to train; None: there is none to be found, and nothing is kept.
        before: what `noted` has returned for the checkpoint from which it goes on; empty without one.
        is_over: the training has ended there. The Trainer may compute a loss more, which does not count.
    """

    def __init__(
        self, trainer: Any = None, before: Mapping[str, Any] | None = None, *, is_over: bool = False
    ) -> None:
        self._trainer, self._is_over = trainer, is_over
        self._rest = 0.0
        self._sum: Any = None  # the Trainer's tensor since the last line
        if trainer is None:
            return
        self._begun = time.time()
        if before:
            self._rest = before["rest"]
            for name in (LAST, TOTAL, FIRST):
                if hasattr(trainer, name):
                    setattr(trainer, name, before[name])
            self._begun -= before["seconds"]
        if is_over:
            setattr(trainer, TOTAL, getattr(trainer, TOTAL, 0.0) + self._rest)
        trainer._maybe_log_save_evaluate = partial(self._at_step, trainer._maybe_log_save_evaluate)
        if hasattr(trainer, "_finalize_training"):
            trainer._finalize_training = partial(self._at_end, trainer._finalize_training)

    def noted(self) -> dict[str, Any]:
        """Sums for a checkpoint. All ranks must call it."""
        if self._sum is None:
            return {}
        kept = {name: getattr(self._trainer, name, 0) for name in (LAST, TOTAL, FIRST)}
        return kept | {"rest": self._mean(), "seconds": time.time() - self._begun}

    def _at_step(self, own: Any, summed: Any, *given: Any, **options: Any) -> Any:
        """The Trainer is about to log, evaluate and save, if one of them is due."""
        if self._is_over:
            summed.zero_()
        else:
            summed += self._rest
        self._sum, self._rest = summed, 0.0
        return own(summed, *given, **options)

    def _at_end(self, own: Any, trial: Any, samples: Any, begun: float) -> Any:
        """The Trainer is about to say `train_loss`: over all ranks, as log lines are, and all processes."""
        if self._sum is not None:
            self._sum.fill_(self._mean())
        return own(trial, samples, min(begun, self._begun))

    def _mean(self) -> float:
        found = [float(each) for each in exchanged(float(self._sum))]
        return sum(found) / len(found)
