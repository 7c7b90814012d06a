"""Processes of a node: started here or forked from a warm one, they end with the agent."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from bftrainer.files import held

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
MAX_PASSES = 20
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
LINKS_S = 60.0
"""A linker has written a library by then."""
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program that a spec names. `env` is added to the agent's environment. `folder`: its own folder to
    run in, with links to all that `workdir` has; empty: it runs in `workdir`."""

    command: tuple[str, ...]
    workdir: str
    env: Mapping[str, str]
    folder: str = ""

    @classmethod
    def of(cls, order: Mapping[str, Any]) -> Program:
        """The program of an order to start a worker, or to get warm for one."""
        folder = order.get("folder", "")
        return cls(command=tuple(order["command"]), workdir=order["workdir"], env=order["env"], folder=folder)

    @property
    def words(self) -> tuple[str, ...] | None:
        """The words after the interpreter, if the command runs a script or module with this interpreter."""
        found = shutil.which(self.command[0], path=self.environment()["PATH"])
        rest = tuple(word for word in self.command[1:] if word != "-u")
        if found is None or not rest or not (rest[0].endswith(".py") or (rest[0] == "-m" and rest[1:])):
            return None
        ours = Path(sys.executable)
        same = Path(found).parent == ours.parent and Path(found).resolve() == ours.resolve()
        return rest if same else None

    @property
    def script(self) -> str | None:
        """The path of the script, if the command runs one with this interpreter."""
        words = self.words
        return str(Path(self.workdir) / words[0]) if words and words[0] != "-m" else None

    @contextlib.contextmanager
    def place(self) -> Iterator[str]:
        """The folder to start it in. That of its own is this user's, whatever others put in its place.

        Raises:
            OSError: it is not.
        """
        if not self.folder:
            yield self.workdir
            return
        with held(Path(self.folder), own=True) as folder:
            yield str(folder)

    def environment(self) -> dict[str, str]:
        """The environment that the command gets, with this interpreter first on its PATH.

        Texts hash alike on all nodes and at every start: else `enumerate(set(words))` would number words in
        another way after each change of nodes, and the weights would belong to other words.
        """
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
        ours = {"PATH": path, "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}
        if COMPILED not in os.environ:
            ours[COMPILED] = compiled_folder()
        return {**os.environ, **ours, **self.env}


@cache
def compiled_folder() -> str:
    """The folder on this node for what PyTorch compiles for this user, which no other user may write to.
    PyTorch itself takes /tmp/torchinductor_USER, whoever has made it, and runs what it finds there. Where
    another user has that in /tmp, or could exchange it, it is at home."""
    for place in (tempfile.gettempdir(), str(Path(os.path.expanduser("~"), ".cache"))):  # noqa: PTH111  no home
        folder = Path(place, f"bftrainer-compiled-{os.geteuid()}")
        try:
            with held(folder, own=True, workdir="/"):
                return str(folder)
        except OSError as error:
            log.warning("what PyTorch compiles is not kept in %s: %s", folder, error)
    return tempfile.mkdtemp(prefix="bftrainer-compiled-")


def remove_torn(folder: Path) -> None:
    """Remove the libraries in PyTorch's cache that a killed worker has written in part: PyTorch takes a file
    that is there for whole, and the script would fail at each later start. One written within the last
    `LINKS_S` may not be done yet."""
    for path in folder.glob("*/*.so"):
        with contextlib.suppress(OSError):  # another worker has removed it
            if time.time() - path.stat().st_mtime > LINKS_S and not _is_whole(path):
                path.unlink()
                log.warning("%s was written in part only, and is removed", path)


def _is_whole(path: Path) -> bool:
    """Whether a library has all that its ELF header (64 bits, little-endian) says; others count as whole."""
    with path.open("rb") as file:
        head, size = file.read(64), os.fstat(file.fileno()).st_size
    if len(head) < 64 or not head.startswith(b"\x7fELF"):
        return False
    (table,), (each, count) = struct.unpack_from("<Q", head, 40), struct.unpack_from("<HH", head, 58)
    return head[4:6] != b"\x02\x01" or size >= table + each * count


def close_to_tracers() -> None:
    """Let no other process of this user trace this one: a tracer that never waits for it would keep it, once
    killed, as a zombie, and Slurm would take its job for running. Programs that this process starts can be
    traced again."""
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end, so that none escapes or stays a zombie."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def spawn(
    command: tuple[str, ...],
    *,
    workdir: str | None,
    environ: Mapping[str, str],
    output: int | None,
    fds: Sequence[int],
) -> int:
    """Start a process in a group of its own, with `fds` open in it, and return its pid.

    Raises:
        OSError: no such command or working directory.
    """
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=workdir,
        env=environ,
        pass_fds=fds,
        process_group=0,
        preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509  two system calls, no lock
    )
    child.returncode = 0  # `ended` waits for it
    return child.pid


def kill_group(pid: int) -> None:
    """Kill a process and all its children that stayed in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def kill_adopted(kept: Collection[int]) -> None:
    """Kill what others have left behind: all children of this process, with what comes from them, but those
    that are `kept` with theirs. Repeat until none is found, as a process may fork meanwhile."""
    for _ in range(MAX_PASSES):
        children: dict[int, list[int]] = {}
        for pid in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
            state, parent = _state_and_parent(pid)
            if state not in ("", "Z"):
                children.setdefault(parent, []).append(pid)
        found = [pid for pid in children.get(os.getpid(), []) if pid not in kept]
        if not found:
            break
        for pid in found:  # it grows
            found += children.get(pid, [])
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _state_and_parent(pid: int) -> tuple[str, int]:
    """State and parent of a process; an empty state if it is gone."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return "", 0
    return state, int(parent)


def ended(pid: int) -> asyncio.Future[int]:
    """The exit code of a child, once it has ended; the rest of its process group is killed then."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[int] = loop.create_future()

    def tell(code: int) -> None:
        if not future.done():
            future.set_result(code)

    def wait() -> None:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        kill_group(pid)
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the code not wanted any more
            loop.call_soon_threadsafe(tell, code)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-pid, 0)

    threading.Thread(target=wait, name=f"wait-{pid}", daemon=True).start()
    return future


def is_stopped(pid: int) -> bool:
    """True if a process is stopped, by SIGSTOP or the like; not if it is gone."""
    return _state_and_parent(pid)[0] == "T"


def _die_with(parent: int) -> Callable[[], None]:
    """Runs in the child: has the kernel kill it when its agent dies, for whatever reason."""

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return prepare
