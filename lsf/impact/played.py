"""Main jobs and the daemon's side towards LSF in virtual time: hours of many hosts pass in minutes.

Real is all that decides: the scheduler of LSF with its parsers, what holds and gives back nodes, the engine.
No process runs: main jobs and pilots are simulated jobs, and a trainer that is never done takes what it gets.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.testbeds.harvest import Outcome
from benchmarks.testbeds.runs import MainRun, utilisation
from benchmarks.testbeds.workload import MainJob
from bftrainer.allocate import decide
from bftrainer.engine.state import State
from bftrainer.engine.step import step
from bftrainer.model.events import Event, TrainerSubmitted
from bftrainer.model.reports import Message
from bftrainer.model.trainer import Points, Scalability, Trainer, TrainerSpec
from bftrainer.nodes.nodes import Nodes
from bftrainer.nodes.pilots import Pilots
from bftrainer.nodes.quarantine import Quarantine
from bftrainer.schedulers.lsf.make import batch
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.sources import load
from bftrainer.telemetry.telemetry import Telemetry
from lsf.emulator.core.jobs import Job
from lsf.emulator.core.model import Site
from lsf.emulator.core.model import State as JobState
from lsf.impact.machine import PILOTS
from lsf.impact.virtual import VirtualLsf, VirtualQuestions
from lsf.impact.virtual_time import VirtualLoop, run

LEAVE_S = 0.2
"""Seconds that workers take to leave a host."""
FIRST_S = 60.0
"""Seconds that trainers have the machine to themselves."""
LAST_S = 600.0
"""Seconds after the last submission when all main jobs have ended, or the run shows which have not."""
CURVE: Points = ((1, 100.0), (4096, 409_600.0))
NOWHERE = {"XDG_CONFIG_HOME": "/nowhere", "BFTRAINER_SITE_CONFIG": "/nowhere"}
SETTINGS = {"scheduler": "lsf", "lsf_queue": PILOTS, "submissions_per_minute": 1000, "spare_s": 2}


class Side:
    """The daemon's side towards LSF, with an engine and one trainer; agents and workers are made up."""

    def __init__(self, lsf: VirtualLsf, folder: Path, **settings: object) -> None:
        own = load({"state_dir": folder, **SETTINGS, **settings}, environ=NOWHERE)
        self._lsf, self.settings = lsf, LiveSettings(own)
        self._events: list[Event] = []
        self._left: dict[str, float] = {}  # host -> when its workers were told to leave
        self._state = State(settings=own.engine)
        telemetry = Telemetry()
        scheduler = batch(own, "nowhere:0", "0" * 8, lsf, VirtualQuestions(lsf))
        pilots = Pilots(
            *(scheduler, b"key", lsf, self._runs),
            *(telemetry.pilot, lambda reason: None),
            start_s=own.pilot_start_s,
            spare_s=own.spare_s,
            per_minute=own.submissions_per_minute,
            quarantine=Quarantine(lsf, frozenset),
        )
        self.nodes = Nodes(
            settings=self.settings,
            clock=lsf,
            scheduler=scheduler,
            pilots=pilots,
            link=self,
            workers=self,
            trainers=self._trainers,
            curves=lambda trainers: {trainer.id: CURVE for trainer in trainers},
            user_of=lambda spec: spec.user,
            emit=self._emit,
            telemetry=telemetry,
        )
        spec = TrainerSpec(
            name="endless",
            command=("x",),
            n_min=1,
            n_max=4096,
            samples=10**15,
            curve=CURVE,
            scalability=Scalability.GIVEN,
        )
        self._emit(TrainerSubmitted(time=lsf.now(), trainer=1, spec=spec))

    def _runs(self, node: str) -> bool:
        """Return whether a pilot runs on a node: its agent is there at once."""
        return any(
            job.request.queue == PILOTS and job.state is JobState.RUN and node in self._lsf.hosts_of(job)
            for job in self._lsf.lsf.cluster.state.active.values()
        )

    def _trainers(self) -> Sequence[Trainer]:
        return tuple(self._state.active.values())

    def _emit(self, event: Event) -> None:
        self._events.append(event)
        asyncio.get_running_loop().call_soon(self._decide)

    def _decide(self) -> None:
        before = {node for trainer in self._trainers() for node in trainer.nodes}
        engine = self.settings.current.engine
        while self._events:
            state = replace(self._state, settings=engine)
            self._state = step(state, self._events.pop(0), lambda problem: decide(problem, engine)).state
        after = {node for trainer in self._trainers() for node in trainer.nodes}
        self._left |= dict.fromkeys(before - after, self._lsf.now())
        self.nodes.hold.wake()

    # what agents and workers say

    def serves(self, node: str, spec: TrainerSpec) -> bool:
        """Every agent serves."""
        return True

    def devices(self, node: str) -> int:
        """No GPUs."""
        return 0

    def send(self, node: str, message: Message) -> None:
        """Agents do what they are told when their pilots end."""

    def busy(self, node: str) -> bool:
        """Return whether a worker trains on a node, or leaves it."""
        trains = any(node in trainer.nodes for trainer in self._trainers())
        return trains or self._lsf.now() < self._left.get(node, 0.0) + LEAVE_S

    def agent_down(self, node: str, *, blame: bool = False, waiting: bool = True) -> None:
        """The node is gone."""
        self._left.pop(node, None)


def play(
    site: Site, jobs: Sequence[MainJob], *, with_trainers: bool, begin_after_s: float, **settings: object
) -> tuple[Outcome, dict[str, str]]:
    """Play a load, without the daemon's side or with it; returns the outcome and what LSF knows of jobs."""

    async def story(loop: VirtualLoop) -> tuple[Outcome, dict[str, str]]:
        """Return the same."""
        lsf = VirtualLsf(site, loop)
        with tempfile.TemporaryDirectory(prefix="bftrainer-virtual-") as folder:
            tasks = []
            if with_trainers:
                side = Side(lsf, Path(folder), **settings)
                tasks = [
                    asyncio.create_task(side.nodes.watch.run()),
                    asyncio.create_task(side.nodes.hold.run()),
                ]
            await asyncio.sleep(FIRST_S + begin_after_s)
            begin = lsf.now()
            known = {job.number: number async for job, number in _submitted(lsf, jobs)}
            await asyncio.sleep(LAST_S)
            for task in tasks:
                if task.done():
                    task.result()  # it never ends by itself
        return _outcome(lsf, site, jobs, known, begin), {"lsf": json.dumps(_rows(lsf))}

    return run(story)


async def _submitted(lsf: VirtualLsf, jobs: Sequence[MainJob]) -> Any:
    begin = lsf.now()
    for job in jobs:
        await asyncio.sleep(max(0.0, begin + job.submit_s - lsf.now()))
        (options,) = job.components
        words = (
            "bsub",
            "-J",
            f"main-{job.number}",
            "-W",
            str(max(1, round(job.limit_s / 60))),
            *options,
            "x",
        )
        lsf.ask(words, "", {})
        made = max(lsf.lsf.cluster.state.jobs)
        lsf.runs_for(made, job.run_s)
        yield job, made


def _rows(lsf: VirtualLsf) -> list[dict[str, Any]]:
    return [
        {
            "id": job.id,
            "name": job.request.name,
            "queue": job.request.queue,
            "start": job.start,
            "end": job.end,
            "why": job.why,
            "hosts": lsf.hosts_of(job),
        }
        for job in lsf.jobs()
    ]


def _outcome(
    lsf: VirtualLsf, site: Site, jobs: Sequence[MainJob], known: dict[int, int], begin: float
) -> Outcome:
    found = {job.id: job for job in lsf.jobs()}
    runs = tuple(_run(job, found[known[job.number]]) for job in jobs)
    end = max(run.ended or lsf.now() for run in runs)
    nodes = sum(not host.launch for host in site.hosts)
    held = sum(
        max(0.0, min(job.end or end, end) - max(job.start, begin))
        for job in found.values()
        if job.request.queue == PILOTS and job.start is not None
    )
    return Outcome(
        nodes=nodes,
        runs=runs,
        begin=begin,
        end=end,
        main=utilisation(runs, nodes, begin, end),
        held=held / (nodes * (end - begin)),
        trained=0.0,
        samples=0,
        training=(),
        trainers=None,
    )


def _run(job: MainJob, seen: Job) -> MainRun:
    return MainRun(
        number=job.number,
        id=seen.id,
        size=job.size,
        run_s=job.run_s,
        limit_s=job.limit_s,
        submitted=seen.submitted,
        accepted=seen.submitted,
        eligible=seen.submitted,
        started=seen.start,
        ended=seen.end,
        state="COMPLETED" if seen.state is JobState.DONE else "EXIT" if seen.ended else "",
        kind=job.kind,
        job=seen.id,
        starts=seen.run + 1,
    )
