"""Asks LSF, and returns rows. An answer that is not clear is an error, never an empty machine."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from bftrainer.errors import SchedulerError
from bftrainer.files import read_text
from bftrainer.schedulers.lsf import command, commands
from bftrainer.schedulers.lsf.commands import Scope
from bftrainer.schedulers.lsf.rows import (
    BackfillWindow,
    EndKind,
    Gpus,
    HostRow,
    LsfJobEnd,
    LsfJobRow,
    PlannedStart,
    QueueRow,
)
from bftrainer.schedulers.lsf.slow_queries import Rarely
from bftrainer.schedulers.lsf.text import ends, gpus_text, hosts_text, jobs_text, queues_text
from bftrainer.schedulers.shared.batch import TextThread
from bftrainer.schedulers.shared.command import MOST_BYTES, CommandOutput
from bftrainer.schedulers.shared.text import TextError

log = logging.getLogger(__name__)
Found = TypeVar("Found")

WINDOWS_S = 30.0
"""Seconds between two queries of backfill windows."""
QUEUES_S = 300.0
"""Seconds between two queries of queues' priorities."""
GPUS_S = 600.0
"""Seconds between two queries of hosts' GPUs."""
PLANS_S = 5.0
"""Seconds between two reads of the planner's file."""
MOST_PLAN_KB = 64_000


class Questions:
    """Asks LSF with commands from `folder` ("": from PATH), each for `timeout_s` at most, and reads the
    answers `apart`, in a thread of its own. `plan_file` is the planner's ("": none). Each host has `gpus`
    GPUs (None: LSF says how many)."""

    def __init__(
        self,
        scope: Scope,
        *,
        timeout_s: float,
        folder: str = "",
        plan_file: str = "",
        gpus: int | None = None,
        most_bytes: int = MOST_BYTES,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.scope, self._timeout_s, self._folder, self._plan_file = scope, timeout_s, folder, plan_file
        self._most_bytes = most_bytes
        self._environ = command.environment(environ)
        self.apart = TextThread("lsf-text")
        self._names_hosts = True  # whether bslots -l does
        self._each = gpus
        self._queues_known: Mapping[str, QueueRow] = {}
        self._gpus_known: Mapping[str, Gpus] = {}
        self._told: dict[str, str] = {}
        self._windows = Rarely[tuple[BackfillWindow, ...]](self._asked_windows, WINDOWS_S, ())
        self._queues = Rarely[Mapping[str, QueueRow]](self._asked_queues, QUEUES_S, {})
        self._gpus = Rarely[Mapping[str, Gpus]](self._asked_gpus, GPUS_S, {})
        self._plans = Rarely[tuple[PlannedStart, ...]](self._read_plans, PLANS_S, ())

    def close(self) -> None:
        """End the thread that reads, and what is asked beside polls; commands do not outlive their calls."""
        self._windows.close()
        self._queues.close()
        self._gpus.close()
        self._plans.close()
        self.apart.close()

    async def run(
        self,
        words: Sequence[str],
        *,
        stdin: str = "",
        question: bool = False,
        besides: Mapping[str, str] | None = None,
    ) -> CommandOutput:
        """Run a command, an order unless it is a `question`, with some variables `besides`.

        Raises:
            SchedulerError: it cannot be run, takes too long, or prints too much.
        """
        done = await command.run(
            words,
            {**self._environ, **(besides or {})},
            self._timeout_s,
            stdin=stdin,
            question=question,
            most_bytes=self._most_bytes,
        )
        if done.cut:
            raise SchedulerError(f"{words[0]} printed more than {len(done.raw) // 1_000_000} MB")
        return done

    def path_of(self, words: Sequence[str]) -> list[str]:
        """The words of a command with its path."""
        return command.path_of(words, self._folder)

    async def hosts(self) -> tuple[dict[str, HostRow], CommandOutput]:
        """All hosts. Raises `SchedulerError`, as all of these do."""
        return await self._asked(commands.hosts(self.scope), lambda done: hosts_text.hosts(done.out))

    async def jobs(self, now: float) -> tuple[tuple[LsfJobRow, ...], CommandOutput]:
        """All jobs that have not ended; `now` is the present time on the batch system's clock."""
        return await self._asked(
            commands.jobs(self.scope.form), lambda done: jobs_text.jobs(done.out, done.err, now)
        )

    async def windows(self) -> tuple[BackfillWindow, ...]:
        """Backfill windows, as last asked; a site without bslots has none."""
        return await self._windows.last()

    async def _asked_windows(self) -> tuple[BackfillWindow, ...]:
        try:
            found = await self._named_windows() or await self._windows_of(long=False)
        except SchedulerError as error:
            self._note("bslots", str(error))
            return ()
        self._note("bslots", "")
        return found

    async def _named_windows(self) -> tuple[BackfillWindow, ...]:
        """Windows with the names of their hosts, where LSF's long form tells them all; else none, and it is
        not asked again."""
        if not self._names_hosts:
            return ()
        try:
            found = await self._windows_of(long=True)
        except SchedulerError:
            found = ()
            self._names_hosts = False
        if any(sum(one.hosts.values()) != one.slots for one in found):
            self._names_hosts = False
        return found if self._names_hosts else ()

    async def _windows_of(self, *, long: bool) -> tuple[BackfillWindow, ...]:
        found, _ = await self._asked(
            commands.windows(self.scope, long=long),
            lambda done: hosts_text.windows(f"{done.out}\n{done.err}"),
        )
        return found

    async def queues(self) -> Mapping[str, QueueRow]:
        """All queues, as last asked; without an answer none, so that main jobs count in the order of
        submission."""
        return await self._queues.last()

    async def _asked_queues(self) -> Mapping[str, QueueRow]:
        try:
            self._queues_known, _ = await self._asked(
                commands.queues(self.scope.form), lambda done: queues_text.queues(done.out)
            )
            self._note("bqueues", "")
        except SchedulerError as error:
            self._note("bqueues", str(error))
        return self._queues_known

    async def gpus(self, hosts: Collection[str]) -> Mapping[str, Gpus]:
        """The GPUs of these hosts, as last asked; none where neither of LSF's commands tells of any."""
        if self._each is not None:
            return dict.fromkeys(hosts, Gpus(self._each))
        return await self._gpus.last()

    async def _asked_gpus(self) -> Mapping[str, Gpus]:
        for words in (commands.gpus(self.scope), commands.gpus_of_lim(self.scope)):
            try:
                found, _ = await self._asked(words, lambda done: gpus_text.gpus(done.out))
            except SchedulerError as error:
                log.debug("%s: %s", " ".join(words[:2]), error)
                continue
            if found:
                self._gpus_known = found
                break
        return self._gpus_known

    async def plans(self) -> tuple[PlannedStart, ...]:
        """Return the planner's file, as last read; empty where there is none."""
        return await self._plans.last() if self._plan_file else ()

    async def _read_plans(self) -> tuple[PlannedStart, ...]:
        path = Path(self._plan_file)
        try:  # in another thread than what commands print: a file system may hang
            found = await asyncio.to_thread(lambda: jobs_text.plans(read_text(path, most_kb=MOST_PLAN_KB)))
        except (OSError, UnicodeDecodeError, TextError) as error:
            self._note("plan", f"{self._plan_file}: {error}")
            return ()
        self._note("plan", "")
        return found

    async def ends(self, jobs: Collection[str]) -> dict[str, LsfJobEnd]:
        """Return how jobs have ended, from bjobs and, for what it leaves open, from bhist."""
        shown = await self.run(self.path_of(commands.ended(jobs, self.scope.form)), question=True)
        known = await self.apart(lambda: ends.of_jobs(jobs, shown.out, ""))
        left = [job for job, end in known.items() if end.kind is EndKind.VANISHED]
        if not left:
            return known
        remembered = await self.run(self.path_of(commands.history(left)), question=True)
        return await self.apart(lambda: known | ends.of_jobs(left, "", remembered.out))

    async def _asked(
        self, words: Sequence[str], read: Callable[[CommandOutput], Found]
    ) -> tuple[Found, CommandOutput]:
        """The exit code is not asked: it may be 255 beside a good answer."""
        done = await self.run(self.path_of(words), question=True)
        try:
            return await self.apart(lambda: read(done)), done
        except TextError as error:
            raise SchedulerError(command.reason(done, f"{words[0]}: {error}")) from error

    def _note(self, what: str, why: str) -> None:
        """Say once that something cannot be asked, and when it can be again."""
        if why and not self._told.get(what):
            log.warning("LSF: %s", why)
        self._told[what] = why
