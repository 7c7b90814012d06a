"""Virtual time for asyncio: what waits costs nothing, and nothing real is waited for."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from unittest.mock import patch

Found = TypeVar("Found")


class _Selector(selectors.SelectSelector):
    """Moves the clock instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready at once; the time is `timeout` later."""
        self.now += max(0.0, timeout or 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while it waits. Work for other threads is done in its own."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        """The seconds that have passed."""
        return self._virtual.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Do it now."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except BaseException as error:  # noqa: BLE001  as an executor does
            done.set_exception(error)
        return done


def run(story: Callable[[VirtualLoop], Coroutine[Any, Any, Found]]) -> Found:
    """Play a story in virtual time; the monotonic clock shows it, too, as long as that lasts."""
    loop = VirtualLoop()
    try:
        with patch.object(time, "monotonic", loop.time):
            found = loop.run_until_complete(story(loop))
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(0))
            return found
    finally:
        loop.close()
