"""Main jobs on this machine's slots: lines that somebody adds to a file while the daemon runs.

ask NAME NODE...     a job waits for these nodes, and starts once they are free
take NAME NODE...    a job starts on these nodes at once; whatever is there is killed
end NAME             a job ends, or waits no longer
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bftrainer.errors import SchedulerError
from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Claim
from bftrainer.model.main_jobs import MainJob

log = logging.getLogger(__name__)

MOST_READ = 64 * 1024
"""Bytes that are read at a time, at most."""
QUOTED = 60
"""Characters logged of a line that is not understood, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsMoved:
    """The change that new lines lead to: jobs that start now, and nodes that become idle. On the nodes of
    `taking` something may run that has to be killed first."""

    starting: tuple[MainJob, ...] = ()
    taking: tuple[MainJob, ...] = ()
    freed: frozenset[str] = frozenset()


class MainJobsFile:
    """The main jobs that the file at `path` asks for, on `nodes`, or on GPUs where these are shared out: the
    name of a node means all of its GPUs. Lines that are not understood are logged, and left out."""

    def __init__(self, path: Path, nodes: frozenset[str]) -> None:
        self._path, self._nodes, self._known = path, nodes, nodes.union(map(node_of, nodes))
        self._read, self._line = 0, 0
        self._waiting: dict[str, MainJob] = {}
        self._running: dict[str, frozenset[str]] = {}

    @property
    def waiting(self) -> tuple[MainJob, ...]:
        """The jobs that wait, in order."""
        return tuple(self._waiting.values())

    @property
    def on(self) -> dict[str, str]:
        """Node -> the job that runs there."""
        return {node: name for name, nodes in self._running.items() for node in nodes}

    @property
    def wanted(self) -> frozenset[str]:
        """The nodes for which jobs wait."""
        return frozenset[str]().union(*(job.on for job in self._waiting.values()))

    def claims(self, held: frozenset[str]) -> tuple[Claim, ...]:
        """The claims of jobs that could start if we gave up nodes that our pilots have `held`."""
        taken = frozenset[str]().union(*self._running.values())
        return tuple(
            Claim(job=job.job, nodes=ours, count=len(ours))
            for job in self._waiting.values()
            if (ours := job.on & held) and not job.on & taken
        )

    def advance(self, now: float, held: frozenset[str]) -> JobsMoved:
        """Read what has been added. Jobs start that wait for nothing: our pilots have `held` no node of
        theirs.

        Raises:
            SchedulerError: The file cannot be read.
        """
        starting, taking = list[MainJob](), list[MainJob]()
        before = self._busy()
        for words in self._added():
            match words:
                case ["end", name] if name in self._running or name in self._waiting:
                    self._running.pop(name, None)
                    self._waiting.pop(name, None)
                case ["ask" | "take" as how, name, *nodes] if nodes and self._known.issuperset(nodes):
                    on = frozenset(own for own in self._nodes if {own, node_of(own)} & set(nodes))
                    job = MainJob(job=name, nodes=len(on), submitted=now, on=on)
                    if name in self._running or name in self._waiting:
                        self._odd("the name of another job", words)
                    elif how == "ask":
                        self._waiting[name] = job
                    else:
                        taking.append(job)
                        self._running[name] = job.on
                case _:
                    self._odd(
                        "expected ask or take, a name and nodes that there are; or end and a job", words
                    )
        for job in tuple(self._waiting.values()):
            if not job.on & (held | self._busy()):
                del self._waiting[job.job]
                self._running[job.job] = job.on
                starting.append(replace(job, started=now))
        return JobsMoved(starting=tuple(starting), taking=tuple(taking), freed=before - self._busy())

    def _busy(self) -> frozenset[str]:
        return frozenset[str]().union(*self._running.values())

    def _added(self) -> Iterator[list[str]]:
        """The words of each complete line that is new."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                text = file.read(MOST_READ)
        except OSError as error:
            raise SchedulerError(f"{self._path}: {error.strerror or error}") from error
        if len(text) == MOST_READ and b"\n" not in text:
            raise SchedulerError(f"{self._path}:{self._line + 1}: a line of more than {MOST_READ:,} bytes")
        complete = text[: text.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.decode(errors="replace").splitlines():
            self._line += 1
            if words := line.split():
                yield words

    def _odd(self, why: str, words: list[str]) -> None:
        said = " ".join(words)[:QUOTED]
        log.warning("%s:%d: %r: %s", self._path, self._line, said, why)
