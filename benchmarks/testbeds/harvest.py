"""A testbed on which trainers use the idle nodes while main jobs come and go, and what each got."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from benchmarks.testbeds.errors import TestbedError
from benchmarks.testbeds.load import Load
from benchmarks.testbeds.runs import MainRun, utilisation
from benchmarks.testbeds.waiting import until
from benchmarks.testbeds.workload import MainJob
from bftrainer.demo.session import DemoSession
from bftrainer.demo.summary import Summary
from bftrainer.demo.view import DaemonView
from bftrainer.model.gpus import node_of

TRAIN_S = 240.0
"""Seconds that the first trainer may take to start."""
GONE_S = 30.0
SETTINGS = {
    "objective": "efficiency",  # trainers of different speed: all of them run
    "submissions_per_minute": 1000,  # time is compressed
    "log_format": "text",  # with times
    "poll_s": 0.25,
    "spare_s": 2,
    "debounce_s": 2,  # many a node is taken again right after a main job
}
"""The daemon's settings, beside those of the testbed."""
PYTHON = """\
#!/bin/sh
# Pilots share this machine's few cores with the batch system, which does not elsewhere
exec nice -n 10 env OMP_NUM_THREADS=1 {python} "$@"
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """One moment: `time` in Unix seconds, the main jobs so far, the daemon's view (None without a daemon)."""

    time: float
    runs: tuple[MainRun, ...]
    view: DaemonView | None

    def held(self) -> float:
        """Return the nodes' worth that running pilots have."""
        return self._worth(lambda row: row["pilot"] == "up")

    def training(self) -> float:
        """Return the nodes' worth on which trainers train."""
        return self._worth(lambda row: row["role"] == "member")

    def _worth(self, counts: Callable[[Mapping[str, Any]], bool]) -> float:
        if self.view is None:
            return 0.0
        rows = self.view.pool["nodes"]
        gpus = Counter(node_of(row["node"]) for row in rows)
        return sum(part(row) / gpus[node_of(row["node"])] for row in rows if counts(row))

    def samples(self) -> int:
        """Return the number of samples trained so far."""
        return sum(trainer["samples"] for trainer in self.view.trainers) if self.view else 0


def part(row: Mapping[str, Any]) -> float:
    """Return the share of its node that a pilot has, by its GPUs: a row of the pool is a node, or one GPU.

    A pilot of a part of a node has cores and memory in proportion. It has all where nothing is known of GPUs.
    """
    has = row.get("devices", "").partition(" ")[0]
    if not has.isdecimal() or not row.get("gpus"):
        return 1.0
    return min(1.0, int(has) / int(row["gpus"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result. Shares are of all node-time between `begin` and `end` (Unix s), 0 to 1.

    Attributes:
        nodes: Nodes of the testbed.
        runs: All main jobs.
        begin, end: When the load started, and when its last job ended.
        main, held, trained: Shares that main jobs, pilots and trainers had.
        samples: Samples trained in that time.
        training: (Unix s, nodes' worth on which trainers trained from then on).
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
    training: tuple[tuple[float, float], ...]
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


class Machine(Protocol):
    """A testbed that runs, of any batch system; main jobs preempt pilots there."""

    name: str
    """The batch system's."""

    @property
    def directory(self) -> Path:
        """Everything of it lies there."""

    @property
    def nodes(self) -> int:
        """Return how many it has."""

    def load(self, jobs: Sequence[MainJob]) -> Load:
        """Main jobs for it."""

    def settings(self) -> dict[str, object]:
        """Return the daemon's settings for it."""

    def environ(self) -> Mapping[str, str]:
        """Return the variables that the daemon's environment needs beside the usual."""

    def logs(self) -> dict[str, str]:
        """Return the batch system's logs so far, by name."""

    def pilots(self) -> str:
        """The pilots that are left, in words; "" for none."""

    def occupants(self) -> dict[str, str]:
        """Node -> the main job on it, as `main-7`."""


class Harvest:
    """Main jobs on a testbed, with a daemon and its trainers or, without `specs` and `study`, by themselves.

    Use it as a context: iterate `scenes`, then call `finish`. The context ends all jobs and the daemon.
    """

    def __init__(
        self,
        machine: Machine,
        jobs: Sequence[MainJob],
        specs: Sequence[Path],
        *,
        begin_after_s: float = 0,
        settings: Mapping[str, object] | None = None,
        study: Path | None = None,
    ) -> None:
        """Main jobs come `begin_after_s` after trainers, and trials of `study`, train. The daemon has
        `settings` beside the usual ones."""
        self.machine, self._jobs, self._specs, self._study = machine, jobs, specs, study
        self._demo: DemoSession | None = None
        self._seen: list[Scene] = []
        self._begin = 0.0
        self._after = contextlib.ExitStack()
        self._begin_after_s = begin_after_s
        self._more = settings or {}

    def __enter__(self) -> Harvest:
        with contextlib.ExitStack() as stack:
            if self._specs or self._study:
                environ = self.machine.environ()
                self._demo = DemoSession([], settings=self._settings(), environ=environ)
                stack.callback(self._demo.close)
                self._demo.submit(self._specs)
                if self._study:
                    self._demo.submit_study(self._study)
            self._after = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._after.close()

    def logs(self) -> dict[str, str]:
        """Return the logs so far of the batch system and, if there is one, the daemon."""
        return self.machine.logs() | ({} if self._demo is None else {"daemon": self._demo.log()})

    def _settings(self) -> dict[str, object]:
        python = self.machine.directory / "pilot-python"
        python.write_text(PYTHON.format(python=sys.executable), "utf-8")
        python.chmod(0o755)
        return {**SETTINGS, **self.machine.settings(), "pilot_python": str(python), **self._more}

    def scenes(self, every_s: float = 0.5) -> Iterator[Scene]:
        """Wait until trainers train, then let main jobs come; scenes until all of them have ended.

        Raises:
            TestbedError: no trainer starts, or the batch system refuses a job.
        """
        yield from self._warm_up(every_s)
        time.sleep(self._begin_after_s)
        with self.machine.load(self._jobs) as load:
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
            if scene.samples() and scene.training() and scene.training() >= scene.held():
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
        if not until(lambda: not self.machine.pilots(), GONE_S, every_s=0.2):
            raise TestbedError(f"pilots are left: {self.machine.pilots()}")
        return outcome(self._seen, self.machine.nodes, self._begin, summary)
