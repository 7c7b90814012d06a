"""Threads: for work that may never end, and for work of many users, who take turns."""

from __future__ import annotations

import asyncio
import gc
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Generic, TypeVar, TypeVarTuple

from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.reaching import TOO_MUCH_WORK

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
CHECKED_S = 0.001
"""Seconds of a piece of work between two checks that look at anything."""
GIVES_WAY_S = 0.02
"""Seconds that a piece gives way at a time: a busy event loop does not stop users' work for ever."""
_here = threading.local()
_gap = threading.Event()
_gap.set()


@contextmanager
def no_collection() -> Iterator[None]:
    """No thread collects garbage inside. A decision about a thousand trainers makes a million objects, nearly
    all of which go by themselves: to look through them again and again took a third of its time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class GapSelector(selectors.DefaultSelector):
    """Selector of an event loop that runs users' work in the gaps in which the loop waits: each call to
    the kernel lets go of the interpreter, and the loop would wait for all threads to get it back."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; users' work goes on meanwhile."""
        _gap.set()
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(timeout)
        _gap.clear()
        return ready

    def close(self) -> None:
        """The loop has ended: no work gives way to it."""
        super().close()
        _gap.set()


class _LoopWithGaps(asyncio.SelectorEventLoop):
    """Passes every error of an executor's work to the coroutine that awaits it."""

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Have work done in a thread; the future has what it returns or raises."""
        return super().run_in_executor(executor, _raisable(func), *args)


def loop_with_gaps() -> asyncio.AbstractEventLoop:
    """A new event loop, to which users' work in other threads gives way."""
    return _LoopWithGaps(GapSelector())


class OverTimeError(BftrainerError):
    """A piece of a user's work takes longer than it may, or nobody waits for it any more."""


def check() -> None:
    """Give way to the event loop, and end the present piece of a user's work if its time is over. To be
    called in each loop of such work: no thread can be killed, so that work has to end itself. Elsewhere it
    does nothing.

    Raises:
        OverTimeError: its time is over.
    """
    piece: PieceOfWork[object] | None = getattr(_here, "piece", None)
    if piece is not None:
        piece.check()


def _raisable(work: Callable[[*Ts], T]) -> Callable[[*Ts], T]:
    """The work, with errors that a future of asyncio takes. It refuses StopIteration, which ends coroutines:
    who awaits the work would wait for ever."""

    def run(*args: *Ts) -> T:
        try:
            return work(*args)
        except StopIteration as error:
            raise RuntimeError("StopIteration: there is no next item") from error

    return run


class PieceOfWork(Future[T], Generic[T]):
    """A piece of work, and its result. Its time counts while the processor works on it, so that a busy
    machine makes none fail."""

    def __init__(self, work: Callable[[], T], limit_s: float) -> None:
        super().__init__()
        self._work: Callable[[], T] | None = work
        self._limit_s, self._until, self.given_up = limit_s, float("inf"), False
        self._next_look = 0.0
        self.took_longer = False  # than it may, whether or not it has checked

    def check(self) -> None:
        """See `check` of this module."""
        if self.given_up:
            raise OverTimeError  # nobody waits for it any more
        if time.monotonic() < self._next_look:
            return
        if time.thread_time() > self._until:
            raise OverTimeError(TOO_MUCH_WORK.say(limit=self._limit_s))
        _gap.wait(GIVES_WAY_S)
        self._next_look = time.monotonic() + CHECKED_S

    def run(self) -> None:
        """Do the work, in the thread whose turn it has."""
        work, self._work = self._work, None
        if work is None or not self.set_running_or_notify_cancel():
            return
        self._until, _here.piece = time.thread_time() + self._limit_s, self
        try:
            self.set_result(_raisable(work)())
        except BaseException as error:  # noqa: BLE001  it is raised where the result is asked for
            self.set_exception(error)
        finally:
            self.took_longer = time.thread_time() > self._until
            _here.piece = None


class FairThread:
    """A thread that does work of many users: the next piece is of the user whose last one is longest ago, and
    the pieces of one user keep their order. Each may take `limit_s` seconds; one that takes longer ends
    where it checks, and `beyond` gets the user, also of one that has ended without a check.

    Neither the event loop nor the end of the process waits for the thread.
    """

    def __init__(self, name: str, limit_s: float, beyond: Callable[[str], None] = lambda user: None) -> None:
        self._name, self._limit_s, self._beyond = name, limit_s, beyond
        self._lines: dict[str, deque[PieceOfWork[object]]] = {}  # by user, the one whose turn is next first
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, user: str, work: Callable[[], T]) -> PieceOfWork[T]:
        """Have a user's work done after what waits of the same user. Any thread may call it."""
        piece = PieceOfWork(work, self._limit_s)
        with self._changed:
            if self._closed:
                piece.cancel()
                return piece
            self._lines.setdefault(user, deque()).append(piece)  # type: ignore[arg-type]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()
        return piece

    async def run(self, user: str, work: Callable[[], T]) -> T:
        """Return the result of a user's work, which ends if its caller stops waiting."""
        piece = self.submit(user, work)
        try:
            return await asyncio.wrap_future(piece)
        finally:
            piece.given_up = True

    def close(self) -> None:
        """Let go of the thread; what waits is cancelled."""
        with self._changed:
            self._closed = True
            for piece in [piece for line in self._lines.values() for piece in line]:
                piece.given_up = True
                piece.cancel()
            self._lines.clear()
            self._changed.notify()

    def _run(self) -> None:
        while (turn := self._next()) is not None:
            user, piece = turn
            piece.run()
            if piece.took_longer:
                self._beyond(user)
            del turn, piece  # it may be large, and the next one long to come

    def _next(self) -> tuple[str, PieceOfWork[object]] | None:
        with self._changed:
            while not self._lines and not self._closed:
                self._changed.wait()
            if self._closed:
                return None
            user = next(iter(self._lines))
            line = self._lines.pop(user)
            piece = line.popleft()
            if line:
                self._lines[user] = line  # behind all others
            return user, piece


def in_thread(name: str, work: Callable[[], T]) -> asyncio.Future[T]:
    """Have `work` done in a thread of its own; the future has what it returns or raises.

    The thread is left alone if it comes to no end: neither the event loop nor the end of the process waits.

    Raises:
        RuntimeError: the machine has no thread for us.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def tell(give: Callable[[], None]) -> None:
        if not future.done():  # it may have been cancelled
            give()

    def run() -> None:
        give: Callable[[], None]
        try:
            give = partial(future.set_result, _raisable(work)())
        except Exception as error:  # noqa: BLE001  it is raised where the future is waited for
            give = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(tell, give)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
