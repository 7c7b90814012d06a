"""The life of a process that was forked from the warm one: it becomes a worker, and ends like one."""

from __future__ import annotations

import atexit
import json
import logging
import os
import runpy
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setproctitle import setproctitle

from bftrainer.elastic.process import startup_times
from bftrainer.elastic.process.channel import AGENT_GONE, VARIABLE
from bftrainer.files import held


@dataclass(frozen=True, slots=True)
class Task:
    """Task of a forked process."""

    title: str  # what the process table shows
    words: list[str]  # the command after the interpreter
    workdir: str
    environ: dict[str, str]
    gated: bool  # to wait for its membership before it runs the script
    channel: int  # descriptor of the connection to the agent
    log: int  # descriptor of the worker's log
    slots: list[int]  # descriptors of its memory for snapshots
    own: bool = False  # `workdir` was made for this trainer, and is its user's alone


def become(task: Task) -> None:
    """Become the worker: take over its log, folder and environment, wait if gated, then run its script.

    Raises:
        whatever the script raises.
    """
    startup_times.reached("process")
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (task.log, 1), (task.log, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(task.log)
    setproctitle(task.title)
    with held(Path(task.workdir), own=True) if task.own else nullcontext(task.workdir) as folder:
        os.chdir(folder)
    os.environ.clear()
    _set(task.environ, task.channel, task.slots)
    if "torch" in sys.modules:
        _set_threads(sys.modules["torch"], task.environ.get("OMP_NUM_THREADS", ""))
    if "numpy" in sys.modules:  # else all workers draw the same numbers; Python seeds its own after a fork
        sys.modules["numpy"].random.seed()
    if task.gated:
        wait_for_go(task.channel)
        if "torch" in sys.modules:
            from bftrainer.elastic.checks import replicas  # noqa: PLC0415  with torch, which is there

            replicas.watch()
    words = [word for word in task.words if word != "-u"]
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path.insert(0, task.workdir)
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = words
    script = Path(words[0])  # in the folder that this is in, whatever has its name by now
    link = script.readlink() if script.is_symlink() else script.name
    sys.path.insert(0, str(Path(script.parent, link).absolute().parent))  # as Python itself
    main = types.ModuleType("__main__")
    main.__file__ = str(script.absolute())  # as Python itself: processes that it spawns need it
    sys.modules["__main__"] = main
    exec(compile(script.read_bytes(), words[0], "exec"), main.__dict__)  # noqa: S102  the user's own script


def wait_for_go(channel: int) -> None:
    """Report that this process is ready, and wait until its membership is published.

    Ends the process if it must leave instead (code 0), or its agent is gone (`AGENT_GONE`).
    """
    os.write(channel, b'{"type": "ready"}\n')
    line = bytearray()
    while not line.endswith(b"\n"):  # no byte more: the script reads what follows
        byte = os.read(channel, 1)
        if not byte:
            os._exit(AGENT_GONE)
        line += byte
    order = json.loads(line)
    if order["type"] != "go":  # to leave: it has begun nothing
        os._exit(0)
    _set(order["env"], channel, [])


def _set_threads(torch: Any, wanted: str) -> None:
    """Torch has read the number of threads when it was imported: for the whole node, of which this worker may
    have a part."""
    if wanted.isdecimal() and int(wanted) and int(wanted) != torch.get_num_threads():
        torch.set_num_threads(int(wanted))


def _set(environ: dict[str, str], channel: int, slots: list[int]) -> None:
    os.environ.update(environ)
    orders: dict[str, Any] = json.loads(os.environ[VARIABLE])
    os.environ[VARIABLE] = json.dumps({**orders, "fd": channel, "slots": slots})


class Ending:
    """Ends a forked process like any other, but before the interpreter destroys its modules.

    That would copy all memory which it shares with the warm process. It takes 0.4 s instead of 0.05 on an
    idle core, while a main job may wait for the node.

    Make it before all imports that register functions for the exit: those run first then.
    """

    def __init__(self) -> None:
        self._code = 0
        atexit.register(self._leave)

    @contextmanager
    def of(self) -> Iterator[None]:
        """Around the process's work: how that ends decides the exit code.

        Raises:
            whatever the work raises.
        """
        try:
            yield
        except SystemExit as end:
            self._code = end.code & 0xFF if isinstance(end.code, int) else int(end.code is not None)
            raise
        except BaseException:
            self._code = 1
            raise

    def _leave(self) -> None:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(self._code)
