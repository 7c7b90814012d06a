"""Reports a training's progress to the agent, and writes its checkpoints in time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from bftrainer.elastic.process import warnings
from bftrainer.elastic.process.channel import Channel, Orders
from bftrainer.elastic.process.metrics import Figures, whole_training
from bftrainer.elastic.process.warnings import note
from bftrainer.elastic.snapshots.saver import Saver
from bftrainer.elastic.state.checkpoint import Checkpoints
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.state.training_state import TrainingState

REPORT_EVERY_S = 0.5
PREPARE_S = 5.0
"""Seconds after a worker's start until it prepares the memory of snapshots, unless a checkpoint is due."""
LOSS_EVERY_S = 600.0
"""The mean time between losses of all nodes at once that checkpoints are made for: a very busy pool's."""


def checkpoint_interval_s(every_s: float, cost_s: float) -> float:
    """Seconds after a checkpoint that stopped training for `cost_s` until the next one is due.

    That is the interval with which least is lost, to checkpoints and to what all nodes' losses undo (Young,
    "A first order approximation to the optimum checkpoint interval", 1974), but at least `every_s`.
    """
    return max(every_s, math.sqrt(2.0 * cost_s * LOSS_EVERY_S))


class Progress:
    """Reports and checkpoints of one worker. Times are `time.monotonic()`, in seconds.

    `of`: the samples of the whole run, as far as is known at a position; None: not known.
    """

    def __init__(
        self,
        state: TrainingState,
        channel: Channel,
        orders: Orders,
        of: Callable[[Position], int | None] | None = None,
    ) -> None:
        self.metrics = Figures(orders.max_metrics)
        """The latest figures that the script has reported, by name."""
        self._state, self._channel, self._of = state, channel, of
        self._folder = orders.checkpoint_dir
        self._checkpoints = Checkpoints(orders.checkpoint_dir, orders.folder)
        self.saver = Saver(state, self._checkpoints, channel, orders.slots)
        """Writes the checkpoints."""
        self._checkpoint_every_s = self._next_in_s = orders.checkpoint_every_s
        self._reported: Position | None = None
        self._reported_at = self._saved_at = self._paused_at = time.monotonic()
        self._paused_s = 0.0  # since the last report
        self._prepare_at = self._saved_at + min(PREPARE_S, orders.checkpoint_every_s / 2)

    def restart(self, now: float) -> None:
        """The members have changed: the speed is measured from `now` on."""
        self._reported, self._reported_at, self._paused_s = None, now, 0.0

    def busy(self, seconds: float, now: float) -> None:
        """The script does something else for `seconds` at most; 0: it goes on. That does not count in
        its speed."""
        if seconds:
            self._paused_at = now
        else:
            self._paused_s += now - max(self._paused_at, self._reported_at)

    def after_step(self, committed: Position, now: float, generation: int, size: int) -> None:
        """Report and save, if it is time for that. Only for rank 0.

        `committed` is the last position that all members have reached for sure.
        """
        trained_s = now - self._reported_at - self._paused_s
        if trained_s >= REPORT_EVERY_S:
            rate = None
            if self._reported is not None:
                rate = (committed.samples - self._reported.samples) / trained_s
            problem = self.saver.error
            self.tell("progress", generation, size, committed, rate=rate, problem=problem)
            self._reported, self._reported_at, self._paused_s = committed, now, 0.0
        if now >= self._prepare_at:
            self._prepare_at = math.inf
            self.saver.prepare()
        if now - self._saved_at >= self._next_in_s and not self.saver.busy:
            begun = time.monotonic()
            self.saver.save(generation, wait=False)
            cost_s = time.monotonic() - begun
            self._saved_at, self._next_in_s = now, checkpoint_interval_s(self._checkpoint_every_s, cost_s)

    def resume(self) -> bool:
        """Put the newest checkpoint into the state. False: there is none.

        Raises:
            CheckpointError: there are checkpoints, but none can be read.
        """
        snapshot = self._checkpoints.load()
        if snapshot is not None:
            self._state.restore(snapshot)
            self.saver.saved = self._state.position.step
            note(f"resumed from step {self._state.position.step}, of a checkpoint in {self._folder}")
        else:
            note("begins anew: there is no checkpoint")
        return snapshot is not None

    def tell(self, kind: str, generation: int, size: int, position: Position, **more: Any) -> None:
        """Send a message to the agent: where training stands, the latest figures, and `more`. The log
        says where it leaves."""
        if kind == "left":
            note(f"leaves at step {position.step}")
        self._channel.send(
            kind,
            generation=generation,
            size=size,
            step=position.step,
            samples=position.samples,
            epoch=position.epoch,
            metrics=self.metrics,
            of=whole_training((self._of(position) or None) if self._of else None),
            warned=warnings.last(),
            saved=self.saver.saved,
            **more,
        )
