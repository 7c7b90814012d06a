"""An emulated LSF as a `harvest` of the testbeds uses one: main jobs by bsub, pilots, and what happened."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.testbeds import load
from benchmarks.testbeds.errors import TestbedError
from benchmarks.testbeds.impact.events import Event, Job, What, of_daemon
from benchmarks.testbeds.workload import MainJob
from lsf.emulator import Emulator
from lsf.emulator.core.jobs import PREEMPT

PILOTS = "killable"
"""The queue whose jobs those of the other one preempt."""
OURS = "bftrainer-"
ALIVE = frozenset({"PEND", "RUN", "SSUSP", "USUSP", "PSUSP"})
SUBMITTED = re.compile(r"Job <(\d+)> is submitted")
SUBMIT_S = 20.0
JUST_S = 1.0
"""Seconds after a pilot's end within which a main job that starts on its host was the cause."""


class Load(load.Load):
    """Main jobs of an emulated LSF, real processes on this machine."""

    job = "$LSB_JOBID"

    def __init__(self, emulator: Emulator, jobs: Sequence[MainJob]) -> None:
        super().__init__(emulator.directory, jobs)
        self._emulator = emulator

    def states(self) -> Mapping[int, str]:
        """COMPLETED, or LSF's state with the exit code."""
        return {job["id"]: _state(job) for job in self._emulator.jobs() if job["state"] in ("DONE", "EXIT")}

    def cancel(self, numbers: Collection[int]) -> None:
        """With bkill."""
        self._emulator.run("bkill", *map(str, sorted(numbers)))

    def hand_in(self, job: MainJob, before: int | None) -> int | None:
        """With bsub.

        Raises:
            TestbedError: LSF refuses it.
        """
        (options,) = job.components or (("-nnodes", f"{job.size:g}"),)
        minutes = max(1, math.ceil(job.limit_s / 60))
        words = ("bsub", "-J", self.name(job), "-W", str(minutes), "-o", "/dev/null", *options)
        done = self._emulator.run(*words, input=self.script(job), timeout=SUBMIT_S)
        found = SUBMITTED.search(f"{done.stdout}\n{done.stderr}")
        if found is None:
            raise TestbedError(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.strip()}")
        return int(found[1])


def _state(job: Mapping[str, Any]) -> str:
    return "COMPLETED" if job["state"] == "DONE" else f"EXIT {job['code']} {job['why']}".strip()


class LsfMachine:
    """An emulated LSF that runs."""

    name = "an emulated LSF"

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator

    @property
    def directory(self) -> Path:
        """Everything of it lies there."""
        return self._emulator.directory

    @property
    def nodes(self) -> int:
        """Return how many hosts compute."""
        return sum(not host.launch for host in self._emulator.site.hosts)

    def load(self, jobs: Sequence[MainJob]) -> Load:
        """Main jobs for it."""
        return Load(self._emulator, jobs)

    def settings(self) -> dict[str, object]:
        """Return the daemon's settings for it."""
        return {"scheduler": "lsf", "lsf_queue": PILOTS, "lsf_bin": str(self._emulator.bin)}

    def environ(self) -> Mapping[str, str]:
        """Return no variables: the daemon's environment needs none beside the usual."""
        return {}

    def logs(self) -> dict[str, str]:
        """Every job with its times, as JSON."""
        return {"lsf": json.dumps(self._emulator.jobs())}

    def pilots(self) -> str:
        """The pilots that are left, in words; "" for none."""
        left = (job for job in self._emulator.jobs() if job["state"] in ALIVE)
        return ", ".join(f"{job['name']} {job['state']}" for job in left if job["name"].startswith(OURS))

    def occupants(self) -> dict[str, str]:
        """Host -> the main job on it."""
        return {
            host: "-".join(job["name"].split("-")[:2])
            for job in self._emulator.jobs()
            if job["state"] == "RUN" and job["queue"] != PILOTS
            for host in job["hosts"]
        }


def events_of(logs: Mapping[str, str]) -> list[Event]:
    """Return what LSF's jobs and the daemon's log say, in order of time."""
    jobs = json.loads(logs.get("lsf", "[]"))
    found = [*_of_jobs(jobs), *of_daemon(logs.get("daemon", ""))]
    return sorted(found, key=lambda event: event.time)


def _of_jobs(jobs: Sequence[Mapping[str, Any]]) -> Iterator[Event]:
    mains = [job for job in jobs if job["queue"] != PILOTS and job["start"] is not None]
    for job in mains:
        nodes = frozenset(job["hosts"])
        yield Event(
            job["start"], What.STARTED, (Job(job["id"]),), f"on {' '.join(sorted(nodes))}", nodes=nodes
        )
    for pilot in jobs:
        if pilot["queue"] == PILOTS and pilot["why"] == PREEMPT:
            ended = pilot["end"]
            taken = tuple(
                Job(job["id"])
                for job in mains
                if set(pilot["hosts"]) & set(job["hosts"]) and 0 <= job["start"] - ended < JUST_S
            )
            yield Event(ended, What.PREEMPTED, taken, f"LSF has preempted {pilot['name']}")
