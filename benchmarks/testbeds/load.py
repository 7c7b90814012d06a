"""Submits main jobs to a testbed at their times, as users do; each batch system has its own way."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from benchmarks.testbeds import runs
from benchmarks.testbeds.errors import TestbedError
from benchmarks.testbeds.runs import MainRun
from benchmarks.testbeds.waiting import until
from benchmarks.testbeds.workload import MainJob

AT_ONCE = 4
"""Submissions at a time, where many jobs are submitted together."""
RETRY_S = 1.0

SCRIPT = """\
#!/bin/bash
export LC_ALL=C
file={file}.{task}
echo $EPOCHREALTIME {job} >> $file.started
sleep {seconds}
echo $EPOCHREALTIME >> $file.ended
"""
"""Costs two small processes: bash knows the time by itself."""


class Load(ABC):
    """Main jobs on their way. As a context it starts with it, and what is left in the end is cancelled.

    Attributes:
        directory: Where jobs leave their times and submissions are written down, for `runs`.
        stop: Set when no more is to be submitted.
    """

    task, job = "0", "0"
    """A script's words for the number of its task and of its job."""

    def __init__(self, place: Path, jobs: Sequence[MainJob]) -> None:
        """Its own folder is made in `place`."""
        self._jobs = jobs
        self._tasks = sum(job.tasks for job in jobs)
        self.directory = Path(tempfile.mkdtemp(prefix="load-", dir=place))
        self.directory.chmod(0o755)
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._submit_all, name="load")
        self._failure: BaseException | None = None
        self._ids: dict[int, int] = {}
        self._submitted = threading.Condition()

    @abstractmethod
    def hand_in(self, job: MainJob, before: int | None) -> int | None:
        """Submit a job that waits for the end of job `before`; returns its number, None: not submitted.

        Raises:
            TestbedError: it is refused.
        """

    @abstractmethod
    def states(self) -> Mapping[int, str]:
        """Job -> how it ended: COMPLETED or, where it failed, in the batch system's words."""

    @abstractmethod
    def cancel(self, numbers: Collection[int]) -> None:
        """Cancel jobs, as far as that can be done."""

    def prepare(self, job: MainJob) -> float | None:
        """Make what a job needs before it is submitted; returns when it may begin then (Unix s)."""
        return None

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop.set()
        self._thread.join()
        if left := {run.job for run in self.runs() if not run.state}:
            self.cancel(left)

    def runs(self) -> tuple[MainRun, ...]:
        """Return what is known by now of the submitted jobs."""
        return runs.measure(self.directory, self.states())

    def done(self) -> bool:
        """Return whether every job has been submitted and ended.

        Raises:
            TestbedError: a job was refused.
        """
        if self._failure is not None:
            raise self._failure
        found = self.runs()
        return len(found) == self._tasks and all(run.state for run in found)

    def wait(self, timeout_s: float) -> None:
        """Wait until every job has ended.

        Raises:
            TestbedError: some have not in time, or one was refused.
        """
        if not until(self.done, timeout_s, every_s=0.2):
            left = self._tasks - sum(bool(run.state) for run in self.runs())
            raise TestbedError(f"{left} of {self._tasks} main jobs have not ended in {timeout_s:.0f} s")

    def script(self, job: MainJob) -> str:
        """Return the job's script, which writes down when it starts and ends."""
        file = self.directory / str(job.number)
        return SCRIPT.format(file=file, task=self.task, job=self.job, seconds=job.run_s)

    def name(self, job: MainJob) -> str:
        """The job's name; no other load has such a job."""
        return f"main-{job.number}-{self.directory.name}"

    def _submit_all(self) -> None:
        begin = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for job in self._jobs:
                if self.stop.wait(max(0.0, begin + job.submit_s - time.monotonic())):
                    break
                pool.submit(self._submit, job)

    def _submit(self, job: MainJob) -> None:
        """Try until the batch system has the job: its controller may be away for a while."""
        try:
            before = self._number(job.after) if job.after else None
            begins = self.prepare(job)
            while not self.stop.is_set():
                submitted = time.time()
                number = self.hand_in(job, before)
                if number is not None:
                    self._write(job, number, submitted, begins)
                    return
                self.stop.wait(RETRY_S)
        except BaseException as error:  # noqa: BLE001  handed to the thread that waits
            self._failure = error

    def _number(self, after: int) -> int | None:
        """The number of an earlier job, which another thread may just submit; None: we stop."""
        with self._submitted:
            while after not in self._ids:
                if self.stop.is_set() or self._failure is not None:
                    return None
                self._submitted.wait(RETRY_S)
            return self._ids[after]

    def _write(self, job: MainJob, number: int, submitted: float, begins: float | None) -> None:
        times = {"submitted": submitted, "accepted": time.time(), "begins": begins}
        row = {**asdict(job), "job": number, **times}
        with self._submitted:
            with (self.directory / "submitted.jsonl").open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(row)}\n")
            self._ids[job.number] = number
            self._submitted.notify_all()
