"""The conditions under which main jobs on a Slurm testbed are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.testbeds.impact import condition
from benchmarks.testbeds.impact.events import Event
from benchmarks.testbeds.mix import mixed
from benchmarks.testbeds.workload import MainJob
from slurm.impact.logs import events_of
from slurm.testbed import Testbed
from slurm.testbed.machine import SlurmMachine
from slurm.testbed.mix import IN_PARTS, KINDS, MIXES, gpus_of, gres
from slurm.testbed.plan import CORES

INTERVAL_S, STOCK_INTERVAL_S = 1.0, 30.0
"""Seconds between two runs of Slurm's backfill, on a testbed and by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(condition.Condition):
    """The condition that all runs of a comparison share; `mix` is a name of `mix.MIXES`.

    Attributes:
        shared: Whether main jobs share nodes.
        stock: Slurm's own scheduling intervals and parameters.
        slow_polls_s: Seconds that a poll takes longer.
        preempting: Whether heterogeneous jobs preempt pilots, against what sites are advised.
        share: What trainers get: nodes, or single GPUs.
    """

    shared: bool
    stock: bool = False
    slow_polls_s: float = 0
    preempting: bool = False
    share: str = "node"

    def name(self) -> str:
        """A name for a folder, which tells the conditions apart that the documentation compares."""
        parts = [self.mix, "shared" if self.shared else "exclusive", f"{self.nodes}-nodes"]
        parts += ["stock"] if self.stock else []
        parts += [f"polls-{self.slow_polls_s:g}s"] if self.slow_polls_s else []
        parts += [f"headroom-{self.headroom.rstrip('%')}"] if self.headroom else []
        parts += ["het-preempt"] if self.preempting else []
        parts += ["single-gpus"] if self.share == "gpu" else []
        return "-".join(parts)

    def title(self) -> str:
        """Return a title of the comparison."""
        own = "main jobs share nodes" if self.shared else "main jobs have whole nodes"
        words = [f"Mix `{self.mix}`, {own}, {self.nodes} nodes of 4 cores", self.load_words()]
        words += ["Slurm's stock intervals"] if self.stock else []
        words += [f"each poll {self.slow_polls_s:g} s longer"] if self.slow_polls_s else []
        words += [f"headroom {self.headroom}"] if self.headroom else []
        words += ["single GPUs are shared out"] if self.share == "gpu" else []
        return "; ".join(words)

    def main_jobs(self, seed: int) -> tuple[MainJob, ...]:
        """The jobs of a seed.

        Raises:
            LogError: the log cannot be read, or the jobs cannot be that load.
        """
        requests, machine = self.requests(seed)
        return mixed(
            requests,
            machine,
            MIXES[self.mix],
            KINDS,
            nodes=self.nodes,
            seconds=self.seconds,
            load=self.load,
            seed=seed,
            shared=self.shared,
        )

    def gpus(self, seed: int) -> Mapping[int, float]:
        """Return how many nodes' worth of GPUs each task of a job has, where nodes have as many as cores."""
        if self.mix not in IN_PARTS:
            return {}
        return {job.number: gpus_of(job.components) / CORES for job in self.main_jobs(seed)}

    def testbed(self) -> Testbed:
        """A testbed for it."""
        mix = MIXES[self.mix]
        return Testbed(
            self.nodes,
            stock=self.stock,
            shared=self.shared,
            mixed=True,
            heterogeneous="heterogeneous" in mix.shares and not self.preempting,
            slurmdbd=mix.slurmdbd,
            parts=self.shared and self.mix in IN_PARTS,
            gres=gres(self.mix, self.nodes),
        )

    @contextmanager
    def machine(self) -> Iterator[SlurmMachine]:
        """A new testbed, which is there within the context."""
        with self.testbed() as bed:
            yield SlurmMachine(bed, slow_polls_s=self.slow_polls_s, share=self.share)

    def specs(self) -> tuple[Path, ...]:
        """The specs of the trainers: on single GPUs, where these are shared out."""
        if self.share == "gpu":
            return tuple(condition.SPECS / name for name in ("quick-gpus.yaml", "slow-gpus.yaml"))
        return super(Condition, self).specs()

    def cycle_s(self) -> float:
        """Return how often Slurm's backfill goes through its queue, in s."""
        return STOCK_INTERVAL_S if self.stock else INTERVAL_S

    def events(self, logs: Mapping[str, str]) -> Sequence[Event]:
        """Return the events logged by slurmctld and the daemon, in order of time."""
        return events_of(logs)
