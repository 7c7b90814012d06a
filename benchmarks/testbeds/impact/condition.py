"""The condition that all runs of a comparison share, with any batch system."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.testbeds.harvest import Machine, Outcome
from benchmarks.testbeds.impact.events import Event
from benchmarks.testbeds.workload import MainJob, requests_for
from bftrainer.traces.formats.swf import Request

SPECS = Path(__file__).parents[1]
"""The folder of the trainers' specs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(ABC):
    """The condition that all runs of a comparison share.

    Attributes:
        mix: The name of a mix of main jobs.
        nodes: Nodes of the testbed.
        jobs: Main jobs; an array is one of them.
        seconds: Within which they are submitted.
        load: The share of node-time that they need.
        log: An SWF log that the jobs come from; "": they are generated.
        first: Jobs of the log to leave out.
        headroom: The daemon's setting; "": as by default.
    """

    mix: str
    nodes: int
    jobs: int
    seconds: float
    load: float
    log: str = ""
    first: int = 0
    headroom: str = ""

    @abstractmethod
    def name(self) -> str:
        """A name for a folder, which tells the conditions apart that the documentation compares."""

    @abstractmethod
    def title(self) -> str:
        """Return a title of the comparison."""

    @abstractmethod
    def main_jobs(self, seed: int) -> tuple[MainJob, ...]:
        """The jobs of a seed.

        Raises:
            LogError: the log cannot be read, or the jobs cannot be that load.
        """

    @abstractmethod
    def machine(self) -> AbstractContextManager[Machine]:
        """A new testbed, which is there within the context."""

    @abstractmethod
    def cycle_s(self) -> float:
        """Return how often the batch system goes through its queue, in s."""

    @abstractmethod
    def events(self, logs: Mapping[str, str]) -> Sequence[Event]:
        """Return the events in a run's logs, in order of time."""

    def played(
        self, jobs: Sequence[MainJob], *, with_trainers: bool, begin_after_s: float
    ) -> tuple[Outcome, dict[str, str]] | None:
        """A run in virtual time: its outcome and logs. None: the condition is one of real time."""
        return None

    def specs(self) -> tuple[Path, ...]:
        """The specs of the trainers."""
        return tuple(SPECS / name for name in ("quick.yaml", "slow.yaml"))

    def gpus(self, seed: int) -> Mapping[int, float]:
        """Return how many nodes' worth of GPUs each task of the seed's jobs has, by the job's number; empty
        where main jobs share no GPUs.

        Raises:
            LogError: the log cannot be read, or the jobs cannot be that load.
        """
        return {}

    def requests(self, seed: int) -> tuple[list[Request], int]:
        """The jobs of the log or of the seed, and their machine's nodes.

        Raises:
            LogError: the log cannot be read.
        """
        return requests_for(self.jobs, seed, Path(self.log) if self.log else None, self.first)

    def load_words(self) -> str:
        """The load, in words."""
        return f"{self.jobs} jobs in {self.seconds:.0f} s that need {self.load:.0%} of the node-time"
