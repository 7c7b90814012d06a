"""A search on nodes with names, trial by trial and event by event, with standstills: an oracle for forecasts.

It shares nothing with the forecasts but the rules: see `bftrainer.search.plan.pools.execution`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bftrainer.search.plan.model.experiment import Stage
from bftrainer.traces.intervals import Interval

Rate = Callable[[int], float]
"""Iterations a second on so many nodes."""


@dataclass(eq=False)
class Trial:
    """A trial in one stage of one bracket."""

    bracket: int
    rung: int
    number: int
    left: float
    nodes: set[str] = field(default_factory=set)
    ready: float = 0.0
    turn: float = math.inf

    def place(self) -> tuple[float, ...]:
        """Its place in the queue."""
        return -len(self.nodes), self.turn, -self.rung, self.number

    def ends(self, now: float, rate: Rate) -> float:
        """When it will have ended with its nodes."""
        return max(now, self.ready) + self.left / rate(len(self.nodes)) if self.nodes else math.inf


def ends_at(
    intervals: Sequence[Interval],
    begin: float,
    brackets: Sequence[Sequence[Stage]],
    rate: Rate,
    start_s: float,
    most: int,
    until: float,
) -> float:
    """When a search ends that begins at `begin`; infinite if that is after `until`. A trial has `most` nodes
    at most, and stands still for `start_s` when its nodes change."""
    now, turns, trials, rungs = begin, 0, list[Trial](), [-1] * len(brackets)
    moments = sorted({t for i in intervals for t in (i.start, i.end) if begin < t <= until} | {until})
    first = [0]
    for stages in brackets:
        first.append(first[-1] + stages[0].trials)
    while True:
        for b, stages in enumerate(brackets):
            if rungs[b] < len(stages) and not any(t.bracket == b for t in trials):
                rungs[b] += 1
                if rungs[b] < len(stages):
                    own = stages[rungs[b]]
                    trials += [Trial(b, rungs[b], first[b] + i, own.iterations) for i in range(own.trials)]
        if not trials:
            return now
        there = {i.node for i in intervals if i.start <= now < i.end}
        for t in trials:
            if t.nodes - there:
                t.nodes &= there
                t.ready = now + start_s
        turns = share(trials, there, now, rate, start_s, most, turns)
        moment = next((m for m in moments if m > now), math.inf)
        then = min(moment, *(t.ends(now, rate) for t in trials))
        if then >= until:
            return math.inf
        for t in trials:
            if t.nodes:
                t.left -= rate(len(t.nodes)) * max(0.0, then - max(now, t.ready))
        trials = [t for t in trials if t.left > 1e-6]
        now = then


def share(
    trials: list[Trial], there: set[str], now: float, rate: Rate, start_s: float, most: int, turns: int
) -> int:
    """Give each trial its nodes. Returns the last turn."""
    trials.sort(key=Trial.place)
    running = min(len(there), len(trials))
    base = min(most, len(there) // max(1, running))
    extra = len(there) - running * base if base < most else 0
    for place, t in enumerate(trials):
        if place < running + 2 and t.turn == math.inf:
            turns += 1
            t.turn = turns
    wanted = [base + (k < extra) if k < running else 0 for k in range(len(trials))]
    for k, t in enumerate(trials):
        if wanted[k] > len(t.nodes) > 0:
            sooner = now + start_s + t.left / rate(wanted[k]) < t.ends(now, rate)
            wanted[k] = wanted[k] if sooner else len(t.nodes)
    for k, t in enumerate(trials):  # some give nodes back, then others take them
        if wanted[k] < len(t.nodes):
            t.nodes, t.ready = set(sorted(t.nodes)[: wanted[k]]), now + start_s
    free = sorted(there - {n for t in trials for n in t.nodes})
    for k, t in enumerate(trials):
        if wanted[k] > len(t.nodes):
            new = [free.pop() for _ in range(wanted[k] - len(t.nodes))]
            t.nodes |= set(new)
            t.ready = now + start_s
    return turns
