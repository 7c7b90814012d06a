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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from bftrainer.errors import CrowdedError, SchedulerError, UnsureError
from bftrainer.model.machine import Pilot
from bftrainer.model.main_jobs import Accounted
from bftrainer.ports import Clock
from bftrainer.schedulers.shared.batch import BatchScheduler, PilotRequest, TextThread
from bftrainer.schedulers.shared.claims import Known
from bftrainer.schedulers.shared.command import MOST_BYTES, CommandOutput
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
from bftrainer.schedulers.slurm.rows import SlurmJobEnd, SlurmJobRow
from bftrainer.schedulers.slurm.view import SlurmView

log = logging.getLogger(__name__)

UNANSWERED = (
    "Socket timed out",
    "Unexpected message received",
    "Zero Bytes were transmitted",
    "reset by peer",
)
"""Words of sbatch when Slurm may have accepted the job nonetheless."""
FULL = "temporarily unable to accept job"
"""Words of sbatch, which retries for minutes, while Slurm has as many jobs as it may (MaxJobCount)."""
HOPELESS = b"slurm_load_"  # how scontrol says that slurmctld does not answer; it goes on asking for a while


class SlurmScheduler(BatchScheduler[SlurmView]):
    """Slurm as a batch system.

    `watch` are the partitions whose nodes are seen; empty: the one of the pilots. `cloud`: those of state
    CLOUD may be ours. Every command may take `command_timeout_s`; of a queue `most_bytes` are read.
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
        super().__init__(clock, claim_patience_s)
        user = own_name()
        self._job, self._timeout_s, self._most_bytes = job, command_timeout_s, most_bytes
        self._apart = TextThread("slurm-text")
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
        self._warned = False
        self._cluster = ""  # ours by its name, where it is in a federation
        self._lax = ""  # how Slurm lets processes outlive their pilots
        self._learns: asyncio.Task[str] | None = None
        self._sees_all = False  # whether nothing was hidden from us in Slurm's latest fresh answer
        self._dialect: Dialect | None = None  # of Slurm in its latest fresh answer

    async def query(self, known: Callable[[float, float], Known]) -> SlurmView:
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
        earlier = known(now, behind_s)
        try:
            view = await self._apart(
                lambda: slurm_view.interpret(machine, jobs, self._ours, now=now + behind_s, known=earlier)
            )
        except TextError as error:
            raise SchedulerError(str(error)) from error
        if not self._warned and any(node.why == shut.UNREACHED for node in view.snapshot.nodes):
            self._warned = True
            log.warning("agents on the nodes cannot reach %s: set address (or listen)", self._job.daemon)
        self._sees_all = True
        asked_s, beyond = shown.took_s + asked.took_s, unseen(asked) or odd
        view = replace(view, snapshot=replace(view.snapshot, asked_s=asked_s, unseen=beyond))
        return view.shifted(-behind_s)

    async def listed(self) -> tuple[Pilot, ...]:
        """Our pilots in the queue."""
        return slurm_ours.pilots((await self._queue())[0], self._ours)

    def request(self, pilot: Pilot, secret: str, limit_s: float | None = None) -> PilotRequest:
        """The call of sbatch, with the limit of the partition as of the last poll. The secret is in the
        script, which Slurm shows to nobody else."""
        room = self.view.room(pilot.node) if self.view else slurm_pilot.PilotResources()
        words = slurm_pilot.command(self._job, pilot, limit_s, room, self._cluster)
        script = self._job.script(pilot, room.share, secret=secret)
        return PilotRequest(words=self._as(pilot.user, words), stdin=script)

    async def order(self, request: PilotRequest) -> CommandOutput:
        """Run sbatch. Raises `CrowdedError` if Slurm takes no jobs."""
        try:
            output = await self._run(request.words, request.stdin, b"", **request.environ)
        except SchedulerError as error:
            if FULL in str(error):
                raise CrowdedError(str(error)) from error
            raise
        if output.code != 0 and FULL in output.err:
            raise CrowdedError(reason(output, "sbatch failed"))
        return output

    def submitted(self, output: CommandOutput) -> str:
        """The job's number that sbatch printed."""
        if output.code != 0:
            kind = UnsureError if any(words in output.err for words in UNANSWERED) else SchedulerError
            raise kind(reason(output, "sbatch failed"))
        number = output.out.strip().partition(";")[0]
        if not number.isdecimal():
            raise UnsureError(f"sbatch gave no job number: {output.out.strip()[:80]!r}")
        return number

    async def end(self, user: str, jobs: Collection[str]) -> str:
        """End jobs with scancel."""
        running = {pilot.job for pilot in self.seen if not pilot.pending}
        return await self._ending.end(user, jobs, running)

    async def causes(self, jobs: Mapping[Pilot, str]) -> Mapping[Pilot, str]:
        """Return why jobs have failed, as long as slurmctld remembers them."""
        ends = await self._ends(jobs.values())
        return {p: slurm_pilot.failure(self._job, p, ends[job]) for p, job in jobs.items() if job in ends}

    async def taken(self, jobs: Mapping[Pilot, str]) -> Collection[Pilot]:
        """Those of these jobs that slurmctld has preempted."""
        ends = await self._ends(jobs.values())
        return [pilot for pilot, job in jobs.items() if job in ends and ends[job].preempted]

    async def _ends(self, jobs: Iterable[str]) -> Mapping[str, SlurmJobEnd]:
        asked = "".join(f"show job {job}\n" for job in jobs)
        return text.ends((await self._run(["scontrol", "-a", "-o"], asked)).out)

    async def accounted(self, since: float) -> Accounted:
        """Return what sacct says, or that slurmdbd is missing."""
        return await accounting.ask(self._run, self._apart, self._clock, since)

    async def close(self) -> None:
        """End the thread that reads; commands do not outlive their calls."""
        self._apart.close()
        if self._learns is not None:
            self._learns.cancel()

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

    async def _run(
        self, words: Sequence[str], stdin: str = "", hopeless: bytes = b"", **more: str
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
    """Warn of what squeue printed beyond our bound, and say what to do; "" if nothing."""
    if not queue.cut:
        return ""
    return (
        f"squeue prints more than {len(queue.raw) // 1_000_000} MB (max_squeue_mb): waiting main jobs of the "
        "lowest priorities are not seen, and no node is given back for them; raise max_squeue_mb, or let "
        "users have fewer jobs in the queue (MaxSubmitJobs, MaxJobCount)"
    )
