"""Time limits for workers that keep a node and do nothing with it: nobody else can use it meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from bftrainer.launch import messages
from bftrainer.launch.job import LaunchedTrainer, WorkerView
from bftrainer.launch.known import KnownTrainers
from bftrainer.ports import Link
from bftrainer.wire.phases import Phase

log = logging.getLogger(__name__)

OBEYS_S = 60.0
"""Seconds for an agent to end a worker as told; then the worker counts as lost."""

PARTED_S = 5.0
"""A worker that has left its loop as rank 0 did has said so by then, or has ended."""


class Timer(Protocol):
    """A call that is due."""

    def cancel(self) -> None:
        """Do not call any more."""


Later = Callable[[float, Callable[[], None]], Timer | None]
"""Calls a function after a number of seconds."""


def call_later(delay_s: float, do: Callable[[], None]) -> Timer | None:
    """Have the running event loop call `do` after `delay_s`, on its monotonic clock."""
    return asyncio.get_running_loop().call_later(delay_s, do)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """Seconds in which a worker must be ready, or join (`start_s`), and for which a trainer may report no
    progress, or a worker stay when the work is done (`progress_s`). After `silent_s`, the user is warned of a
    worker that is not ready. None: no limit.

    `later` and `now` are on a monotonic clock.
    """

    start_s: float | None = None
    progress_s: float | None = None
    silent_s: float | None = None
    later: Later = call_later
    now: Callable[[], float] = time.monotonic


T = TypeVar("T", bound=LaunchedTrainer)


Gone = Callable[[T, str, str], None]
"""Called with a trainer, a node and a reason: the worker is lost, and its program at fault."""


@dataclass(slots=True)
class Deadlines(Generic[T]):
    """Has workers killed that exceed a limit, with blame for their program: the engine gives up a trainer
    that fails again and again. Calls `gone` for workers whose agents do not obey."""

    limits: TimeLimits
    link: Link
    known: KnownTrainers[T]
    gone: Gone[T]
    _heard_at: dict[int, float] = field(default_factory=dict)  # trainer -> when it last said of progress
    _timers: dict[tuple[int, str, str], Timer | None] = field(default_factory=dict)

    def later(self, trainer: int, node: str, what: str, wait_s: float, do: Callable[[], None]) -> None:
        """Call `do` after `wait_s`. For each worker one call of a kind is due, the latest: agents may have
        workers lost and started again as often as they like."""
        key = trainer, node, what
        before = self._timers.pop(key, None)
        if before is not None:
            before.cancel()

        def run() -> None:
            self._timers.pop(key, None)
            do()

        self._timers[key] = self.limits.later(wait_s, run)

    def starts(self, launched: T, node: str, what: str) -> None:
        """A worker was told to start; `what`: what it failed to do if it stays in this phase for too long."""
        view, limit_s = launched.workers[node], self.limits.start_s
        phase = view.phase
        self._tell_if_silent(launched, node)
        if limit_s is not None and phase in (Phase.STARTING, Phase.JOINING):
            reason, wait_s = f"{what} within {limit_s:g} s", limit_s + messages.delay_s(view)
            self._unless(launched, node, "start", wait_s, reason, lambda: view.phase != phase)

    def _tell_if_silent(self, launched: T, node: str) -> None:
        """A worker was told to start; warn its user if its script is not ready for long."""
        view, limit_s = launched.workers[node], self.limits.silent_s
        if limit_s is None or view.phase != Phase.STARTING:
            return

        def check() -> None:
            if self._there(launched, node, view) and view.phase == Phase.STARTING:
                before, view.silent = launched.note, True
                if launched.note and not before:
                    log.warning("trainer %d: %s", launched.id, launched.note)

        self.later(launched.id, node, "silent", limit_s + messages.delay_s(view), check)

    def taken_over(self, launched: T, node: str) -> None:
        """A worker that an earlier daemon started goes on."""
        self.starts(launched, node, launched.slow_start)
        if launched.committed:
            self.progressed(launched)

    def joins(self, launched: T, node: str) -> None:
        """A worker got the membership that is published now, and belongs to it."""
        view, limit_s, generation = launched.workers[node], self.limits.start_s, launched.published
        if limit_s is not None:
            reason = f"did not join the other members within {limit_s:g} s"
            joined = lambda: view.joined >= generation or launched.published > generation  # noqa: E731
            self._unless(launched, node, "join", limit_s, reason, joined)

    def finished(self, launched: T) -> None:
        """The work is done: the processes must end. Each has one time limit, however often it says so."""
        limit_s = self.limits.progress_s
        for node, view in launched.workers.items():
            if limit_s is not None and view.phase == Phase.FINISHED and not view.to_end:
                view.to_end = True
                reason = f"the work was done, and its process did not end within {limit_s:g} s"
                self._unless(launched, node, "end", limit_s, reason, lambda: False)

    def parted(self, launched: T) -> None:
        """Rank 0 has ended well: workers that are still in their loops, as far as they have said, will never
        meet it again."""
        for node, view in launched.workers.items():
            if view.phase == Phase.MEMBER:
                reason = f"rank 0 ended with the work done {PARTED_S:g} s ago"
                left = lambda own=view: own.phase != Phase.MEMBER  # noqa: E731
                self._unless(launched, node, "part", PARTED_S, reason, left)

    def _unless(
        self, launched: T, node: str, what: str, wait_s: float, reason: str, done: Callable[[], bool]
    ) -> None:
        """Have a worker killed after `wait_s`, if it is there and not `done`."""
        view = launched.workers[node]

        def check() -> None:
            if self._there(launched, node, view) and not view.overdue and not done():
                self._end(launched, node, view, reason)

        self.later(launched.id, node, what, wait_s, check)

    def progressed(self, launched: T) -> None:
        """A trainer has reported progress. From now on it must go on doing so."""
        limit_s = self.limits.progress_s
        if limit_s is None:
            return
        watched = launched.id in self._heard_at
        self._heard_at[launched.id] = self.limits.now()
        if not watched:
            self.limits.later(limit_s, lambda: self._check_progress(launched, limit_s))

    def busy(self, launched: T, seconds: float) -> None:
        """A watched trainer works on something else, for at most `seconds`."""
        if launched.id in self._heard_at:
            self._heard_at[launched.id] = self.limits.now() + seconds

    def changed(self, launched: T) -> None:
        """A trainer that is watched has another membership: it has the whole time again."""
        if launched.id in self._heard_at:
            self._heard_at[launched.id] = self.limits.now()

    def _check_progress(self, launched: T, limit_s: float) -> None:
        members = [n for n, view in launched.workers.items() if view.phase == Phase.MEMBER]
        if self.known.get(launched.id) is not launched or launched.finished or not members:
            del self._heard_at[launched.id]  # it is watched again as soon as it makes progress again
            return
        left_s = self._heard_at[launched.id] + limit_s - self.limits.now()
        if left_s > 0:
            self.limits.later(left_s, lambda: self._check_progress(launched, limit_s))
            return
        del self._heard_at[launched.id]
        for node in members:
            self._end(launched, node, launched.workers[node], f"told of no progress within {limit_s:g} s")

    def _end(self, launched: T, node: str, view: WorkerView, reason: str) -> None:
        view.overdue = reason
        log.warning("trainer %d: its worker on %s is killed: %s", launched.id, node, reason)
        self.link.send(node, messages.kill(launched.id, reason))

        def check() -> None:
            if self._there(launched, node, view):
                self.gone(launched, node, f"{reason}, and its agent did not end it")

        self.later(launched.id, node, "obey", OBEYS_S, check)

    def _there(self, launched: T, node: str, view: WorkerView) -> bool:
        return self.known.get(launched.id) is launched and launched.workers.get(node) is view
