"""The processes of a testbed: files remember pids and start times, so that anybody can stop exactly them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.testbeds.errors import TestbedError
from benchmarks.testbeds.waiting import until


class Ledger:
    """The named processes of one directory. A pid that the kernel gave to another process is not ours."""

    def __init__(self, directory: Path) -> None:
        self._run = directory / "run"
        self._log = directory / "log"

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start a process of a session of its own; what it says goes to log/NAME.out.

        Raises:
            TestbedError: it runs already.
        """
        if self.alive(name):
            raise TestbedError(f"{name} runs already")
        out = str(self._log / f"{name}.out")
        pid = os.posix_spawn(
            command[0],
            list(command),
            dict(env),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        (self._run / f"{name}.pid").write_text(f"{pid} {started(pid)}\n")

    def names(self) -> tuple[str, ...]:
        """Return the names of all that were started and not stopped, alive or not."""
        return tuple(sorted(path.stem for path in self._run.glob("*.pid")))

    def pid(self, name: str) -> int | None:
        """Return a process's pid; None if it is dead."""
        try:
            pid, start = (self._run / f"{name}.pid").read_text().split()
        except (OSError, ValueError):
            return None
        with contextlib.suppress(ChildProcessError):  # somebody else's child
            os.waitpid(int(pid), os.WNOHANG)
        return int(pid) if started(int(pid)) == start else None

    def alive(self, name: str) -> bool:
        """Return whether a process runs (or is paused)."""
        return self.pid(name) is not None

    def signal(self, name: str, number: signal.Signals) -> None:
        """Signal a process.

        Raises:
            TestbedError: it does not run.
        """
        pid = self.pid(name)
        if pid is None:
            raise TestbedError(f"{name} does not run: no {number.name} for it")
        os.kill(pid, number)

    def stop(self, names: Iterable[str], grace_s: float) -> None:
        """SIGTERM, SIGKILL to those that are still there after `grace_s`, and forget them."""
        left = [name for name in names if self.alive(name)]
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
            if number is signal.SIGTERM and not grace_s:
                continue
            for name in left:
                with contextlib.suppress(TestbedError, ProcessLookupError):
                    self.signal(name, number)
                    self.signal(name, signal.SIGCONT)  # a paused one hears nothing but SIGKILL
            until(lambda: not any(map(self.alive, left)), wait_s)
        for name in names:
            if not self.alive(name):
                (self._run / f"{name}.pid").unlink(missing_ok=True)


def started(pid: int) -> str:
    """Return a process's start, in clock ticks after boot: with its pid, its identity. "" if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def of_jobs(directory: Path, conf: Path) -> list[int]:
    """Processes of jobs: each slurmstepd that writes into the directory, and whatever its jobs started."""
    children: dict[int, list[int]] = {}
    found: list[int] = []
    marks = {f"SLURM_CONF={conf}".encode()}
    for pid in _pids():
        with contextlib.suppress(OSError, IndexError, ValueError):  # ended meanwhile
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(stat[1]), []).append(pid)
            words = set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
            in_job = marks <= words and any(word.startswith(b"SLURM_JOB_ID=") for word in words)
            if in_job or _stepd_of(pid, directory):
                found.append(pid)
    every = dict.fromkeys(found)
    while found:
        below = [child for child in children.get(found.pop(), []) if child not in every]
        every.update(dict.fromkeys(below))
        found += below
    return [pid for pid in every if pid != os.getpid() and started(pid)]


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _stepd_of(pid: int, directory: Path) -> bool:
    if Path(f"/proc/{pid}/comm").read_text().strip() != "slurmstepd":
        return False
    return any(
        str(Path(link).readlink()).startswith(f"{directory}/") for link in Path(f"/proc/{pid}/fd").iterdir()
    )


def kill(pids: Iterable[int]) -> None:
    """SIGKILL, and wait until they are gone."""
    pids = list(pids)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(started, pids)), 10)
