"""How long each turn of an event loop takes, and what it does meanwhile.

A turn is what the loop does between two waits for I/O. Of one of `NOTED_S` or more a line of JSON says when
it ended (`at`, monotonic), how long it took (`wall_s`), how long the loop's thread computed (`cpu_s`), how
long it was ready to and another process had the core (`robbed_s`), and, of one of `NAMED_S` or more, which
callbacks took long and where its thread was. What is neither `cpu_s` nor `robbed_s` was spent waiting: for a
disk, a lock, or another thread of the process.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import selectors
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from bftrainer.threads import GapSelector

NOTED_S = 0.001
NAMED_S = 0.01
SAMPLE_S = 0.02
FLUSH_S = 0.25
_libc = ctypes.PyDLL(None)  # keeps the interpreter's lock: to let go of it would be a wait of its own


class Turns:
    """Measures the turns of the loop whose thread has made it; writes to `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = threading.get_ident()
        self._stat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        self._text = ctypes.create_string_buffer(64)
        self._began: tuple[float, float, float] | None = None
        self._slow: list[str] = []
        self._stack = ""
        self._short = 0
        self._lines: list[dict[str, Any]] = []
        self._gc_began = 0.0

    def start(self) -> None:
        """From now on name what takes long, and write."""
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began = time.perf_counter()
            run(handle)
            took = time.perf_counter() - began
            if took >= NAMED_S and threading.get_ident() == self._thread:
                self._slow.append(f"{1e3 * took:.0f} ms {_name(handle)}")

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        gc.callbacks.append(self._collected)
        threading.Thread(target=self._watch, name="turns", daemon=True).start()

    def begin(self) -> None:
        """A turn begins."""
        robbed = self._robbed()
        self._began = (time.perf_counter(), time.thread_time(), robbed)

    def end(self) -> None:
        """A turn ends."""
        if self._began is None:
            return
        wall, cpu, robbed = self._began
        self._began = None
        took = time.perf_counter() - wall
        if took < NOTED_S:
            self._short += 1
            return
        line = {"at": time.monotonic(), "wall_s": took, "cpu_s": time.thread_time() - cpu}
        line["robbed_s"] = self._robbed() - robbed
        if took >= NAMED_S:
            line |= {"slow": self._slow, "stack": self._stack}
        self._slow, self._stack = [], ""
        self._lines.append(line)

    def _robbed(self) -> float:
        """For how long the loop's thread could have run and did not, since it was started."""
        length = _libc.pread(self._stat, self._text, 64, 0)
        return int(self._text.raw[:length].split()[1]) / 1e9

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._gc_began = time.perf_counter()
        elif (took := time.perf_counter() - self._gc_began) >= NAMED_S:
            self._slow.append(f"{1e3 * took:.0f} ms garbage of generation {info['generation']}")

    def _watch(self) -> None:
        flushed = 0.0
        with self._path.open("a", buffering=1) as out:
            while True:
                time.sleep(SAMPLE_S)
                began, now = self._began, time.perf_counter()
                if began is not None and now - began[0] > SAMPLE_S:
                    self._stack = _stack(sys._current_frames().get(self._thread))
                if now - flushed > FLUSH_S:
                    flushed = now
                    lines, self._lines = self._lines, []
                    short, self._short = self._short, 0
                    lines.append({"at": time.monotonic(), "short": short})
                    out.write("".join(json.dumps(line) + "\n" for line in lines))


def measure(path: Path) -> None:
    """Have the turns of the daemon's event loop be written to `path`."""
    waits, made = selectors.DefaultSelector.select, list[Turns]()

    def select(own: Any, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not isinstance(own, GapSelector):
            return waits(own, timeout)
        if not made:
            made.append(Turns(path))
            made[0].start()
        made[0].end()
        ready = waits(own, timeout)
        made[0].begin()
        return ready

    selectors.DefaultSelector.select = select  # type: ignore[method-assign]


def _name(handle: asyncio.Handle) -> str:
    """What a callback is, in words: of a task its coroutine."""
    callback = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine = owner.get_coro()
        names = []
        while coroutine is not None and len(names) < 6:
            names.append(getattr(coroutine, "__qualname__", type(coroutine).__name__))
            coroutine = getattr(coroutine, "cr_await", None)
        return " > ".join(names)
    # no repr: that of a bound method has all of its object, such as a study with thousands of trials
    return str(getattr(callback, "__qualname__", type(callback).__qualname__))


def _stack(frame: FrameType | None) -> str:
    """The innermost calls of a thread, outermost first."""
    if frame is None:
        return ""
    calls = traceback.extract_stack(frame)[-7:]
    return " > ".join(f"{Path(call.filename).name}:{call.lineno} {call.name}" for call in calls)
