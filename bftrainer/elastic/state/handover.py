"""Hands the training state over: finds the ranks that have it, and sends it to the others."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from bftrainer.elastic.members.group import Group
from bftrainer.elastic.state.stream import COMPLETE, FALSE, Roll, Said, Stream, call_roll
from bftrainer.elastic.state.training_state import TrainingState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StateTransfer:
    """Costs of streaming the state to a newcomer."""

    bytes: int
    seconds: float


class HandOver:
    """One rank's part in handing the state over, in one group after the other.

    Newcomers to members that have a large state get it in the course of the next steps (`Stream`), and
    are shadows until then. In all other cases all ranks stand still for one broadcast.

    Args:
        state: this rank's.
        streams: whether averaged gradients are all that a rank needs to take every step.
        resume: puts a checkpoint into `state`; returns whether there is one.
    """

    def __init__(self, state: TrainingState, *, streams: bool, resume: Callable[[], bool]) -> None:
        self.has_state = False
        self.is_torn = False
        """True if part of the script's state is overwritten, and no complete one has arrived."""
        self.working: tuple[int, ...] = (0,)
        """The ranks that have the state: they share the samples."""
        self._state, self._streams, self._resume = state, streams, resume
        self._stream: Stream | None = None
        self._partial = (0, 0)  # of an incomplete state: count of its steps, and known elements
        self._began = 0.0

    @property
    def is_complete(self) -> bool:
        """True if this rank has the whole state; a shadow has it from the last chunk on."""
        return self.has_state or (self._stream is not None and self._stream.is_complete)

    def enter(self, group: Group, *, is_stopped: bool = False, waited_s: float = 0.0) -> Roll:
        """Find out which ranks have the latest state, and hand it to the others, or begin to.

        `is_stopped` tells the others that the run must end, `waited_s` for how long this rank has stood
        still. Returns all ranks' reports.

        Raises:
            GroupBroken: a member was lost meanwhile.
            TornError: no rank has a state, there is no checkpoint, and this rank cannot start over.
        """
        self.close()
        count = self._state.count if self.has_state else None
        said = Said(state=count, partial=self._partial, is_stopped=is_stopped, waited_s=waited_s)
        roll = call_roll(group, said)
        if roll.latest is None:
            if group.rank == 0 and not self._resume() and self.is_torn:
                raise TornError("half of a state is left, and no checkpoint to go on from")
            roll = replace(roll, working=(0,), lacking=tuple(range(1, group.size)))
        self.working = roll.working
        self.has_state = group.rank in roll.working
        if roll.lacking and roll.latest is not None and self._streams and self._state.streams:
            self._begin_stream(group, roll)
        else:
            self._at_once(group, roll.lacking)
        return roll

    def advance(self, group: Group) -> StateTransfer | None:
        """Between two steps, advance a stream. When it is complete, return what it took; else None.

        Raises:
            GroupBroken: a member was lost meanwhile.
        """
        stream = self._stream
        if stream is None:
            return None
        outcome = stream.outcome()
        if outcome == FALSE:
            log.warning("what was streamed differs from the members' state: handing over at once")
            self._at_once(group, stream.shadows)
        elif outcome == COMPLETE:
            self._check(group, stream.shadows)
        else:
            stream.advance()
            return None
        self.close()
        return StateTransfer(stream.bytes, time.monotonic() - self._began)

    def settle(self) -> None:
        """Before parameters change: end the chunk under way.

        Raises:
            GroupBroken: see `Stream.settle`.
        """
        if self._stream is not None:
            self._stream.settle()

    def close(self) -> None:
        """End a stream that is under way. A shadow keeps track of what it has received."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
            self._partial = (self._state.count, stream.known)

    def _check(self, group: Group, shadows: tuple[int, ...]) -> None:
        """Complete a stream. What the loop's body has changed since the closing is handed over at once: no
        shadow runs that."""
        mine = self._state.digests()
        flag = torch.tensor([n for digest in mine for n in (digest, -digest)])
        group.all_reduce(flag, dist.ReduceOp.MIN)
        bulk, rest = int(flag[0] + flag[1]) == 0, int(flag[2] + flag[3]) == 0
        if not bulk:
            log.warning("members have changed weights besides their steps: handing over at once")
            self._at_once(group, shadows)
            return
        if not rest:
            self._state.transfer_small(group, self.working[0], receive=group.rank in shadows)
        self._complete(group)

    def _begin_stream(self, group: Group, roll: Roll) -> None:
        self._began = time.monotonic()
        self.is_torn |= not self.has_state
        self._stream = Stream(group, self._state, roll)
        self._stream.begin()

    def _at_once(self, group: Group, lacking: tuple[int, ...]) -> None:
        if lacking:
            self._state.transfer(group, self.working[0], receive=group.rank in lacking)
        self._complete(group)

    def _complete(self, group: Group) -> None:
        self.has_state, self.is_torn = True, False
        self.working = tuple(range(group.size))


class TornError(RuntimeError):
    """This process can neither go on nor start over: a new process must take its place."""
