"""When a search would end on nodes that come and go: run on a log of idle nodes, from many moments on.

A node that comes is used when it is ready. How trials share the nodes, and what changes cost them, is that of
`Execution`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bftrainer.messages.files.plans import LOG_BELOW_DEADLINE
from bftrainer.search.plan.model.profile import Floats
from bftrainer.search.plan.model.simulate import Simulator, in_time
from bftrainer.search.plan.pools.execution import BracketRun, Execution, Supply
from bftrainer.traces.characteristics import course
from bftrainer.traces.intervals import LogError
from bftrainer.traces.logs import Log

NORMAL_975 = 1.959964


@dataclass(frozen=True, slots=True)
class Forecast:
    """Forecast of a search from many moments of a log on.

    Attributes:
        begins: The moments (Unix seconds).
        phases: Seconds of each phase (rows) from each moment (columns); infinite if the log ends before. The
            stages of a search are its phases; several brackets, which go on at once, are one.
        bought: Ordinary nodes in each phase, beside those of the pool.
        apart: How many spans of the deadline's length the log holds. Closer moments see the same pool.
    """

    begins: Floats
    phases: Floats
    bought: tuple[int, ...]
    apart: int

    @property
    def seconds(self) -> Floats:
        """Until all is done, from each moment."""
        total: Floats = self.phases.sum(axis=0)
        return total

    def chance(self, deadline_s: float) -> float:
        """The share of moments from which all is done by the deadline."""
        return float(in_time(self.seconds, deadline_s).mean())

    def interval(self, deadline_s: float) -> tuple[float, float]:
        """A 95 % confidence interval for that chance: Wilson's, if only moments `apart` are independent."""
        n, p, z = min(self.begins.size, max(1, self.apart)), self.chance(deadline_s), NORMAL_975
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)

    def node_hours(self, most_s: float) -> Floats:
        """Ordinary node-hours of each phase, on average; where the log ends first, until `most_s`."""
        begin = np.cumsum(np.vstack([np.zeros_like(self.begins), self.phases[:-1]]), axis=0)
        spent = np.minimum(begin + self.phases, most_s) - np.minimum(begin, most_s)
        spent = np.where(np.isfinite(self.phases), self.phases, spent)
        hours: Floats = np.array(self.bought) * spent.mean(axis=1) / 3600
        return hours


@dataclass(slots=True)
class Pool:
    """A log of idle nodes, made ready for forecasts of one search.

    `brackets` go on at once; by default all stages of the simulator's experiment follow each other.
    """

    simulator: Simulator
    log: Log
    deadline_s: float
    starts: int = 200
    seed: int = 0
    brackets: Sequence[BracketRun] = ()
    _begins: Floats = field(init=False)
    _execution: Execution = field(init=False)
    _known: dict[tuple[int, ...], Forecast] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Choose the moments, one at random in each of as many equal parts of the log.

        Raises:
            LogError: the log is shorter than the deadline.
        """
        room = self.log.end - self.log.begin - self.deadline_s
        if room <= 0:
            hours = (self.log.end - self.log.begin) / 3600
            raise LogError(LOG_BELOW_DEADLINE.say(hours=hours, deadline=self.deadline_s / 3600))
        parts = np.arange(self.starts) + np.random.default_rng(self.seed).random(self.starts)
        self._begins = room * parts / self.starts
        ready = [
            replaced
            for i in self.log.intervals
            if (replaced := i._replace(start=i.start + self.wait_s)).end > replaced.start < self.log.end
        ]
        found = course(replace(self.log, intervals=ready))
        nodes = Supply(
            found.times - self.log.begin, *(np.append(n, 0).astype(int) for n in (found.sizes, found.left))
        )
        own = self.brackets or (BracketRun(tuple(range(len(self.simulator.experiment.stages)))),)
        self._execution = Execution(self.simulator, own, nodes, self.seed)

    @property
    def wait_s(self) -> float:
        """Mean seconds until a node of the pool is ready."""
        return self.simulator.profile.scale.expected + self.simulator.profile.init.expected

    @property
    def phases(self) -> int:
        """For how many parts of the search ordinary nodes are bought separately."""
        return self._execution.phases

    def forecast(self, bought: Sequence[int] | None = None) -> Forecast:
        """Forecast the search with `bought` ordinary nodes in each phase; without any by default."""
        own = tuple(bought) if bought is not None else (0,) * self.phases
        if own not in self._known:
            more = np.tile(np.array(own, dtype=int)[:, None], self._begins.size)
            ends = self._execution.run(self._begins + self.wait_s, more)
            before = np.vstack([self._begins, ends[:-1]])
            with np.errstate(invalid="ignore"):
                seconds = np.where(np.isfinite(ends), ends - before, np.inf)
            apart = int((self.log.end - self.log.begin) / self.deadline_s)
            self._known[own] = Forecast(self._begins + self.log.begin, seconds, own, apart)
        return self._known[own]
