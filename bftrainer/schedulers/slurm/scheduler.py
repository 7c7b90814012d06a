"""Slurm through its commands; no other module runs them.

An answer that is not clear is an error, never an empty machine: with slurmctld down, some versions exit with
0 and print nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from bftrainer.errors import NoRoomError, SchedulerError, UnsureError
from bftrainer.model.machine import Pilot, Snapshot
from bftrainer.model.main_jobs import Accounted
from bftrainer.ports import Clock
from bftrainer.schedulers.shared.cancelling import Cancelling
from bftrainer.schedulers.shared.claims import ClaimPatience
from bftrainer.schedulers.shared.command import MOST_BYTES, CommandOutput
from bftrainer.schedulers.shared.context import Request
from bftrainer.schedulers.shared.instance import PREFIX
from bftrainer.schedulers.shared.text import TextError
from bftrainer.schedulers.shared.users import as_user, own_name
from bftrainer.schedulers.slurm import command, dialect, shut, text
from bftrainer.schedulers.slurm import own_jobs as slurm_ours
from bftrainer.schedulers.slurm import pilot as slurm_pilot
from bftrainer.schedulers.slurm import view as slurm_view
from bftrainer.schedulers.slurm.check import accounting, private, processes
from bftrainer.schedulers.slurm.check.partitions import of_config
from bftrainer.schedulers.slurm.command import reason
from bftrainer.schedulers.slurm.dialect import Dialect
from bftrainer.schedulers.slurm.ending import SlurmJobEnder
from bftrainer.schedulers.slurm.own_jobs import SlurmOwnJobs
from bftrainer.schedulers.slurm.pilot import SlurmPilotJob
from bftrainer.schedulers.slurm.queue import requests
from bftrainer.schedulers.slurm.rows import SlurmJobRow
from bftrainer.schedulers.slurm.view import SlurmView

log = logging.getLogger(__name__)
Found = TypeVar("Found")

UNANSWERED = (
    "Socket timed out",
    "Unexpected message received",
    "Zero Bytes were transmitted",
    "reset by peer",
)
"""What sbatch says when Slurm may have accepted the job nonetheless."""
HOPELESS = b"slurm_load_"  # how scontrol says that slurmctld does not answer; it goes on asking for a while


class SlurmScheduler:
    """Implements `ports.Scheduler`; methods without another docstring do what it says there.

    `watch` are the partitions whose nodes are seen; empty: the one of the pilots. `cloud`: those of state
    CLOUD may be ours. Every command may take `command_timeout_s`; of a queue `most_bytes` are read. Nodes are
    kept free for a main job that should start for `claim_patience_s`.
    """

    def __init__(
        self,
        job: SlurmPilotJob,
        *,
        watch: frozenset[str] = frozenset(),
        command_timeout_s: float,
        claim_patience_s: float,
        clock: Clock,
        cloud: bool = False,
        most_bytes: int = MOST_BYTES,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        user = own_name()
        self._job, self._clock = job, clock
        self._timeout_s, self._patience = command_timeout_s, ClaimPatience(claim_patience_s)
        self._most_bytes = most_bytes
        self._reader = ThreadPoolExecutor(1, "slurm-text")
        self._environ = command.environment(environ)  # also what pilots get, so nothing is added to it
        users = None if job.exec_prefix else frozenset({user})
        self._ours = SlurmOwnJobs(
            job.instance,
            user,
            users,
            job.partition,
            watch,
            preempted=not job.window and not job.qos,
            cloud=cloud,
            parts=job.parts,
            gpus=job.gpus,
            preempting=not job.window,
            here=names_of_here() if shut.is_loopback(job.daemon) else frozenset(),
        )
        self._ending = SlurmJobEnder(self._run, self._as)
        self._cancelling = Cancelling(
            lambda: self._jobs, self.pilots, lambda user, jobs: self._ending.end(user, jobs, self._running)
        )
        self._warned = False
        self._cluster = ""  # ours by its name, where it is in a federation
        self._lax = ""  # how Slurm lets processes outlive their pilots
        self._learns: asyncio.Task[str] | None = None
        self._sees_all = False  # whether nothing was hidden from us when Slurm last answered anew
        self._jobs: dict[Pilot, set[str]] = {}  # of our pilots, as last seen
        self._running: set[str] = set()  # those jobs of them that run
        self._submitted: dict[str, tuple[Pilot, str]] = {}  # node -> the last pilot for it, and its job
        self._view: SlurmView | None = None  # as of the last poll
        self._dialect: Dialect | None = None  # of Slurm when it last answered anew

    async def poll(self) -> Snapshot:
        """The machine as scontrol and squeue show it now."""
        if not self._sees_all:
            await self._see_all()
        self._sees_all = False  # after a poll that fails Slurm may come back with another configuration
        shown = await self._run(["scontrol", "-a", "-d", "-o"], text.SHOW, hopeless=HOPELESS)
        try:
            machine = await self._apart(lambda: text.machine(shown.out))
        except TextError as error:
            raise SchedulerError(reason(shown, str(error))) from error
        # nodes first: a job that starts in between is seen twice, never not at all
        jobs, asked = await self._queue()
        odd = ""
        if any(node.gpus for node in machine.nodes.values()):
            by_job, odd = await requests.ask(self._run, self._apart)
            jobs = requests.completed(jobs, by_job)
        now, behind_s = self._clock.now(), self._clock.behind_s()  # Slurm tells times of the machine's clock
        known = self._patience.known(now, behind_s)
        try:
            view = await self._apart(
                lambda: slurm_view.interpret(machine, jobs, self._ours, now=now + behind_s, known=known)
            )
        except TextError as error:
            raise SchedulerError(str(error)) from error
        self._remember(view := view.shifted(-behind_s))
        self._sees_all = True
        return replace(view.snapshot, asked_s=shown.took_s + asked.took_s, unseen=unseen(asked) or odd)

    async def pilots(self) -> tuple[Pilot, ...]:
        """Our pilots in the queue."""
        pilots = slurm_ours.pilots((await self._queue())[0], self._ours)
        self._note(pilots)
        return pilots

    async def submit(self, pilot: Pilot, secret: str, limit_s: float | None = None) -> None:
        """Submit a pilot with sbatch, as its user.

        Raises:
            NoRoomError: the last poll showed the node in use, or its hole is too short.
            UnsureError: the job may have been accepted.
            SchedulerError: it was refused.
        """
        if self._view and (why := self._view.why(pilot.node)):
            raise NoRoomError(f"{pilot.node} is not free: {why}")
        words, _, script = self.request(pilot, secret, limit_s)
        try:
            done = await self._run(words, script)
        except SchedulerError as error:
            raise UnsureError(str(error)) from error
        if done.code != 0:
            kind = UnsureError if any(words in done.err for words in UNANSWERED) else SchedulerError
            raise kind(reason(done, "sbatch failed"))
        number = done.out.strip().partition(";")[0]
        if not number.isdecimal():
            raise UnsureError(f"sbatch gave no job number: {done.out.strip()[:80]!r}")
        # a user may have put any job's number there: the queue tells that of its pilot by name
        if not pilot.user:
            self._jobs.setdefault(pilot, set()).add(number)
        self._submitted[pilot.node] = pilot, number

    def request(self, pilot: Pilot, secret: str, limit_s: float | None = None) -> Request:
        """The command that submits a pilot, with the limit of the partition as of the last poll, nothing
        besides, and its standard input.

        Raises:
            SchedulerError: there can be no such pilot.
        """
        room = self._view.room(pilot.node) if self._view else slurm_pilot.PilotResources()
        words = slurm_pilot.command(self._job, pilot, limit_s, room, self._cluster)
        return self._as(pilot.user, words), {}, self._job.script(pilot, room.share, secret=secret)

    async def cancel(self, pilots: Sequence[Pilot]) -> None:
        """Cancel pilots with scancel, each as its user.

        Raises:
            SchedulerError: some could not be cancelled. `KeptError` if a user may have kept some.
        """
        await self._cancelling.cancel(pilots)

    async def failures(self, pilots: Sequence[Pilot]) -> Mapping[Pilot, str]:
        """Why pilots that are gone have failed, as long as slurmctld remembers their jobs; nothing of those
        that we have killed."""
        known = {pilot: self._number(pilot) for pilot in pilots}
        numbers = {p: job for p, job in known.items() if job and job not in self._ending.ended}
        if not numbers:
            return {}
        asked = "".join(f"show job {number}\n" for number in numbers.values())
        ends = text.ends((await self._run(["scontrol", "-a", "-o"], asked)).out)
        found = {p: slurm_pilot.failure(self._job, p, ends[n]) for p, n in numbers.items() if n in ends}
        return {pilot: why for pilot, why in found.items() if why}

    async def accounted(self, since: float) -> Accounted:
        """What sacct says; where slurmdbd is missing, that it is."""
        return await accounting.ask(self._run, self._apart, self._clock, since)

    def _number(self, pilot: Pilot) -> str:
        """The job of a pilot, even of one that no poll has shown; "" if it is not known."""
        last, number = self._submitted.get(pilot.node, (None, ""))
        return pilot.job or (number if last == pilot else "")

    async def close(self) -> None:
        """End the thread that reads; commands do not outlive their calls."""
        self._reader.shutdown(wait=False, cancel_futures=True)
        if self._learns is not None:
            self._learns.cancel()

    async def _apart(self, work: Callable[[], Found]) -> Found:
        """Read what a command printed, in a thread of our own: users can make it long."""
        return await asyncio.get_running_loop().run_in_executor(self._reader, work)

    def _as(self, user: str, words: Sequence[str]) -> list[str]:
        return as_user(self._job.exec_prefix, user, words)

    async def _see_all(self) -> None:
        """Check that Slurm hides nothing from us that we need. Raises `SchedulerError` if it does."""
        done = await self._run(["scontrol", "show", "config"], hopeless=HOPELESS)
        try:
            hidden = private.hidden(done.out, os.geteuid())
        except TextError as error:
            raise SchedulerError(reason(done, str(error))) from error
        self._dialect = dialect.of_version(dialect.version(done.out))
        self._ending.own = private.is_slurms_own(done.out, os.geteuid())
        if (lax := processes.outliving(of_config(done.out))) != self._lax:
            self._lax = lax
            log.warning("%s", lax or f"ProctrackType is {processes.CGROUP} now")
        if hidden and (unknown := await self._learn()):
            raise SchedulerError(private.complaint(hidden, self._ours.user, unknown.strip()))
        if not hidden and self._job.exec_prefix and not self._ending.own:  # no poll waits for slurmdbd
            self._learns = asyncio.create_task(self._learn())
        federation = await self._run(["scontrol", "show", "federation"], hopeless=HOPELESS)
        self._cluster = private.federated(federation.out)

    async def _learn(self) -> str:
        """Ask whether our account is an operator: it may see and end all users' jobs then. Returns "" if it
        is; else why that is not known, or a space."""
        words = ["sacctmgr", "-n", "-P", "show", "user", self._ours.user, "format=AdminLevel"]
        try:
            asked = await self._run(words)
        except SchedulerError as error:
            return str(error)
        self._ending.own = asked.out.strip() in private.SEES_ALL
        if self._ending.own:
            return ""
        return asked.words if asked.err.strip() else " "

    async def _queue(self) -> tuple[tuple[SlurmJobRow, ...], CommandOutput]:
        """The jobs, and what squeue printed."""
        if self._dialect is None:
            await self._see_all()
        mark, asked = secrets.token_hex(8), self._dialect or dialect.WORDS
        environ = {**self._environ, **asked.request(mark)}
        words = ["squeue", "-h", "-a", f"--sort={text.ORDER}"]
        done = await command.run(words, environ, self._timeout_s, most_bytes=self._most_bytes)
        if done.code != 0 and not done.cut:
            raise SchedulerError(reason(done, "squeue failed"))
        try:
            jobs, odd = await self._apart(lambda: text.jobs(done.raw, mark, PREFIX, asked))
        except TextError as error:
            raise SchedulerError(str(error)) from error
        for line in odd:
            log.debug("squeue: a job that cannot be read: %s", line)
        return jobs, done

    def _remember(self, view: SlurmView) -> None:
        self._note(view.snapshot.pilots)
        self._view = view
        if not self._warned and any(node.why == shut.UNREACHED for node in view.snapshot.nodes):
            self._warned = True
            log.warning("agents on the nodes cannot reach %s: set address (or listen)", self._job.daemon)
        self._patience.remember(view.found, view.snapshot.time)

    def _note(self, pilots: Sequence[Pilot]) -> None:
        self._running = {pilot.job for pilot in pilots if not pilot.pending}
        self._jobs = defaultdict(set)
        for pilot in pilots:
            self._jobs[pilot].add(pilot.job)

    async def _run(
        self,
        words: Sequence[str],
        stdin: str = "",
        hopeless: bytes = b"",
        **more: str,
    ) -> CommandOutput:
        environ = {**self._environ, **more}
        done = await command.run(words, environ, self._timeout_s, stdin=stdin, hopeless=hopeless)
        if done.cut:
            raise SchedulerError(f"{words[0]} printed more than {len(done.raw) // 1_000_000} MB")
        return done


def names_of_here() -> frozenset[str]:
    """The names of this machine."""
    name = socket.gethostname()
    return frozenset({name, name.partition(".")[0]})


def unseen(queue: CommandOutput) -> str:
    """What squeue printed beyond our bound, and what to do; "" if nothing."""
    if not queue.cut:
        return ""
    return (
        f"squeue prints more than {len(queue.raw) // 1_000_000} MB (max_squeue_mb): waiting main jobs of the "
        "lowest priorities are not seen, and no node is given back for them; raise max_squeue_mb, or let "
        "users have fewer jobs in the queue (MaxSubmitJobs, MaxJobCount)"
    )
