"""Main jobs on a Slurm testbed, submitted with sbatch."""

from __future__ import annotations

import contextlib
import math
import pwd
import re
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from benchmarks.testbeds import load
from benchmarks.testbeds.errors import TestbedError
from benchmarks.testbeds.load import RETRY_S
from benchmarks.testbeds.workload import MainJob
from bftrainer.schedulers.slurm.scheduler import UNANSWERED
from slurm.testbed.bed import Testbed

SUBMIT_S = 20.0
RESERVATION = ("duration=2", "users=root", "flags=ignore_jobs,overlap,purge_comp=00:00:01")
"""It goes when its job has ended, or after two minutes. Main jobs may run on its node when it begins."""
ENDED = re.compile(r"^JobId=(\d+) .* JobState=(\S+) Partition=\S+ ", re.MULTILINE)
"""A line that `jobcomp/filetxt` writes when a job ends; its name before the state may hold anything."""


def ended(jobcomp: str) -> dict[int, str]:
    """Job -> its state in the end; of a requeued job, which has several lines, the last."""
    return {int(number): state for number, state in ENDED.findall(jobcomp)}


class Load(load.Load):
    """Main jobs of a Slurm testbed."""

    task, job = "${SLURM_ARRAY_TASK_ID:-0}", "$SLURM_JOB_ID"

    def __init__(self, bed: Testbed, jobs: Sequence[MainJob], *, user: str | None = None) -> None:
        """`user` submits; None: root."""
        super().__init__(bed.plan.directory, jobs)
        self._bed, self._user = bed, user
        if user:
            shutil.chown(self.directory, user, pwd.getpwnam(user).pw_gid)

    def states(self) -> Mapping[int, str]:
        """As Slurm's file of ended jobs has them."""
        try:
            return ended((self._bed.plan.directory / "jobcomp.log").read_text("utf-8", "replace"))
        except FileNotFoundError:  # no job has ended
            return {}

    def cancel(self, numbers: Collection[int]) -> None:
        """With scancel."""
        with contextlib.suppress(TestbedError, subprocess.TimeoutExpired):
            self._bed.run(["scancel", *sorted(map(str, numbers))])

    def prepare(self, job: MainJob) -> float | None:
        """Make the job's reservation, if it has one; returns when it begins (Unix s).

        Raises:
            TestbedError: Slurm refuses it.
        """
        if not job.reserved:
            return None
        begins = math.ceil(time.time() + job.reserved.begins_s)
        start = datetime.fromtimestamp(begins).isoformat()  # noqa: DTZ006  Slurm reads local time
        words = [f"reservationname={self.name(job)}", f"starttime={start}", f"nodes={job.reserved.node}"]
        self._bed.run(["scontrol", "create", "reservation", *words, *RESERVATION])
        return begins

    def _command(self, job: MainJob, before: int | None) -> list[str]:
        """The call of sbatch; components of a heterogeneous job are separated by a colon."""
        common = [f"--job-name={self.name(job)}", f"--time={max(1, math.ceil(job.limit_s / 60))}"]
        first, *more = job.components or ((f"--nodes={job.size:g}",),)
        command = ["sbatch", "--parsable", "--output=/dev/null", *common, *first]
        command += [f"--dependency=afterany:{before}"] if before else []
        command += [f"--reservation={self.name(job)}"] if job.reserved else []
        for component in more:
            command += [":", *common, *component]
        return command

    def hand_in(self, job: MainJob, before: int | None) -> int | None:
        """With sbatch.

        Raises:
            TestbedError: Slurm refuses it.
        """
        command = self._command(job, before)
        try:
            done = self._bed.run(command, user=self._user, input=self.script(job), timeout=SUBMIT_S)
            return int(done.stdout)
        except subprocess.TimeoutExpired:
            return self._found(self.name(job))
        except TestbedError as error:
            if any(words in str(error) for words in ("controller", "timed out", *UNANSWERED)):
                return self._found(self.name(job))
            raise

    def _found(self, name: str) -> int | None:
        """The job of this name, where its submission went through although sbatch failed."""
        looks = 2  # a controller that wakes up may answer squeue before it comes to the submission
        while looks and not self.stop.wait(RETRY_S):
            with contextlib.suppress(TestbedError, subprocess.TimeoutExpired):
                shown = self._bed.run(["squeue", "-h", "-t", "all", "-n", name, "-o", "%i"]).stdout
                if number := re.match(r"\d+", shown):  # of an array or heterogeneous job more follows
                    return int(number[0])
                looks -= 1
        return None
