"""Work that may never end, in threads that nothing waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


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
            give = partial(future.set_result, work())
        except Exception as error:  # noqa: BLE001  it is raised where the future is waited for
            give = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(tell, give)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
