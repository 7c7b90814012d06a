"""Submits main jobs to a testbed at their times, as users do: with sbatch."""

from __future__ import annotations

import contextlib
import json
import math
import pwd
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from slurm.testbed import probe
from slurm.testbed.bed import Testbed
from slurm.testbed.plan import TestbedError
from slurm.testbed.probe import MainRun
from slurm.testbed.processes import until
from slurm.testbed.workload import MainJob

AT_ONCE = 4
"""So many sbatch at a time, where many jobs are submitted together."""
SUBMIT_S = 20.0
RETRY_S = 1.0

SCRIPT = """\
#!/bin/bash
export LC_ALL=C
echo $EPOCHREALTIME >> {file}.started
sleep {seconds}
echo $EPOCHREALTIME >> {file}.ended
"""
"""Costs two small processes: bash knows the time by itself."""


class Load:
    """Main jobs on their way. As a context it starts with it, and what is left in the end is cancelled.

    Attributes:
        directory: Where jobs leave their times and submissions are written down, for `probe`.
    """

    def __init__(self, bed: Testbed, jobs: Sequence[MainJob], *, user: str | None = None) -> None:
        """`user` submits; None: root."""
        self._bed = bed
        self._jobs = jobs
        self._user = user
        self.directory = Path(tempfile.mkdtemp(prefix="load-", dir=bed.plan.directory))
        self.directory.chmod(0o755)
        if user:
            shutil.chown(self.directory, user, pwd.getpwnam(user).pw_gid)
        self._stop = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._submit_all, name="load")
        self._failure: BaseException | None = None

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if left := [str(run.id) for run in self.runs() if not run.state]:
            with contextlib.suppress(TestbedError, subprocess.TimeoutExpired):
                self._bed.run(["scancel", *left])

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
        return len(runs) == len(self._jobs) and all(run.state for run in runs)

    def wait(self, timeout_s: float) -> None:
        """Wait until every job has ended.

        Raises:
            TestbedError: some have not in time, or Slurm refused one.
        """
        if not until(self.done, timeout_s, every_s=0.2):
            left = len(self._jobs) - sum(bool(run.state) for run in self.runs())
            raise TestbedError(f"{left} of {len(self._jobs)} main jobs have not ended in {timeout_s:.0f} s")

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
            while not self._stop.is_set():
                submitted = time.time()
                number = self._sbatch(job)
                if number is not None:
                    self._write(job, number, submitted)
                    return
                self._stop.wait(RETRY_S)
        except BaseException as error:  # noqa: BLE001  handed to whoever waits
            self._failure = error

    def _sbatch(self, job: MainJob) -> int | None:
        """The job's number; None: not submitted.

        Raises:
            TestbedError: Slurm refuses it.
        """
        name = f"main-{job.number}-{self.directory.name}"
        command = ["sbatch", "--parsable", f"--job-name={name}", f"--nodes={job.size}", "--output=/dev/null"]
        command += [f"--time={max(1, math.ceil(job.limit_s / 60))}"]
        script = SCRIPT.format(file=self.directory / str(job.number), seconds=job.run_s)
        try:
            return int(self._bed.run(command, user=self._user, input=script, timeout=SUBMIT_S).stdout)
        except subprocess.TimeoutExpired:
            return self._found(name)
        except TestbedError as error:
            if "controller" in str(error) or "timed out" in str(error):
                return self._found(name)
            raise

    def _found(self, name: str) -> int | None:
        """The job of this name, where its submission went through although sbatch failed."""
        looks = 2  # a controller that wakes up may answer squeue before it comes to the submission
        while looks and not self._stop.wait(RETRY_S):
            with contextlib.suppress(TestbedError, subprocess.TimeoutExpired):
                shown = self._bed.run(["squeue", "-h", "-t", "all", "-n", name, "-o", "%i"]).stdout.split()
                if shown:
                    return int(shown[0])
                looks -= 1
        return None

    def _write(self, job: MainJob, number: int, submitted: float) -> None:
        line = json.dumps({**asdict(job), "id": number, "submitted": submitted})
        with self._writing, (self.directory / "submitted.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
