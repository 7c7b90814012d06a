"""When a search would end on nodes that come and go: replayed on a log of idle nodes, from many moments on.

The trials of a stage share the pool evenly, in whole nodes. How fast a stage gets on with n nodes is what
the simulator's means say; its progress is the sum of that over the log. A node that comes is used when it is
ready. A trial whose nodes change stands still for `start`; the stage is held up by the share of its
nodes that change. Where trials wait for each other, this is a little slower than trials that take over nodes
as soon as these are free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bftrainer.search.plan.profile import Floats
from bftrainer.search.plan.simulate import Simulator
from bftrainer.search.plan.step import of_nodes
from bftrainer.traces.characteristics import course
from bftrainer.traces.intervals import LogError
from bftrainer.traces.logs import Log

NORMAL_975 = 1.959964


@dataclass(frozen=True, slots=True)
class Forecast:
    """How a search would have gone from many moments of a log on.

    Attributes:
        begins: The moments (Unix seconds).
        stages: Seconds of each stage (rows) from each moment (columns); infinite if the log ends before.
        bought: Ordinary nodes in each stage, beside those of the pool.
        apart: How many spans of the deadline's length the log holds. Closer moments see the same pool.
    """

    begins: Floats
    stages: Floats
    bought: tuple[int, ...]
    apart: int

    @property
    def seconds(self) -> Floats:
        """Until all is done, from each moment."""
        total: Floats = self.stages.sum(axis=0)
        return total

    def chance(self, deadline_s: float) -> float:
        """The share of moments from which all is done by the deadline."""
        return float((self.seconds <= deadline_s).mean())

    def interval(self, deadline_s: float) -> tuple[float, float]:
        """A 95 % confidence interval for that chance: Wilson's, if only moments `apart` are independent."""
        n, p, z = min(self.begins.size, max(1, self.apart)), self.chance(deadline_s), NORMAL_975
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)

    def node_hours(self, most_s: float) -> Floats:
        """Ordinary node-hours of each stage, on average; where the log ends first, until `most_s`."""
        begin = np.cumsum(np.vstack([np.zeros_like(self.begins), self.stages[:-1]]), axis=0)
        spent = np.minimum(begin + self.stages, most_s) - np.minimum(begin, most_s)
        spent = np.where(np.isfinite(self.stages), self.stages, spent)
        hours: Floats = np.array(self.bought) * spent.mean(axis=1) / 3600
        return hours


@dataclass(slots=True)
class Pool:
    """A log of idle nodes, made ready for forecasts of one search."""

    simulator: Simulator
    log: Log
    deadline_s: float
    starts: int = 200
    seed: int = 0
    _begins: Floats = field(init=False)
    _times: Floats = field(init=False)
    _sizes: Floats = field(init=False)
    _changed: Floats = field(init=False)
    _rates: dict[int, Floats] = field(default_factory=dict)
    _progress: dict[tuple[int, int], Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Choose the moments, one at random in each of as many equal parts of the log.

        Raises:
            LogError: the log is shorter than the deadline.
        """
        room = self.log.end - self.log.begin - self.deadline_s
        if room <= 0:
            raise LogError(
                f"the log spans {(self.log.end - self.log.begin) / 3600:g} h, no more than the deadline of "
                f"{self.deadline_s / 3600:g} h; take a longer log"
            )
        parts = np.arange(self.starts) + np.random.default_rng(self.seed).random(self.starts)
        self._begins = self.log.begin + room * parts / self.starts
        ready = [
            replaced
            for i in self.log.intervals
            if (replaced := i._replace(start=i.start + self.wait_s)).end > replaced.start < self.log.end
        ]
        found = course(replace(self.log, intervals=ready))
        self._times, self._sizes = found.times, found.sizes
        self._changed = found.joined + found.left

    @property
    def wait_s(self) -> float:
        """Mean seconds until a node of the pool is ready."""
        return self.simulator.profile.scale.mean + self.simulator.profile.init.mean

    def forecast(self, bought: Sequence[int] | None = None) -> Forecast:
        """How the search would go, with so many ordinary nodes in each stage; without any by default."""
        stages = self.simulator.experiment.stages
        own = tuple(bought) if bought is not None else (0,) * len(stages)
        at = self._begins + self.wait_s
        seconds = []
        for k, count in enumerate(own):
            end = self._end(at, self._done(k, count))
            seconds.append(end - (at if k else self._begins))
            at = np.where(np.isfinite(end), end, self._times[-1])
        table = np.array(seconds)
        table[np.isinf(table).cumsum(axis=0) > 0] = np.inf
        apart = int((self.log.end - self.log.begin) / self.deadline_s)
        return Forecast(self._begins, table, own, apart)

    def _rate(self, k: int) -> Floats:
        """The share of stage k that is done in a second, by the number of nodes from 0 on."""
        if k not in self._rates:
            stage, profile = self.simulator.experiment.stages[k], self.simulator.profile
            rates = np.zeros(profile.nodes + 1)
            for nodes in range(1, profile.nodes + 1):
                step = of_nodes(stage, nodes, profile)
                if step is not None:
                    rates[nodes] = 1 / self.simulator.means(k, step)[0]
            self._rates[k] = np.maximum.accumulate(rates)  # more nodes need not be used
        return self._rates[k]

    def _done(self, k: int, bought: int) -> Floats:
        """How often stage k could have been done since the log's begin, at each of its changes."""
        if (k, bought) not in self._progress:
            rates = self._rate(k)
            nodes = np.minimum(self._sizes + bought, rates.size - 1).astype(int)
            share = np.minimum(1.0, self._changed / np.maximum(1, nodes))
            works = np.maximum(0.0, np.diff(self._times) - share * self.simulator.profile.start.mean)
            self._progress[k, bought] = np.concatenate([[0.0], np.cumsum(rates[nodes] * works)])
        return self._progress[k, bought]

    def _end(self, begin: Floats, done: Floats) -> Floats:
        """When a stage that begins at these moments has been done once; infinite if the log ends before."""
        target = np.interp(begin, self._times, done) + 1.0
        after = np.searchsorted(done, target)
        inside = np.clip(after, 1, done.size - 1)
        gained = done[inside] - done[inside - 1]
        share = np.divide(target - done[inside - 1], gained, out=np.ones_like(target), where=gained > 0)
        end = self._times[inside - 1] + share * (self._times[inside] - self._times[inside - 1])
        return np.where(after < done.size, end, np.inf)
