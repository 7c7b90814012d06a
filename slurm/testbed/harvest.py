"""A testbed on which trainers use the idle nodes while main jobs come and go, and what each got."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType

from bftrainer.demo.session import DemoSession
from bftrainer.demo.summary import Summary
from bftrainer.demo.view import View
from slurm.testbed.bed import Testbed
from slurm.testbed.load import Load
from slurm.testbed.plan import TestbedError
from slurm.testbed.probe import MainRun, utilisation
from slurm.testbed.processes import until
from slurm.testbed.workload import MainJob

TRAIN_S = 240.0
"""The first trainer may take so long to start."""
GONE_S = 30.0
SETTINGS = {
    "scheduler": "slurm",
    "slurm_partition": "backfill",
    "objective": "efficiency",  # trainers of different speed: all of them run
    "submissions_per_minute": 1000,  # time is compressed
    "log_format": "text",  # with times
    "poll_s": 0.25,
    "spare_s": 2,
    "debounce_s": 2,  # many a node is taken again right after a main job
}
"""The daemon's settings."""
PYTHON = """\
#!/bin/sh
# Pilots share this machine's few cores with Slurm itself, which has a cluster's nodes to itself elsewhere
exec nice -n 10 env OMP_NUM_THREADS=1 {python} "$@"
"""
POLLED = ("scontrol", "squeue")
SLOW = """\
#!/bin/sh
sleep {seconds}
{program} "$@"
code=$?
sleep {seconds}
exit $code
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """One moment: `time` in Unix seconds, the main jobs so far, the daemon's view (None without a daemon)."""

    time: float
    runs: tuple[MainRun, ...]
    view: View | None

    def held(self) -> int:
        """Return the number of nodes with a running pilot."""
        return sum(row["pilot"] == "up" for row in self.view.pool["nodes"]) if self.view else 0

    def training(self) -> int:
        """Return the number of nodes on which a trainer trains."""
        return sum(row["role"] == "member" for row in self.view.pool["nodes"]) if self.view else 0

    def samples(self) -> int:
        """Return the number of samples trained so far."""
        return sum(trainer["samples"] for trainer in self.view.trainers) if self.view else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result. Shares are of all node-time between `begin` and `end` (Unix s), 0 to 1.

    Attributes:
        nodes: Nodes of the testbed.
        runs: All main jobs.
        begin, end: When the load started, and when its last job ended.
        main, held, trained: Shares that main jobs, pilots and trainers had.
        samples: Samples trained in that time.
        training: (Unix s, nodes on which trainers trained from then on).
        trainers: The daemon's summary; None without a daemon.
    """

    nodes: int
    runs: tuple[MainRun, ...]
    begin: float
    end: float
    main: float
    held: float
    trained: float
    samples: int
    training: tuple[tuple[float, int], ...]
    trainers: Summary | None


def outcome(scenes: Sequence[Scene], nodes: int, begin: float, trainers: Summary | None) -> Outcome:
    """Compute the result from the scenes since `begin`; in the last one all main jobs have ended."""
    runs = scenes[-1].runs
    end = max((run.ended or run.submitted for run in runs), default=scenes[-1].time)
    seen = [scene for scene in scenes if begin <= scene.time <= end]
    held = trained = 0.0
    for now, then in pairwise(seen):
        held += now.held() * (then.time - now.time)
        trained += now.training() * (then.time - now.time)
    room = nodes * (end - begin)
    return Outcome(
        nodes=nodes,
        runs=runs,
        begin=begin,
        end=end,
        main=utilisation(runs, nodes, begin, end),
        held=held / room,
        trained=trained / room,
        samples=seen[-1].samples() - seen[0].samples() if seen else 0,
        training=tuple((scene.time, scene.training()) for scene in seen),
        trainers=trainers,
    )


class Harvest:
    """Main jobs on a testbed, with a daemon and its trainers or, without `specs`, by themselves.

    Use it as a context: iterate `scenes`, then call `finish`. The context ends all jobs and the daemon.
    """

    def __init__(
        self,
        bed: Testbed,
        jobs: Sequence[MainJob],
        specs: Sequence[Path],
        *,
        slow_polls_s: float = 0,
        begin_after_s: float = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """With `slow_polls_s` Slurm takes so much longer to answer the two commands of each poll. Main jobs
        come `begin_after_s` after trainers train. The daemon has `settings` beside the usual ones."""
        self._bed, self._jobs, self._specs = bed, jobs, specs
        self._demo: DemoSession | None = None
        self._seen: list[Scene] = []
        self._begin = 0.0
        self._after = contextlib.ExitStack()
        self._slow_polls_s, self._begin_after_s = slow_polls_s, begin_after_s
        self._more = settings or {}

    def __enter__(self) -> Harvest:
        with contextlib.ExitStack() as stack:
            if self._specs:
                environ = {"SLURM_CONF": str(self._bed.plan.conf)}
                if self._slow_polls_s:
                    environ["PATH"] = f"{self._slow_commands()}:{os.environ.get('PATH', os.defpath)}"
                self._demo = DemoSession([], settings=self._settings(), environ=environ)
                stack.callback(self._demo.close)
                self._demo.submit(self._specs)
            self._after = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._after.close()

    def _slow_commands(self) -> Path:
        """A folder with scontrol and squeue that take longer: half before and half after they ask."""
        place = self._bed.plan.directory / "slow"
        place.mkdir()
        for name in POLLED:
            program = place / name
            real = shutil.which(name, path=self._bed.env.get("PATH"))
            program.write_text(
                SLOW.format(program=real, seconds=self._slow_polls_s / len(POLLED) / 2), "utf-8"
            )
            program.chmod(0o755)
        return place

    def logs(self) -> dict[str, str]:
        """What slurmctld and, if there is one, the daemon have logged so far."""
        found = {
            "slurmctld": (self._bed.plan.directory / "log" / "slurmctld.log").read_text("utf-8", "replace")
        }
        return found | ({} if self._demo is None else {"daemon": self._demo.log()})

    def _settings(self) -> dict[str, object]:
        python = self._bed.plan.directory / "pilot-python"
        python.write_text(PYTHON.format(python=sys.executable), "utf-8")
        python.chmod(0o755)
        mode = "preempt" if self._bed.plan.preemption else "window"
        watched = ",".join(self._bed.plan.partitions)
        own = {"pilot_python": str(python), "slurm_mode": mode, "slurm_watch": watched}
        if self._bed.plan.heterogeneous:
            own |= {"slurm_qos": "bftrainer", "slurm_account": "bftrainer"}
        return {**SETTINGS, **own, **self._more}

    def scenes(self, every_s: float = 0.5) -> Iterator[Scene]:
        """Wait until trainers train, then let main jobs come; scenes until all of them have ended.

        Raises:
            TestbedError: no trainer starts, or Slurm refuses a job.
        """
        yield from self._warm_up(every_s)
        time.sleep(self._begin_after_s)
        with Load(self._bed, self._jobs) as load:
            self._begin = time.time()
            while True:
                done = load.done()
                yield self._look(load.runs())
                if done:
                    return
                time.sleep(every_s)

    def _warm_up(self, every_s: float) -> Iterator[Scene]:
        deadline = time.monotonic() + TRAIN_S
        while self._demo is not None:
            scene = self._look(())
            yield scene
            if scene.training() and scene.training() >= scene.held():
                return
            if time.monotonic() > deadline:
                raise TestbedError(f"no trainer trains after {TRAIN_S:.0f} s:\n{self._demo.log_end()}")
            time.sleep(every_s)

    def _look(self, runs: tuple[MainRun, ...]) -> Scene:
        view = self._demo.view() if self._demo is not None else None
        scene = Scene(time.time(), runs, view)
        self._seen.append(scene)
        return scene

    def finish(self) -> Outcome:
        """Stop the daemon, see that its pilots are gone, and put together what was seen.

        Raises:
            TestbedError: a pilot stays.
        """
        summary = self._demo.finish() if self._demo is not None else None
        if not until(lambda: not self._pilots(), GONE_S, every_s=0.2):
            raise TestbedError(f"pilots are left: {self._pilots()}")
        return outcome(self._seen, len(self._bed.plan.nodes), self._begin, summary)

    def _pilots(self) -> str:
        return self._bed.run(["squeue", "-h", "-p", "backfill"]).stdout.strip()
