"""`python -m bftrainer.elastic.programs.warm FD OF`: a process that has torch loaded and turns into workers.

An agent keeps one (docs/elastic.md, "Warm pool"). It forks for every worker that is wanted, which saves
the seconds that starting Python, importing torch and what else a script imports takes. It runs no
thread, no tensor operation and no line of a user's script itself: what it forks is as good as new. `OF`
tells whoever looks at the process table whose it is.

Requests come as packets of JSON over the inherited socket: {"type": "import", "script": path} and
{"type": "fork", ...} with two file descriptors, the worker's channel and its log. A fork is answered
with {"pid": ...}. The worker is no child of this process but of the agent, as if that had started it.
"""

from __future__ import annotations

import ast
import atexit
import ctypes
import gc
import importlib
import importlib.util
import json
import logging
import os
import runpy
import signal
import socket
import sys
import sysconfig
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setproctitle import setproctitle

from bftrainer.elastic.members.channel import AGENT_GONE, VARIABLE

UNSAFE = 3
"""Exit code: an import started threads or a device; nothing can be forked from here any more."""
_NOT_BEFORE_FORK = {"mpi4py", "tensorflow", "jax", "cupy", "pycuda", "ray"}
"""What is known to start something when it is imported."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Task:
    """What a forked process is to become."""

    title: str  # what the process table shows
    words: list[str]  # the command after the interpreter
    workdir: str
    environ: dict[str, str]
    gated: bool
    channel: int
    log: int


def serve(agent: socket.socket) -> Task | None:
    """Fork on request. Returns in every forked process with its task, and None when the agent is gone."""
    agent.send(b"{}")
    while True:
        data, fds, _, _ = socket.recv_fds(agent, 1 << 20, 2)
        if not data:
            return None
        wanted = json.loads(data)
        if wanted["type"] == "import":
            _import_for(wanted["script"])
            continue
        pid = _fork_for(os.getppid())
        if pid == 0:
            agent.close()
            del wanted["type"]
            return Task(**wanted, channel=fds[0], log=fds[1])
        for fd in fds:
            os.close(fd)
        agent.send(json.dumps({"pid": pid}).encode())


def _fork_for(agent: int) -> int:
    """Fork a process that the agent becomes the parent of (it adopts orphans). 0 in that process."""
    reader, writer = os.pipe()
    between = os.fork()
    if between:
        os.close(writer)
        with os.fdopen(reader, "rb") as answer:
            pid = int(answer.read())
        os.waitpid(between, 0)
        return pid
    os.close(reader)
    child = os.fork()
    if child:
        os.setpgid(child, child)
        os.write(writer, str(child).encode())
        os._exit(0)
    os.close(writer)
    between = os.getppid()
    while os.getppid() != agent:
        if os.getppid() != between:  # the agent is gone, and somebody else has adopted us
            os._exit(AGENT_GONE)
        time.sleep(0.0005)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != agent:
        os._exit(AGENT_GONE)
    return 0


@contextmanager
def _importing() -> Iterator[None]:
    """Imports leave little garbage, and to look for it takes a sixth of their time. What they leave is
    never looked at again, so that forks share the memory that it is in."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _import_for(script: str) -> None:
    """Import what a script will, of what is installed: its own modules may do anything when imported."""
    import torch  # noqa: PLC0415  see `main`

    with _importing():
        for name in imports_of(Path(script)):
            if name not in sys.modules and _is_installed(name.partition(".")[0]):
                try:
                    importlib.import_module(name)
                except Exception:  # noqa: BLE001, S112  whatever a package does: the worker will say so
                    continue
    if threading.active_count() > 1 or torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        sys.exit(UNSAFE)


def imports_of(script: Path) -> list[str]:
    """The modules that a script imports at its top level, in order, without relative ones.

    In place of a module that lies beside the script, there is what that one imports.
    """
    found: dict[str, None] = {}
    read: set[Path] = set()

    def follow(path: Path) -> None:
        read.add(path)
        for name in _imported(path):
            own = _beside(script, name)
            if own is None:
                found[name] = None
            elif own not in read:
                follow(own)

    follow(script)
    return list(found)


def _beside(script: Path, name: str) -> Path | None:
    """Where a module is, if it is found in the script's folder, which comes before all that is installed."""
    top = script.parent / name.partition(".")[0]
    if not (top.is_dir() or top.with_suffix(".py").is_file()):
        return None
    path = script.parent.joinpath(*name.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _imported(path: Path) -> list[str]:
    """What one file imports; nothing if it cannot be read: the worker itself will say so."""
    try:
        body = ast.parse(path.read_text("utf-8")).body
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError):
        return []
    found: list[str] = []
    for statement in body:
        if isinstance(statement, ast.Import):
            found += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            found.append(statement.module)
    return found


def _is_installed(package: str) -> bool:
    if package in _NOT_BEFORE_FORK:
        return False
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin is None:
        return False
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return spec.origin in ("built-in", "frozen") or any(
        Path(spec.origin).is_relative_to(place) for place in places
    )


def become(task: Task) -> None:
    """Be the worker: its log, place and environment, its turn to begin, then its script."""
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (task.log, 1), (task.log, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(task.log)
    setproctitle(task.title)
    os.chdir(task.workdir)
    os.environ.clear()
    _set(task.environ, task.channel)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # not every worker the same numbers; Python does so by itself
    if task.gated:
        _wait_for_go(task.channel)
    words = [word for word in task.words if word != "-u"]
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.path[0] = task.workdir
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = words
    script = Path(words[0]).absolute()
    sys.path[0] = str(script.parent)
    main = types.ModuleType("__main__")
    main.__file__ = words[0]
    sys.modules["__main__"] = main
    exec(compile(script.read_bytes(), words[0], "exec"), main.__dict__)  # noqa: S102  the user's own script


def _wait_for_go(channel: int) -> None:
    """Say that this process is warm, and wait until its membership is published."""
    os.write(channel, b'{"type": "ready"}\n')
    line = bytearray()
    while not line.endswith(b"\n"):  # no byte more: what follows is the script's to read
        byte = os.read(channel, 1)
        if not byte:
            os._exit(AGENT_GONE)
        line += byte
    order = json.loads(line)
    if order["type"] != "go":  # it is to leave, and has begun nothing
        os._exit(0)
    _set(order["env"], channel)


def _set(environ: dict[str, str], channel: int) -> None:
    os.environ.update(environ)
    orders: dict[str, Any] = json.loads(os.environ[VARIABLE])
    os.environ[VARIABLE] = json.dumps({**orders, "fd": channel})


class Ending:
    """How a forked process ends: as any does, up to where the interpreter would take its modules apart. That
    takes 0.4 s instead of 0.05 on an idle core, as it copies all memory that is shared with the warm process,
    while somebody may be waiting for the node.

    To be made before anything is imported that wants to do something at exit: it does so first.
    """

    def __init__(self) -> None:
        self._code = 0
        atexit.register(self._leave)

    @contextmanager
    def of(self) -> Iterator[None]:
        """Around what the process is for: how that ends is its exit code."""
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


def main() -> None:
    ending = Ending()
    with _importing():
        # with what the first optimizer of a process would import: 800 modules
        import torch._dynamo  # noqa: F401, PLC0415
    task = serve(socket.socket(fileno=int(sys.argv[1])))
    if task is not None:
        with ending.of():
            become(task)


if __name__ == "__main__":
    main()
