"""What a member tells its agent of the training's progress, and when it writes checkpoints."""

from __future__ import annotations

import time
from typing import Any

from bftrainer.elastic import warned
from bftrainer.elastic.figures import Figures, whole_training
from bftrainer.elastic.members.channel import Channel, Orders
from bftrainer.elastic.note import note
from bftrainer.elastic.state.checkpoint import Checkpoints
from bftrainer.elastic.state.state import TrainingState
from bftrainer.elastic.train.sampler import Position

REPORT_EVERY_S = 0.5


class Progress:
    """Reports and checkpoints of one worker. Times are `time.monotonic()`, in seconds.

    `of`: the samples of the whole run; None: not known.
    """

    def __init__(self, state: TrainingState, channel: Channel, orders: Orders, of: int | None = None) -> None:
        self.metrics = Figures(orders.max_metrics)
        """The latest figures that the script has reported, by name."""
        self._state, self._channel, self._of = state, channel, whole_training(of or None)
        self._folder = orders.checkpoint_dir
        self._checkpoints = Checkpoints(orders.checkpoint_dir, orders.folder)
        self._checkpoint_every_s = orders.checkpoint_every_s
        self._reported: Position | None = None
        self._reported_at = self._saved_at = time.monotonic()

    def restart(self, now: float) -> None:
        """The members have changed: the speed is measured from `now` on."""
        self._reported, self._reported_at = None, now

    def after_step(self, committed: Position, now: float, generation: int, size: int) -> None:
        """Report and save, if it is time for that. Only for rank 0.

        `committed` is the last position that all members have reached for sure.
        """
        if now - self._reported_at >= REPORT_EVERY_S:
            rate = None
            if self._reported is not None:
                rate = (committed.samples - self._reported.samples) / (now - self._reported_at)
            problem = self._checkpoints.error
            self.tell("progress", generation, size, committed, rate=rate, problem=problem)
            self._reported, self._reported_at = committed, now
        if now - self._saved_at >= self._checkpoint_every_s and not self._checkpoints.busy:
            self._checkpoints.save_in_background(self._state.snapshot(), generation)
            self._saved_at = now

    def save(self, generation: int) -> None:
        """Write a checkpoint now, after one that is under way."""
        self._checkpoints.finish()
        self._checkpoints.save(self._state.snapshot(), generation)

    def resume(self) -> bool:
        """Put the newest checkpoint into the state. False: there is none.

        Raises:
            CheckpointError: there are checkpoints, but none can be read.
        """
        snapshot = self._checkpoints.load()
        if snapshot is not None:
            self._state.restore(snapshot)
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
            of=self._of,
            warned=warned.last(),
            **more,
        )
