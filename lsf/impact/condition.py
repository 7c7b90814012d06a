"""The conditions under which main jobs on an emulated LSF are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from benchmarks.testbeds.harvest import SETTINGS, Outcome
from benchmarks.testbeds.impact import condition
from benchmarks.testbeds.impact.events import Event
from benchmarks.testbeds.mix import mixed
from benchmarks.testbeds.workload import MainJob
from lsf.emulator import Emulator, sites
from lsf.impact.machine import LsfMachine, events_of
from lsf.impact.mix import KINDS, MIXES, SLOTS
from lsf.impact.played import play

CYCLE_S = 1.0
"""Seconds between two dispatches of the emulated LSF, as of Slurm on its testbed."""
SUMMIT_CYCLE_S = 5.0
REPORT_S = 0.5
"""Seconds that a simulated job that was told to end still counts as running."""
COMPRESSED = {name: SETTINGS[name] for name in ("poll_s", "spare_s", "debounce_s")}
"""The daemon's settings in virtual time: as in real time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(condition.Condition):
    """The condition that all runs of a comparison share; `mix` is a name of `mix.MIXES`.

    Attributes:
        slow: Jobs are dispatched every 5 s only, as on Summit.
        virtual: In virtual time: no process runs, and the daemon is its side towards LSF with an engine.
    """

    slow: bool = False
    virtual: bool = False

    def name(self) -> str:
        """A name for a folder, which tells the conditions apart that the documentation compares."""
        parts = [self.mix, f"{self.nodes}-hosts"]
        parts += ["slow"] if self.slow else []
        parts += ["virtual"] if self.virtual else []
        parts += [f"headroom-{self.headroom.rstrip('%')}"] if self.headroom else []
        return "-".join(parts)

    def title(self) -> str:
        """Return a title of the comparison."""
        words = [
            f"Mix `{self.mix}`, an emulated LSF of {self.nodes} hosts of {SLOTS} slots",
            self.load_words(),
        ]
        words += [f"jobs are dispatched every {SUMMIT_CYCLE_S:g} s"] if self.slow else []
        words += ["virtual time"] if self.virtual else []
        words += [f"headroom {self.headroom}"] if self.headroom else []
        return "; ".join(words)

    def main_jobs(self, seed: int) -> tuple[MainJob, ...]:
        """The jobs of a seed.

        Raises:
            LogError: the log cannot be read, or the jobs cannot be that load.
        """
        return mixed(
            *self.requests(seed),
            MIXES[self.mix],
            KINDS,
            nodes=self.nodes,
            seconds=self.seconds,
            load=self.load,
            seed=seed,
            shared=True,
        )

    def played(
        self, jobs: Sequence[MainJob], *, with_trainers: bool, begin_after_s: float
    ) -> tuple[Outcome, dict[str, str]] | None:
        """A run in virtual time: its outcome and logs. None: the condition is one of real time."""
        if not self.virtual:
            return None
        settings = COMPRESSED | ({"headroom": self.headroom} if self.headroom else {})
        site = replace(sites.small(self.nodes, slots=SLOTS), cycle_s=self.cycle_s(), report_s=REPORT_S)
        return play(site, jobs, with_trainers=with_trainers, begin_after_s=begin_after_s, **settings)

    @contextmanager
    def machine(self) -> Iterator[LsfMachine]:
        """A new emulated LSF, which is there within the context."""
        with Emulator(site=sites.small(self.nodes, slots=SLOTS), cycle_s=self.cycle_s()) as emulator:
            yield LsfMachine(emulator)

    def cycle_s(self) -> float:
        """Return how often jobs are dispatched, in s."""
        return SUMMIT_CYCLE_S if self.slow else CYCLE_S

    def events(self, logs: Mapping[str, str]) -> Sequence[Event]:
        """Return the events of LSF's jobs and the daemon's log, in order of time."""
        return events_of(logs)
