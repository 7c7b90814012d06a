"""Submits main jobs to a testbed at their times, as users do: with sbatch."""

from __future__ import annotations

import contextlib
import json
import math
import pwd
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from types import TracebackType

from slurm.testbed import probe
from slurm.testbed.bed import Testbed
from slurm.testbed.plan import TestbedError
from slurm.testbed.probe import MainRun
from slurm.testbed.processes import until
from slurm.testbed.workload import MainJob, Reserved

AT_ONCE = 4
"""So many sbatch at a time, where many jobs are submitted together."""
SUBMIT_S = 20.0
RETRY_S = 1.0

SCRIPT = """\
#!/bin/bash
export LC_ALL=C
file={file}.${{SLURM_ARRAY_TASK_ID:-0}}
echo $EPOCHREALTIME $SLURM_JOB_ID >> $file.started
sleep {seconds}
echo $EPOCHREALTIME >> $file.ended
"""
"""Costs two small processes: bash knows the time by itself."""
RESERVATION = ("duration=2", "users=root", "flags=ignore_jobs,overlap,purge_comp=00:00:01")
"""It goes when its job has ended, or after two minutes. Main jobs may run on its node when it begins."""


class Load:
    """Main jobs on their way. As a context it starts with it, and what is left in the end is cancelled.

    Attributes:
        directory: Where jobs leave their times and submissions are written down, for `probe`.
    """

    def __init__(self, bed: Testbed, jobs: Sequence[MainJob], *, user: str | None = None) -> None:
        """`user` submits; None: root."""
        self._bed = bed
        self._jobs = jobs
        self._tasks = sum(job.tasks for job in jobs)
        self._user = user
        self.directory = Path(tempfile.mkdtemp(prefix="load-", dir=bed.plan.directory))
        self.directory.chmod(0o755)
        if user:
            shutil.chown(self.directory, user, pwd.getpwnam(user).pw_gid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._submit_all, name="load")
        self._failure: BaseException | None = None
        self._ids: dict[int, int] = {}
        self._submitted = threading.Condition()

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if left := {str(run.job) for run in self.runs() if not run.state}:
            with contextlib.suppress(TestbedError, subprocess.TimeoutExpired):
                self._bed.run(["scancel", *sorted(left)])

    def runs(self) -> tuple[MainRun, ...]:
        """What is known by now of the jobs that were submitted."""
        return probe.measure(self.directory, self._bed.plan.directory / "jobcomp.log")

    def done(self) -> bool:
        """Whether every job has been submitted and ended.

        Raises:
            TestbedError: Slurm refused a job.
        """
        if self._failure is not None:
            raise self._failure
        runs = self.runs()
        return len(runs) == self._tasks and all(run.state for run in runs)

    def wait(self, timeout_s: float) -> None:
        """Wait until every job has ended.

        Raises:
            TestbedError: some have not in time, or Slurm refused one.
        """
        if not until(self.done, timeout_s, every_s=0.2):
            left = self._tasks - sum(bool(run.state) for run in self.runs())
            raise TestbedError(f"{left} of {self._tasks} main jobs have not ended in {timeout_s:.0f} s")

    def _submit_all(self) -> None:
        begin = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for job in self._jobs:
                if self._stop.wait(max(0.0, begin + job.submit_s - time.monotonic())):
                    break
                pool.submit(self._submit, job)

    def _submit(self, job: MainJob) -> None:
        """Try until Slurm has the job: its controller may be away for a while."""
        try:
            before = self._number(job.after) if job.after else None
            begins = self._reserve(job, job.reserved) if job.reserved else None
            while not self._stop.is_set():
                submitted = time.time()
                number = self._sbatch(job, before)
                if number is not None:
                    self._write(job, number, submitted, begins)
                    return
                self._stop.wait(RETRY_S)
        except BaseException as error:  # noqa: BLE001  handed to the thread that waits
            self._failure = error

    def _number(self, after: int) -> int | None:
        """Slurm's number of an earlier job, which another thread may just submit; None: we stop."""
        with self._submitted:
            while after not in self._ids:
                if self._stop.is_set() or self._failure is not None:
                    return None
                self._submitted.wait(RETRY_S)
            return self._ids[after]

    def _reserve(self, job: MainJob, wanted: Reserved) -> float:
        """Make the job's reservation; returns when it begins (Unix s).

        Raises:
            TestbedError: Slurm refuses it.
        """
        begins = math.ceil(time.time() + wanted.begins_s)
        start = datetime.fromtimestamp(begins).isoformat()  # noqa: DTZ006  Slurm reads local time
        words = [f"reservationname={self._name(job)}", f"starttime={start}", f"nodes={wanted.node}"]
        self._bed.run(["scontrol", "create", "reservation", *words, *RESERVATION])
        return begins

    def _name(self, job: MainJob) -> str:
        return f"main-{job.number}-{self.directory.name}"

    def _command(self, job: MainJob, before: int | None) -> list[str]:
        """The call of sbatch; components of a heterogeneous job are separated by a colon."""
        common = [f"--job-name={self._name(job)}", f"--time={max(1, math.ceil(job.limit_s / 60))}"]
        first, *more = job.components or ((f"--nodes={job.size:g}",),)
        command = ["sbatch", "--parsable", "--output=/dev/null", *common, *first]
        command += [f"--dependency=afterany:{before}"] if before else []
        command += [f"--reservation={self._name(job)}"] if job.reserved else []
        for component in more:
            command += [":", *common, *component]
        return command

    def _sbatch(self, job: MainJob, before: int | None) -> int | None:
        """The job's number; None: not submitted.

        Raises:
            TestbedError: Slurm refuses it.
        """
        script = SCRIPT.format(file=self.directory / str(job.number), seconds=job.run_s)
        command = self._command(job, before)
        try:
            return int(self._bed.run(command, user=self._user, input=script, timeout=SUBMIT_S).stdout)
        except subprocess.TimeoutExpired:
            return self._found(self._name(job))
        except TestbedError as error:
            if "controller" in str(error) or "timed out" in str(error):
                return self._found(self._name(job))
            raise

    def _found(self, name: str) -> int | None:
        """The job of this name, where its submission went through although sbatch failed."""
        looks = 2  # a controller that wakes up may answer squeue before it comes to the submission
        while looks and not self._stop.wait(RETRY_S):
            with contextlib.suppress(TestbedError, subprocess.TimeoutExpired):
                shown = self._bed.run(["squeue", "-h", "-t", "all", "-n", name, "-o", "%i"]).stdout
                if number := re.match(r"\d+", shown):  # of an array or heterogeneous job more follows
                    return int(number[0])
                looks -= 1
        return None

    def _write(self, job: MainJob, number: int, submitted: float, begins: float | None) -> None:
        times = {"submitted": submitted, "accepted": time.time(), "begins": begins}
        row = {**asdict(job), "job": number, **times}
        with self._submitted:
            with (self.directory / "submitted.jsonl").open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(row)}\n")
            self._ids[job.number] = number
            self._submitted.notify_all()
