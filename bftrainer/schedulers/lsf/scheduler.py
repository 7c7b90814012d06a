"""LSF through its commands; `questions` and this module run them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from bftrainer.errors import NoRoomError, SchedulerError, UnsureError
from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Node, NodeState, Pilot, Snapshot
from bftrainer.model.main_jobs import Accounted
from bftrainer.ports import Clock
from bftrainer.schedulers.lsf import answers
from bftrainer.schedulers.lsf import pilot as lsf_pilot
from bftrainer.schedulers.lsf import view as lsf_view
from bftrainer.schedulers.lsf.check import accounting
from bftrainer.schedulers.lsf.command import reason
from bftrainer.schedulers.lsf.ending import LsfJobEnder
from bftrainer.schedulers.lsf.pilot import LsfPilotJob
from bftrainer.schedulers.lsf.questions import Questions
from bftrainer.schedulers.lsf.rows import LsfJobRow
from bftrainer.schedulers.lsf.view import LsfOwnJobs, LsfView, Shown
from bftrainer.schedulers.shared.cancelling import Cancelling
from bftrainer.schedulers.shared.claims import ClaimPatience
from bftrainer.schedulers.shared.command import CommandOutput
from bftrainer.schedulers.shared.context import Request
from bftrainer.schedulers.shared.times import shifted
from bftrainer.schedulers.shared.users import as_user, own_name

MISSES = 2
"""A job that ran has ended when so many answers in a row lack it."""


class Gaps:
    """Remembers our pilots from one answer to the next."""

    def __init__(self) -> None:
        self._last: dict[str, LsfJobRow] = {}
        self._missed: dict[str, int] = {}

    def filled(
        self, jobs: tuple[LsfJobRow, ...], mine: Collection[str], ended: Collection[str]
    ) -> tuple[LsfJobRow, ...]:
        """The jobs with those of ours that ran at the answer before, as they were then, unless they are
        missing for long or we have `ended` them. `mine` are the numbers of ours in this answer."""
        listed = {job.id for job in jobs}
        gone = [job for name, job in self._last.items() if name not in listed]
        self._missed = {job.id: self._missed.get(job.id, 0) + 1 for job in gone}
        kept = tuple(job for job in gone if self._missed[job.id] < MISSES and job.id not in ended)
        self._last = {job.id: job for job in (*_running(jobs, mine), *kept)}
        return jobs + kept


def _running(jobs: Iterable[LsfJobRow], mine: Collection[str]) -> Iterable[LsfJobRow]:
    return (job for job in jobs if job.id in mine and not job.pending)


log = logging.getLogger(__name__)

UNSEEN = Node(name="", state=NodeState.BUSY, cpus=1)
"""What is taken of a host that no poll has shown."""
NO_GPUS = (
    "share: gpu: neither bhosts -gpu nor lshosts -gpu tells of a GPU of any host; see why with `bftrainer "
    "lsf check`, or set lsf_gpus to the number of GPUs of each host"
)


class LsfScheduler:
    """Implements `ports.Scheduler`; methods without another docstring do what it says there.

    `launch` are patterns of hosts that only launch jobs. Hosts are kept free for a main job that should start
    for `claim_patience_s`.
    """

    def __init__(
        self,
        job: LsfPilotJob,
        questions: Questions,
        *,
        launch: tuple[str, ...] = (),
        claim_patience_s: float,
        clock: Clock,
    ) -> None:
        user = own_name()
        self._job, self._questions, self._clock = job, questions, clock
        users = None if job.exec_prefix else frozenset({user})
        self._ours = LsfOwnJobs(job.instance, user, users, launch, job.launch_slots, job.gpus)
        self._patience = ClaimPatience(claim_patience_s)
        self._ending = LsfJobEnder(questions.run, self._as)
        self._cancelling = Cancelling(lambda: self._jobs, self.pilots, self._ending.end)
        self._gaps = Gaps()
        self._jobs: dict[Pilot, set[str]] = {}  # of our pilots, as last seen
        self._submitted: dict[str, tuple[Pilot, str]] = {}  # host -> the last pilot for it, and its job
        self._seen: Mapping[str, Node] = {}  # as of the last poll
        self._until: dict[str, float] = {}  # host -> when it is expected to be taken, on LSF's clock
        self._kept: Mapping[str, str] = {}  # host whose pilots have ended for a main job -> that job

    async def poll(self) -> Snapshot:
        """The machine as LSF's commands show it now.

        Raises:
            SchedulerError: LSF does not answer, or single GPUs are shared out and it tells of none.
        """
        # hosts first: a job that starts in between is seen twice, never not at all
        hosts, first = await self._questions.hosts()
        jobs, second = await self._list()
        queues, windows = await self._questions.queues(), await self._questions.windows()
        plans = await self._questions.plans()
        gpus = await self._questions.gpus(hosts)
        if self._job.gpus and not gpus:
            raise SchedulerError(NO_GPUS)  # all pilots would be given up
        shown = Shown(hosts, jobs, queues, windows, plans, gpus)
        now, behind_s = self._clock.now(), self._clock.behind_s()  # LSF tells times of the machine's clock
        known, before, kept = self._patience.known(now, behind_s), dict(self._until), self._kept
        view = await self._questions.apart(
            lambda: lsf_view.interpret(
                shown, self._ours, now=now + behind_s, known=known, before=before, kept=kept
            )
        )
        self._remember(view, behind_s)
        return replace(shifted(view.snapshot, -behind_s), asked_s=first.took_s + second.took_s)

    async def pilots(self) -> tuple[Pilot, ...]:
        """Our pilots among the jobs."""
        jobs, _ = await self._list()
        pilots = self._mine(jobs)
        self._note(pilots)
        return pilots

    async def submit(self, pilot: Pilot, secret: str, limit_s: float | None = None) -> None:
        """Submit a pilot with bsub, as its user.

        Raises:
            NoRoomError: the last poll showed the host in use, or its hole is too short.
            UnsureError: the job may have been accepted.
            SchedulerError: it was refused.
        """
        if (node := self._seen.get(pilot.node)) and node.why:
            raise NoRoomError(f"{pilot.node} is not free: {node.why}")
        words, besides, script = self.request(pilot, secret, limit_s)
        try:
            done = await self._questions.run(words, stdin=script, besides=besides)
        except SchedulerError as error:
            raise UnsureError(str(error)) from error
        said = f"{done.out}\n{done.err}"
        number = answers.submitted(said)
        if not number and answers.refused(said):
            raise SchedulerError(f"bsub: {answers.why_refused(said)}")
        if not number:
            raise UnsureError(reason(done, f"bsub gave no job number: {answers.why_refused(said)!r}"))
        # a user may have put any job's number there: the queue tells that of its pilot by name
        if not pilot.user:
            self._jobs.setdefault(pilot, set()).add(number)
        self._submitted[pilot.node] = pilot, number

    def request(self, pilot: Pilot, secret: str, limit_s: float | None = None) -> Request:
        """The command that submits a pilot, with slots and GPUs of its host, or those of a single GPU, as of
        the last poll, its secret, and its standard input.

        Raises:
            SchedulerError: there can be no such pilot.
        """
        node = self._seen.get(pilot.node, UNSEEN)
        words = lsf_pilot.command(self._job, pilot, node.cpus, limit_s, gpus=node.gpus)
        share = 1.0
        if self._job.gpus:  # the pilots of all its host's GPUs have all its slots
            host = node_of(pilot.node)
            slots = sum(own.cpus for name, own in self._seen.items() if node_of(name) == host)
            share = node.cpus / max(1, slots)
        script = self._job.script(pilot, share, slots=str(node.cpus), gpus=str(node.gpus))
        return self._as(pilot.user, words), lsf_pilot.secretly(secret), script

    async def cancel(self, pilots: Sequence[Pilot]) -> None:
        """Cancel pilots with bkill, each as its user.

        Raises:
            SchedulerError: some could not be cancelled. `KeptError` if a user may have kept some.
        """
        await self._cancelling.cancel(pilots)

    async def failures(self, pilots: Sequence[Pilot]) -> Mapping[Pilot, str]:
        """Why pilots that are gone have failed, as long as LSF remembers their jobs; nothing of those that we
        have killed."""
        known = {pilot: self._number(pilot) for pilot in pilots}
        numbers = {p: job for p, job in known.items() if job and job not in self._ending.ended}
        if not numbers:
            return {}
        ends = await self._questions.ends(list(numbers.values()))
        for pilot, job in numbers.items():
            log.debug("pilot %s, job %s: %s", pilot.node, job, ends[job].kind)
        found = {pilot: lsf_pilot.failure(self._job, pilot, ends[job]) for pilot, job in numbers.items()}
        return {pilot: why for pilot, why in found.items() if why}

    async def accounted(self, since: float) -> Accounted:
        """What bacct and bjobs say; where they do not answer, that they do not."""
        return await accounting.count(self._questions, self._clock, since)

    async def close(self) -> None:
        """End the thread that reads; commands do not outlive their calls."""
        self._questions.close()

    def _number(self, pilot: Pilot) -> str:
        """The job of a pilot, even of one that no poll has shown; "" if it is not known."""
        last, number = self._submitted.get(pilot.node, (None, ""))
        return pilot.job or (number if last == pilot else "")

    def _as(self, user: str, words: Sequence[str]) -> list[str]:
        return as_user(self._job.exec_prefix, user, self._questions.path_of(words))

    async def _list(self) -> tuple[tuple[LsfJobRow, ...], CommandOutput]:
        """The jobs, with our pilots that only this answer lacks."""
        jobs, asked = await self._questions.jobs(self._clock.now() + self._clock.behind_s())
        mine = {pilot.job for pilot in self._mine(jobs)}
        return self._gaps.filled(jobs, mine, self._ending.ended), asked

    def _mine(self, jobs: Sequence[LsfJobRow]) -> tuple[Pilot, ...]:
        return lsf_view.pilots(jobs, self._ours, self._clock.now())

    def _remember(self, view: LsfView, behind_s: float) -> None:
        self._note(view.snapshot.pilots)
        self._seen = {node.name: node for node in view.snapshot.nodes}
        ends = {node_of(node.name): node.until for node in view.snapshot.nodes}
        self._until = {host: end for host, end in ends.items() if end is not None}
        self._kept = view.kept
        self._patience.remember(view.found, view.snapshot.time - behind_s)

    def _note(self, pilots: Sequence[Pilot]) -> None:
        self._jobs = defaultdict(set)
        for pilot in pilots:
            self._jobs[pilot].add(pilot.job)
