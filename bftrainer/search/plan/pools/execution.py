"""A search trial by trial on nodes that come and go, as a daemon runs it; from many moments at once.

All forecasts use this model. All brackets go on at once. Their trials share the nodes evenly; what is left
over makes some of them larger, those that run rather than those that begin. A trial that has nodes keeps
them; then come those that have a trainer, in the order in which they got it: `SPARE` of those that wait have
one. The next ones are those at the highest rung; a stage's have none until the one before has been compared
(`sync`). A trial whose nodes change stands still, all of it, for `start`; so does one that begins. It grows
only where it ends sooner by that. Which nodes leave is drawn.

Rows of the arrays are moments from which the search begins. Columns are the trials that have a trainer, in
the order of their numbers, and free places. Trials that wait without a trainer are counted by bracket only:
however many there are, an event costs no more than the trials that the nodes can run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from bftrainer.search.plan.even_shares import EvenShares
from bftrainer.search.plan.model.profile import Floats
from bftrainer.search.plan.model.simulate import Simulator
from bftrainer.search.study import SPARE
from bftrainer.threads import check

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
LAST = 10**12
"""More than turns there are, and more than numbers of trials: that of a free place."""
SOON = 1e-6
"""Seconds: ends at most this far apart count as simultaneous; times are rounded to less."""


@dataclass(frozen=True, slots=True)
class Supply:
    """The number of nodes from each moment on, and of those that leave at it. The last moment is the end of
    what is known."""

    times: Floats
    sizes: Ints
    leaving: Ints

    @classmethod
    def none(cls) -> Supply:
        """No nodes, for ever: for searches that have others, which stay."""
        return cls(np.array([0.0, np.inf]), np.zeros(2, dtype=int), np.zeros(2, dtype=int))


AT_ONCE = 1e-9
"""The factor of trials that take no time: a normal spread is cut off at 0."""


@dataclass(frozen=True, slots=True)
class BracketRun:
    """Stages that follow each other, beside those of other brackets.

    Attributes:
        stages: The place of each in the simulator's experiment.
        begun: What is left of the trials of the first stage that have begun; the others have all to do.
    """

    stages: tuple[int, ...]
    begun: tuple[float, ...] = ()


def side_by_side(stages: Iterable[int]) -> tuple[BracketRun, ...]:
    """Brackets with these numbers of stages, one after the other in the simulator's experiment."""
    ends = list(accumulate(stages, initial=0))
    return tuple(BracketRun(tuple(range(begin, end))) for begin, end in pairwise(ends))


@dataclass(slots=True)
class _State:
    """State of the search in each row.

    Attributes:
        now: The time.
        at: Which of the moments of `Supply` was last.
        turns: Number of trainers so far.
        trainers: How many trials have a trainer.
        rung: The stage of each bracket, a column for each; as many as it has: it has ended.
        since: When its next stage may begin; infinite: not all trials of this one have ended.
        given: How many of its trials have a trainer, or had one: the first ones.
        unended: How many of its trials have not ended.
        trial: The number of each trial that has a trainer; `LAST`: a free place.
        left: What each has to do in its stage; 0: it has ended.
        workers: Workers of each trial; 0: it has none.
        ready: When each trial trains, or may begin; before all times: it has begun.
        turn: The order in which they got their trainers.
        slow: By what factor each is slower than the mean.
        still: For how long each stands still when it begins and when its nodes change.
    """

    now: Floats
    at: Ints
    turns: Ints
    trainers: Ints
    rung: Ints
    since: Floats
    given: Ints
    unended: Ints
    trial: Ints
    left: Floats
    workers: Ints
    ready: Floats
    turn: Ints
    slow: Floats
    still: Floats

    @classmethod
    def before(cls, begins: Floats, at: Ints, brackets: int) -> _State:
        """Before the first stages, without trials."""
        rows, columns, places = begins.size, (begins.size, brackets), (begins.size, 0)
        return cls(
            now=begins.astype(float),
            at=at,
            turns=np.zeros(rows, dtype=int),
            trainers=np.zeros(rows, dtype=int),
            rung=np.full(columns, -1),
            since=np.broadcast_to(begins[:, None], columns).astype(float),
            given=np.zeros(columns, dtype=int),
            unended=np.zeros(columns, dtype=int),
            **{name: np.zeros(places, dtype=type(free)) for name, free in _FREE.items()},
        )

    def keep(self, rows: Mask) -> None:
        """Forget the other rows."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name)[rows])

    def resize(self, most: int) -> None:
        """Have places for `most` trials in a row, and not many more."""
        width = self.trial.shape[1]
        if most > width:
            for name, free in _FREE.items():
                more = np.full((self.now.size, most - width), free)
                setattr(self, name, np.concatenate([getattr(self, name), more], axis=1))
        elif most < width // 2:
            self.sort(np.arange(self.now.size))
            for name in _FREE:
                setattr(self, name, getattr(self, name)[:, :most].copy())

    def sort(self, rows: Ints) -> None:
        """Order the trials of some rows by number, free places last."""
        order = np.argsort(self.trial[rows], axis=1, kind="stable")
        for name in _FREE:
            places = getattr(self, name)
            places[rows] = places[rows[:, None], order]


_FREE: dict[str, int | float] = {
    "trial": LAST,
    "left": 0.0,
    "workers": 0,
    "ready": 0.0,
    "turn": 0,
    "slow": 1.0,
    "still": 0.0,
}
"""Arrays with a column for each place, and what a free place has there."""


@dataclass(slots=True)
class Execution:
    """One search on nodes. `seed`: of the draws which nodes leave."""

    simulator: Simulator
    brackets: Sequence[BracketRun]
    nodes: Supply
    seed: int = 0
    _sharing: EvenShares = field(init=False)
    _first: Ints = field(init=False)  # the number of each bracket's first trial
    _stages: Ints = field(init=False)  # of each bracket, a row for each: the place of each stage; 0 beyond
    _sizes: Ints = field(init=False)  # the trials of these stages; 0 beyond
    _syncs: Floats = field(init=False)  # what comparing takes after each stage of the experiment, by draw
    _luck: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Number the trials of each bracket."""
        stages, longest = self.simulator.experiment.stages, max(len(b.stages) for b in self.brackets)
        self._sharing = EvenShares(self.simulator.profile)
        self._stages = np.zeros((len(self.brackets), longest + 1), dtype=int)
        self._sizes = np.zeros_like(self._stages)
        for b, bracket in enumerate(self.brackets):
            self._stages[b, : len(bracket.stages)] = bracket.stages
            self._sizes[b, : len(bracket.stages)] = [stages[k].trials for k in bracket.stages]
        widest = self._sizes.max(axis=1)
        self._first = np.cumsum(widest) - widest
        self._syncs = np.array([self.simulator.syncs(k) for k in range(len(stages))])
        self._luck = np.random.default_rng([self.seed, 7]).random(self.nodes.times.size)

    @property
    def phases(self) -> int:
        """Into how many parts the search falls one after the other: the stages of a single bracket."""
        return len(self.brackets[0].stages) if len(self.brackets) == 1 else 1

    def run(self, begins: Floats, more: Ints) -> Floats:
        """Return each phase's end, from these moments on: a row for each phase; infinite: not known.

        `more`: nodes that are there beside the others, a row for each phase, a column for each moment.
        """
        rows = np.arange(begins.size)
        at = np.maximum(0, np.searchsorted(self.nodes.times, begins, side="right") - 1)
        state = _State.before(begins, at, len(self.brackets))
        self._next_stages(state, rows)
        found = np.full((self.phases, begins.size), np.inf)
        last = np.array([len(bracket.stages) for bracket in self.brackets])
        while rows.size:
            check()
            phase = state.rung[:, 0].copy() if self.phases > 1 else np.zeros(rows.size, dtype=int)
            self._share(state, rows, more[phase, rows])
            known = self._advance(state)
            self._next_stages(state, rows)
            over = (state.rung == last).all(axis=1)
            ended = state.rung[:, 0] > phase if self.phases > 1 else over
            found[phase[ended & known], rows[ended & known]] = state.now[ended & known]
            if (over | ~known).any():
                rows = rows[~over & known]
                state.keep(~over & known)
        return found

    def _next_stages(self, state: _State, moments: Ints) -> None:
        """Begin the next stage where a bracket has been compared; that follows the end of its last trial."""
        last = np.array([len(bracket.stages) for bracket in self.brackets])
        row, b = np.nonzero((state.unended == 0) & (state.rung < last) & np.isinf(state.since))
        if row.size:
            compare_s = self._syncs[self._stages[b, state.rung[row, b]], moments[row] % self._syncs.shape[1]]
            state.since[row, b] = state.now[row] + compare_s
        row, b = np.nonzero(state.since <= state.now[:, None])
        if row.size:
            state.rung[row, b] += 1
            state.since[row, b] = np.inf
            state.given[row, b] = 0
            state.unended[row, b] = self._sizes[b, state.rung[row, b]]

    def _share(self, state: _State, moments: Ints, more: Ints) -> None:
        """Give each trial its workers. `moments`: that of each row."""
        profile = self.simulator.profile
        there = np.minimum(profile.nodes, self.nodes.sizes[state.at] + more)
        trials = state.unended.sum(axis=1)
        if profile.parallelism is not None:
            trials = np.minimum(trials, profile.parallelism)
        running, sizes, until = self._sharing.on(there, trials)
        due = (sizes * np.diff(until, axis=1, prepend=0)).sum(axis=1)
        trainers = np.minimum(trials, running + SPARE) if profile.parallelism is None else trials
        lacks = state.trainers < trainers
        rows = np.flatnonzero(
            lacks | (state.workers.sum(axis=1) != due) | (np.count_nonzero(state.workers, axis=1) != running)
        )
        if not rows.size:
            return
        if lacks.any():
            self._give_trainers(state, moments, np.flatnonzero(lacks), trainers[lacks])
        before = state.workers[rows]
        key = np.where(state.left[rows] > 0, state.turn[rows] - before * LAST, LAST)
        place = _ranks(key)  # those first that have most, ended ones last
        wanted = np.zeros_like(before)
        for size, last in zip(sizes[rows].T[::-1], until[rows].T[::-1], strict=True):
            wanted = np.where(place < last[:, None], size[:, None], wanted)
        now, ready, work = state.now[rows, None], state.ready[rows], state.left[rows] * state.slow[rows]
        begin, still = np.maximum(now, ready), state.still[rows]
        speeds = self._sharing.speeds
        grows = (wanted > before) & (before > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            sooner = now + still + work / speeds[wanted] < begin + work / speeds[before]
        wanted = np.where(grows & ~sooner, before, wanted)
        changed = (wanted != before) & (wanted > 0) & ~np.isneginf(ready)
        state.ready[rows] = np.where(
            changed, np.where(before > 0, now, begin) + still, np.where(wanted > 0, begin, ready)
        )
        state.workers[rows] = wanted

    def _give_trainers(self, state: _State, moments: Ints, rows: Ints, trainers: Ints) -> None:
        """Give trials of some rows trainers, until `trainers` have one: first those at the highest rung, then
        those with the lowest numbers."""
        new = trainers - state.trainers[rows]
        rung, given = state.rung[rows], state.given[rows]
        waiting = self._sizes[np.arange(len(self.brackets)), rung] - given
        order = np.argsort(-rung, axis=1, kind="stable")
        until = np.cumsum(np.take_along_axis(waiting, order, axis=1), axis=1)
        row = np.repeat(np.arange(rows.size), new)
        nth = _within(new)
        column = (until[row] <= nth[:, None]).sum(axis=1)
        b = order[row, column]
        index = given[row, b] + nth - (until[row, column] - waiting[row, b])
        at = rows[row]
        np.add.at(state.given, (at, b), 1)
        left, ready, slow, still = self._beginning(rung[row, b], b, index, moments[at])
        state.trainers[rows] = trainers
        state.resize(int(state.trainers.max()))
        where, free = np.nonzero(state.trial[rows] == LAST)
        place = at, free[_within(np.bincount(where, minlength=rows.size)) < new[where]]
        state.trial[place] = self._first[b] + index
        state.left[place], state.slow[place], state.workers[place] = left, slow, 0
        state.still[place] = still
        state.ready[place] = np.where(np.isneginf(ready), ready, state.now[at])
        state.turn[place] = state.turns[at] + nth + 1
        state.turns[rows] += new
        state.sort(rows)

    def _beginning(
        self, rung: Ints, b: Ints, index: Ints, moments: Ints
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the work of trials that begin, before all times if they had begun, how slow they are, and
        for how long they stand still."""
        left, ready, slow, still = (np.zeros(b.size) for _ in range(4))
        stages = self._stages[b, rung]
        for k in np.unique(stages):
            here = np.flatnonzero(stages == k)
            left[here] = self.simulator.experiment.stages[k].iterations
            drawn = moments[here] % self.simulator.samples, index[here]
            slow[here] = np.maximum(self.simulator.factors(k)[drawn], AT_ONCE)
            still[here] = self.simulator.starts(k)[drawn]
            begun = self.brackets[b[here[0]]].begun if rung[here[0]] == 0 else ()
            early = here[index[here] < len(begun)]
            left[early], ready[early] = np.array(begun, dtype=float)[index[early]], -np.inf
        return left, ready, slow, still

    def _advance(self, state: _State) -> Mask:
        """Go on to what happens next in each row: a trial ends, or nodes come or leave. Returns where that is
        known."""
        speed = self._sharing.speeds[state.workers] / state.slow
        begin = np.maximum(state.now[:, None], state.ready)
        ends = np.full(speed.shape, np.inf)
        np.divide(state.left, speed, out=ends, where=speed > 0)
        ends += begin
        change = self.nodes.times[np.minimum(state.at + 1, self.nodes.times.size - 1)]
        then = np.minimum(change, np.minimum(ends.min(axis=1), state.since.min(axis=1)))
        known: Mask = np.isfinite(then) & (state.at < self.nodes.times.size - 1)
        then = np.where(known, then, state.now)
        done = speed * np.maximum(0.0, then[:, None] - begin)
        over = (ends <= then[:, None] + SOON) & known[:, None]
        state.left = np.where(
            over, 0.0, np.where(speed > 0, np.maximum(state.left - done, 1e-300), state.left)
        )
        state.workers[over] = 0
        state.now = then
        row, column = np.nonzero(over)
        if row.size:
            np.subtract.at(state.trainers, row, 1)
            b = np.searchsorted(self._first, state.trial[row, column], side="right") - 1
            np.subtract.at(state.unended, (row, b), 1)
            state.trial[over] = LAST
        rows = np.flatnonzero(known & (change <= then))
        if rows.size:
            self._change_nodes(state, rows)
        return known

    def _change_nodes(self, state: _State, rows: Ints) -> None:
        """The next moment of `Nodes` comes: trials lose the nodes that leave, and stand still."""
        before = self.nodes.sizes[state.at[rows]]
        state.at[rows] += 1
        leaving = self.nodes.leaving[state.at[rows]]
        rows, before, leaving = rows[leaving > 0], before[leaving > 0], leaving[leaving > 0]
        if not rows.size:
            return
        profile = self.simulator.profile
        ends = np.cumsum(state.workers[rows], axis=1) / profile.node_workers
        first = np.floor(ends - state.workers[rows] / profile.node_workers + 1e-9)
        share, luck = (leaving / np.maximum(1, before))[:, None], self._luck[state.at[rows], None]
        lost = np.floor(np.ceil(ends - 1e-9) * share + luck) - np.floor(first * share + luck)
        hit = (lost > 0) & (state.workers[rows] > 0)
        fewer = self._sharing.floor(
            np.maximum(0, state.workers[rows] - lost.astype(int) * profile.node_workers)
        )
        state.workers[rows] = np.where(hit, fewer, state.workers[rows])
        again = state.now[rows, None] + np.where(fewer > 0, state.still[rows], 0.0)
        state.ready[rows] = np.where(hit, again, state.ready[rows])


def _ranks(key: Ints) -> Ints:
    """The place of each column in its row, the lowest key first."""
    order = np.argsort(key, axis=1, kind="stable")
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.broadcast_to(np.arange(key.shape[1]), order.shape), axis=1)
    return place


def _within(counts: Ints) -> Ints:
    """Numbers from 0 on, as many as each count says, one after the other."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
