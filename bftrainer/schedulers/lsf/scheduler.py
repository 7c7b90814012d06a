"""LSF through its commands; `questions` and this module run them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from bftrainer.errors import SchedulerError, UnsureError
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
from bftrainer.schedulers.lsf.rows import EndKind, LsfJobRow
from bftrainer.schedulers.lsf.view import LsfOwnJobs, LsfView, Shown
from bftrainer.schedulers.shared.batch import BatchScheduler, PilotRequest
from bftrainer.schedulers.shared.claims import Claims, Known
from bftrainer.schedulers.shared.command import CommandOutput
from bftrainer.schedulers.shared.users import as_user, own_name

MISSES = 2
"""Answers in a row without a running job after which it has ended."""


class Gaps:
    """Remembers our pilots from one answer to the next."""

    def __init__(self) -> None:
        self._last: dict[str, LsfJobRow] = {}
        self._missed: dict[str, int] = {}

    def filled(
        self, jobs: tuple[LsfJobRow, ...], mine: Collection[str], ended: Collection[str]
    ) -> tuple[LsfJobRow, ...]:
        """Return the jobs with our own that ran at the answer before, as they were then, unless they are
        missing for long or we have `ended` them. `mine` are our pilots' numbers in this answer."""
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
"""Assumed for a host that no poll has shown."""
NONE = LsfView(Snapshot(time=0.0, nodes=()), Claims())
"""The view before the first poll."""
NO_GPUS = (
    "share: gpu: neither bhosts -gpu nor lshosts -gpu tells of a GPU of any host; see why with `bftrainer "
    "lsf check`, or set lsf_gpus to the number of GPUs of each host"
)


class LsfScheduler(BatchScheduler[LsfView]):
    """LSF as a batch system. `launch` are patterns of hosts that only launch jobs."""

    def __init__(
        self,
        job: LsfPilotJob,
        questions: Questions,
        *,
        launch: tuple[str, ...] = (),
        claim_patience_s: float,
        clock: Clock,
    ) -> None:
        super().__init__(clock, claim_patience_s)
        user = own_name()
        self._job, self._questions = job, questions
        users = None if job.exec_prefix else frozenset({user})
        self._ours = LsfOwnJobs(job.instance, user, users, launch, job.launch_slots, job.gpus)
        self._ending = LsfJobEnder(questions.run, self._as)
        self._gaps = Gaps()

    async def query(self, known: Callable[[float, float], Known]) -> LsfView:
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
        earlier, last = known(now, behind_s), (self.view or NONE).shifted(behind_s)
        view = await self._questions.apart(
            lambda: lsf_view.interpret(
                shown,
                self._ours,
                now=now + behind_s,
                known=earlier,
                before=last.until,
                ends_before=last.ends_before,
                kept=last.kept,
            )
        )
        asked_s = first.took_s + second.took_s
        return replace(view, snapshot=replace(view.snapshot, asked_s=asked_s)).shifted(-behind_s)

    async def listed(self) -> tuple[Pilot, ...]:
        """Our pilots among the jobs."""
        return self._mine((await self._list())[0])

    def request(self, pilot: Pilot, secret: str, limit_s: float | None = None) -> PilotRequest:
        """The call of bsub, with slots and GPUs of the pilot's host, or those of a single GPU, as of the last
        poll. The secret is in its environment: LSF shows the script to every user."""
        nodes = {node.name: node for node in self.view.snapshot.nodes} if self.view else {}
        node = nodes.get(pilot.node, UNSEEN)
        words = lsf_pilot.command(self._job, pilot, node.cpus, limit_s, gpus=node.gpus)
        share = 1.0
        if self._job.gpus:  # the pilots of all its host's GPUs have all its slots
            host = node_of(pilot.node)
            slots = sum(own.cpus for name, own in nodes.items() if node_of(name) == host)
            share = node.cpus / max(1, slots)
        script = self._job.script(pilot, share, slots=str(node.cpus), gpus=str(node.gpus))
        environ = lsf_pilot.secretly(secret)
        return PilotRequest(words=self._as(pilot.user, words), stdin=script, environ=environ)

    async def order(self, request: PilotRequest) -> CommandOutput:
        """Run bsub."""
        return await self._questions.run(request.words, stdin=request.stdin, besides=request.environ)

    def submitted(self, output: CommandOutput) -> str:
        """The job's number that bsub printed."""
        said = f"{output.out}\n{output.err}"
        number = answers.submitted(said)
        if not number and answers.refused(said):
            raise SchedulerError(f"bsub: {answers.why_refused(said)}")
        if not number:
            raise UnsureError(reason(output, f"bsub gave no job number: {answers.why_refused(said)!r}"))
        return number

    async def end(self, user: str, jobs: Collection[str]) -> str:
        """End jobs with bkill."""
        return await self._ending.end(user, jobs, self.ended)

    async def causes(self, jobs: Mapping[Pilot, str]) -> Mapping[Pilot, str]:
        """Return why jobs have failed, as long as LSF remembers them."""
        ends = await self._questions.ends(list(jobs.values()))
        for pilot, job in jobs.items():
            log.debug("pilot %s, job %s: %s", pilot.node, job, ends[job].kind)
        return {pilot: lsf_pilot.failure(self._job, pilot, ends[job]) for pilot, job in jobs.items()}

    async def taken(self, jobs: Mapping[Pilot, str]) -> Collection[Pilot]:
        """Those of these jobs that LSF has ended for others."""
        ends = await self._questions.ends(list(jobs.values()))
        return [pilot for pilot, job in jobs.items() if ends[job].kind is EndKind.PREEMPTED]

    async def accounted(self, since: float) -> Accounted:
        """Return what bacct and bjobs say, or that they do not answer."""
        return await accounting.count(self._questions, self._clock, since)

    async def close(self) -> None:
        """End the thread that reads; commands do not outlive their calls."""
        self._questions.close()

    def _as(self, user: str, words: Sequence[str]) -> list[str]:
        return as_user(self._job.exec_prefix, user, self._questions.path_of(words))

    async def _list(self) -> tuple[tuple[LsfJobRow, ...], CommandOutput]:
        """The jobs, with our pilots that only this answer lacks."""
        jobs, asked = await self._questions.jobs(self._clock.now() + self._clock.behind_s())
        mine = {pilot.job for pilot in self._mine(jobs)}
        return self._gaps.filled(jobs, mine, self.ended), asked

    def _mine(self, jobs: Sequence[LsfJobRow]) -> tuple[Pilot, ...]:
        return lsf_view.pilots(jobs, self._ours, self._clock.now())
