"""The loop of a script over its run, from becoming a member to the end of the work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from bftrainer.elastic.loop.assembly import RunParts
from bftrainer.elastic.loop.observers import TrainerFails
from bftrainer.elastic.loop.steps import StepTaker
from bftrainer.elastic.members.membership import Leave
from bftrainer.elastic.process import warnings
from bftrainer.elastic.recorded import watcher
from bftrainer.messages.loop import ALL_WAITED, SECOND_LOOP

LATE_S = 1.0


class ScriptLoop:
    """The life of a run in this process."""

    def __init__(self, parts: RunParts, steps: StepTaker) -> None:
        self._parts, self._steps, self._peers = parts, steps, parts.peers
        self._life = "outside"  # or inside, from `start` to the loop's end, then over
        self._entered_at = 0.0

    def start(self, run: object) -> None:
        """Like `Run.start`, for this run; nothing if it has started."""
        if self._life == "outside":
            with self._peers.failure_told:
                self._enter(run)

    def turns(self, run: object) -> Iterator[Any]:
        """Yield this node's batches until the work is done: see `Run.__iter__`."""
        if self._life == "over":
            with self._peers.failure_told:
                self._second()
            return
        peers, steps = self._peers, self._steps
        try:
            with peers.failure_told:
                if self._life != "inside":
                    self._enter(run)
                self._warn_of_wait()
                self._parts.observers.loop_begins()
                while True:
                    if not self._is_over():
                        yield from steps.one_step()
                        continue
                    self._parts.observers.work_ends()
                    # not so if a member was lost as all agreed on the end: the others agree again
                    if peers.finish():
                        break
        except Leave:
            peers.leave()
        except GeneratorExit:  # the script broke out of its loop, or an error did
            steps.close_turn()
            if steps.turn is None or not steps.turn.is_torn:
                peers.broke_off()
            raise
        finally:
            self._parts.batches.stop()
            peers.let_go()
            self._life = "over"
            self._parts.observers.loop_ends()

    def _enter(self, run: object) -> None:
        self._life = "inside"
        self._parts.observers.enters(self._parts.state)  # before anybody waits for this node
        try:
            self._peers.enter()
        except Leave:
            self._peers.leave()
        self._entered_at = time.monotonic()
        watcher.watching.enters(run)

    def _warn_of_wait(self) -> None:
        """The loop begins: say so if members have waited for this node since `start`."""
        waited_s = time.monotonic() - self._entered_at
        if waited_s > LATE_S and self._parts.orders is not None:
            warnings.note_warning(ALL_WAITED.say(seconds=waited_s))

    def _is_over(self) -> bool:
        return self._peers.is_stopped or self._parts.batches.complete(self._parts.state.position)

    def _second(self) -> None:
        """A second loop begins: it is refused where it would leave epochs out in silence. Where several are
        done, a script that has kept its outer loop comes to no harm."""
        if not self._is_over():
            raise RuntimeError(SECOND_LOOP.say())
        if self._parts.passes == 1:
            raise TrainerFails(SECOND_LOOP.say())
        warnings.warn(SECOND_LOOP.say())
