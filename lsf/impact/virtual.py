"""An emulated LSF in this process, in virtual time: its commands are answered without a process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bftrainer.errors import SchedulerError
from bftrainer.schedulers.lsf.command import HOPELESS, PRINTED
from bftrainer.schedulers.lsf.commands import Scope
from bftrainer.schedulers.lsf.questions import Questions
from bftrainer.schedulers.shared.command import CommandOutput
from lsf.emulator.commands.context import Answer, Call, Lsf
from lsf.emulator.commands.registry import answer
from lsf.emulator.core.cluster import Cluster
from lsf.emulator.core.jobs import Job
from lsf.emulator.core.model import Site
from lsf.impact.virtual_time import VirtualLoop

BEGIN = 1_800_000_000.0
ANSWER_S = 0.1
"""Seconds that each command takes."""
FOREVER_S = 1e8


class VirtualLsf:
    """An emulated LSF whose commands are answered in this process; its clock is the loop's."""

    def __init__(self, site: Site, loop: VirtualLoop) -> None:
        self._loop = loop
        self.lsf = Lsf(Cluster(site, BEGIN))

    def now(self) -> float:
        """Unix seconds."""
        return BEGIN + self._loop.time()

    def behind_s(self) -> float:
        """Nothing sets this clock."""
        return 0.0

    def ask(self, words: Sequence[str], stdin: str, env: Mapping[str, str]) -> Answer:
        """Answer a command at once. A job that it submits is a simulated one."""
        name = Path(words[0]).name
        before = max(self.lsf.cluster.state.jobs, default=0)
        call = Call(lsf=self.lsf, words=tuple(words[1:]), now=self.now(), env=env, read=lambda: stdin)
        made = answer(name, call)
        for number, job in self.lsf.cluster.state.jobs.items():
            if number > before and job.request.duration_s is None:
                self.runs_for(number, FOREVER_S)
        return made

    def runs_for(self, number: int, seconds: float) -> None:
        """Let a waiting job run for `seconds`."""
        job = self.lsf.cluster.state.jobs[number]
        job.request = replace(job.request, duration_s=seconds)

    def jobs(self) -> list[Job]:
        """Every job."""
        self.lsf.cluster.advance(self.now())
        return list(self.lsf.cluster.state.jobs.values())

    def hosts_of(self, job: Job) -> list[str]:
        """Those that a job has or had."""
        names = self.lsf.cluster.state.hosts.names
        return [names[at] for at in job.placement.hosts.tolist()] if job.placement else []


class VirtualQuestions(Questions):
    """Asks the emulated LSF in this process."""

    def __init__(self, lsf: VirtualLsf) -> None:
        super().__init__(Scope(), timeout_s=20.0)
        self._lsf = lsf

    async def run(
        self,
        words: Sequence[str],
        *,
        stdin: str = "",
        question: bool = False,
        besides: Mapping[str, str] | None = None,
    ) -> CommandOutput:
        """Return an answer after `ANSWER_S`; where LSF does not answer, what a command does that is bounded
        as ours are."""
        for _ in range(int(PRINTED["LSB_NTRIES"])):
            await asyncio.sleep(ANSWER_S)
            made = self._lsf.ask(words, stdin, {"LSB_SHORT_HOSTLIST": "1"})
            if (question and HOPELESS.decode() in made.err) or made.retry_s is None:
                break
            await asyncio.sleep(made.retry_s)
        if made.hang and not question:
            await asyncio.sleep(self._timeout_s)
            raise SchedulerError(f"LSF does not answer: {made.err.strip()}")
        return CommandOutput(made.code, made.out.encode(), made.err, took_s=ANSWER_S)
