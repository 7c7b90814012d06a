"""Times decisions where single GPUs are shared out, and compares their placements with the best.

    python benchmarks/shared_gpus.py [--repeat 30] [--only goodput]
    python benchmarks/shared_gpus.py --milp 60 [--cases 5]

Each row: a pool of nodes with 6 GPUs, trainers that hold most of it, and events one after the other: a node
comes or goes, or some of its GPUs, or a trainer ends and another arrives. Prints a Markdown table of the
milliseconds of whole decisions (question, counts, placement, actions; of CPU time, as one thread makes them
and other programs may run beside it, and last by the clock), and how far placements are below the bound that
no placement exceeds.

With `--milp` it compares them with what the MILP with nodes finds in that time (s), and with its bound.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bftrainer.allocate import decide
from bftrainer.engine.decide import candidates
from bftrainer.engine.gpus.plan import Price, ground_of, holders_of
from bftrainer.engine.question import problem_of
from bftrainer.engine.state import State, Step
from bftrainer.engine.step import step
from bftrainer.engine.take import take
from bftrainer.model.events import (
    Event,
    Measured,
    NodesChanged,
    TrainerCancelled,
    TrainerSubmitted,
    WorkersReady,
)
from bftrainer.model.gpus import gpus_of, on_whole_nodes
from bftrainer.model.policy import EngineSettings, Share, ShareNodes
from bftrainer.model.problem import Plan, Problem
from bftrainer.model.trainer import AdaptingBatch, Cost, RescaleCosts, Scalability, TrainerSpec
from bftrainer.threads import no_collection

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.placements_milp import Solved, solved  # the MILP with nodes is a test's oracle

EACH = 6
SIZES = ((10, 80), (100, 800), (1000, 4608))
"""Trainers, nodes."""
PROGRAMS = 6
"""Different programs that trainers run where goodput decides."""
BATCH = AdaptingBatch(
    batch=128, at_once=256, initial=128, most=16_384, most_at_once=256, workers=1, noise=None
)
COMPARED = ((6, 6), (10, 12), (10, 20))
"""Those of which the MILP with nodes finds good placements within a minute."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Share of curves with two branches, and of trainers on whole nodes; number of users that share no nodes
    (1: they are alike); whether batches adapt and goodput decides."""

    branches: float = 0.0
    whole: float = 0.0
    users: int = 1
    goodput: bool = False


MIXES = {
    "GPUs of any nodes": Mix(),
    "half with curves of two branches": Mix(0.5),
    "the same, and a tenth on whole nodes": Mix(0.5, 0.1),
    "the same, of 5 users who share no nodes": Mix(0.5, 0.1, 5),
    "GPUs of any nodes, by goodput": Mix(goodput=True),
}


def spec(rng: random.Random, mix: Mix) -> TrainerSpec:
    """A trainer for 1 to 192 GPUs with a curve like Amdahl's; those of several nodes are 2 to 25 % slower."""
    one, serial = rng.uniform(100, 2000), rng.uniform(0.002, 0.05)
    local = tuple((n, one * n / (1 + serial * (n - 1))) for n in (1, 2, 4, 6, 12, 24, 48, 96, 192))
    slower = rng.uniform(0.75, 0.98)
    found = TrainerSpec(
        name="t",
        command=("train",),
        n_min=1,
        n_max=rng.choice([4, 6, 24, 96, 192]),
        curve=local,
        costs=RescaleCosts(up=Cost(stall_s=rng.uniform(0.5, 5)), down=Cost(stall_s=0.5)),
        scalability=Scalability.GIVEN,
        gpus=True,
        user=f"user{rng.randrange(mix.users)}" if mix.users > 1 else "",
    )
    if rng.random() < mix.whole:
        nodes = tuple((n, local[3][1] * n**0.9) for n in (1, 2, 4, 8, 16, 32))
        return on_whole_nodes(replace(found, n_max=32, curve=nodes), EACH)
    if mix.goodput:
        command = ("train", str(rng.randrange(PROGRAMS)))
        return replace(found, curve=None, scalability=Scalability.AUTO, command=command)
    across = tuple((n, rate * slower) for n, rate in local)
    return replace(found, across=across) if rng.random() < mix.branches else found


class Taken(NamedTuple):
    """The seconds of a decision."""

    cpu: float
    clock: float


class World:
    """An engine whose workers are ready at once, and the events that befall it."""

    def __init__(self, trainers: int, nodes: int, mix: Mix, rng: random.Random) -> None:
        self.settings = EngineSettings(
            share=Share.GPU,
            gpus_per_node=EACH,
            max_parallel=None,
            ageing_s=None,
            share_nodes=ShareNodes.NO,
            objective="goodput" if mix.goodput else "efficiency",
        )
        self.state, self.now, self.rng, self.mix = State(settings=self.settings), 0.0, rng, mix
        self.nodes = [f"n{i:04}" for i in range(nodes)]
        self.away: set[str] = set()
        self.plan: Plan | None = None
        self.next = 1
        for _ in range(trainers):
            self.submit()
        self.take(NodesChanged(time=0.0, joined=frozenset(g for n in self.nodes for g in gpus_of(n, EACH))))

    def submit(self) -> Taken:
        """Another trainer comes; returns the seconds of the decision."""
        self.next += 1
        return self.take(TrainerSubmitted(time=0.0, trainer=self.next, spec=spec(self.rng, self.mix)))

    def take(self, event: Event) -> Taken:
        """One event; returns its seconds."""
        self.now += 1.0
        begin = time.thread_time(), time.perf_counter()
        with no_collection():
            done = step(self.state, replace(event, time=self.now), self.solve)
        taken = Taken(time.thread_time() - begin[0], time.perf_counter() - begin[1])
        self.plan = done.plan or self.plan
        self.state = done.state
        self.ready(done)
        return taken

    def solve(self, problem: Problem) -> Plan:
        """The daemon's own."""
        return decide(problem, self.settings)

    def ready(self, done: Step) -> None:
        """All workers that were started are ready."""
        for t in done.state.active.values():
            if t.joining:
                (generation,) = set(t.joining.values()) or {0}
                nodes = frozenset(t.joining)
                event = WorkersReady(time=self.now, trainer=t.id, generation=generation, nodes=nodes)
                self.state = step(self.state, event, self.solve).state

    def tell(self) -> None:
        """All runs tell a batch, its speed and their noise, before anything is decided. Programs differ in
        what they exchange, and the trainers of one in speed."""
        for t in list(self.state.active.values()):
            if n := len(t.members):
                batch = min(BATCH.most, max(BATCH.initial, n * self.rng.choice((32, 64, 128))))
                exchange_s = 0.002 * (1 + int(t.spec.command[1])) * n**0.5
                slower = random.Random(t.id).uniform(0.7, 1.4) * self.rng.uniform(0.95, 1.05)
                rate = batch / (0.05 + 0.001 * batch / n + exchange_s) / slower
                own = replace(BATCH, batch=batch, noise=10 ** self.rng.uniform(1, 5))
                event = Measured(
                    time=self.now, trainer=t.id, generation=t.published, point=(n, rate), batch=own
                )
                self.state = take(event, self.state).state

    def event(self) -> Taken:
        """Something happens; returns the seconds of the decision."""
        if self.mix.goodput:
            self.tell()
        *before, last = self.events()
        for event in before:
            self.take(event)
        return self.take(last)

    def events(self) -> list[Event]:
        """Return the next events; the last is the one to look at."""
        kind = self.rng.random()
        if kind < 0.3:
            self.next += 1
            gone = self.rng.choice(list(self.state.active))
            new = TrainerSubmitted(time=0.0, trainer=self.next, spec=spec(self.rng, self.mix))
            return [TrainerCancelled(time=0.0, trainer=gone), new]
        if kind < 0.6 and self.away:
            joined = frozenset(self.away)
            self.away = set()
            return [NodesChanged(time=0.0, joined=joined)]
        gpus = gpus_of(self.rng.choice(self.nodes), EACH)
        left = frozenset(gpus if kind < 0.8 else self.rng.sample(gpus, 2)) & self.state.pool
        self.away |= left
        return [NodesChanged(time=0.0, left=left)]

    def against_milp(self, time_s: float) -> tuple[float, Solved]:
        """Something happens; returns what the decision's placement is worth, and what the MILP finds."""
        *before, last = self.events()
        for event in before:
            self.take(event)
        now = self.now + 1.0
        state = take(replace(last, time=now), self.state).state
        trainers = candidates(state, now)
        question, groups = problem_of(state, trainers, now)
        holders = holders_of(state, trainers, Price.of(question, groups))
        best = solved(holders, ground_of(state, question), time_s)
        self.take(last)
        assert self.plan is not None
        return self.plan.objective, best


def main() -> None:
    """Print the tables."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--repeat", type=int, default=30)
    asked.add_argument("--milp", type=float, default=0.0, metavar="SECONDS", help="compare with it, too")
    asked.add_argument("--only", help="rows whose description has these words")
    asked.add_argument("--cases", type=int, default=5, help="cases of each row of that comparison")
    args = asked.parse_args()
    if args.milp:
        compare(args.milp, args.cases)
    else:
        measure(args.repeat, args.only or "")


def measure(repeat: int, only: str) -> None:
    """Print the times of decisions, and how far below the bound of counts they are."""
    print(
        "| trainers | nodes x GPUs | trainers ask for | decision, median ms | p99 ms "
        "| below the bound, mean | most | by the clock, median ms | p99 ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for trainers, nodes in SIZES:
        for name, mix in MIXES.items():
            if only not in name:
                continue
            world = World(trainers, nodes, mix, random.Random(f"{trainers} {name}"))
            world.event()
            taken, gaps = [], []
            for _ in range(repeat):
                taken.append(world.event())
                assert world.plan is not None
                gaps.append(max(0.0, 1 - world.plan.objective / world.plan.bound))
            cpu, clock = (told([1e3 * one for one in times]) for times in zip(*taken, strict=True))
            print(
                f"| {trainers:,} | {nodes:,} x {EACH} | {name} | {cpu} "
                f"| {statistics.mean(gaps):.2%} | {max(gaps):.2%} | {clock} |",
                flush=True,
            )


def told(times: list[float]) -> str:
    """Their median and 99th percentile."""
    p99 = sorted(times)[min(len(times) - 1, int(0.99 * len(times)))]
    return f"{statistics.median(times):.0f} | {p99:.0f}"


def compare(time_s: float, cases: int) -> None:
    """Print how far placements are below those of the MILP with nodes, and below what it proves."""
    print(
        "| trainers | nodes x GPUs | trainers ask for | cases | proven by the MILP "
        "| below its best, mean | most | below its bound, mean | most |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for trainers, nodes in COMPARED:
        for name, mix in MIXES.items():
            world = World(trainers, nodes, mix, random.Random(f"{trainers} {nodes} {name}"))
            found = [world.against_milp(time_s) for _ in range(cases)]
            below = [1 - worth / max(worth, best.worth) for worth, best in found]
            under = [1 - worth / max(worth, best.bound) for worth, best in found]
            proven = sum(best.bound - best.worth <= 1e-4 * best.bound for _, best in found)
            print(
                f"| {trainers} | {nodes} x {EACH} | {name} | {cases} | {proven} "
                f"| {statistics.mean(below):.2%} | {max(below):.2%} "
                f"| {statistics.mean(under):.2%} | {max(under):.2%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
