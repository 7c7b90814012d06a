"""Samplers: Optuna chooses the parameters of new trials, from what the trials before have shown.

A sampler's random numbers for a trial follow from the study's seed and the trial's number alone, so that a
restart of the daemon does not change them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace

import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState
from optuna.trial import Trial as Asked

from bftrainer.search.files.space import Kind, Parameter, Params, Value
from bftrainer.search.grid import Grid
from bftrainer.search.optuna.frozen import frozen, space_of
from bftrainer.search.study import Sampler, StudySpec, seed_of
from bftrainer.search.trial import Trial, most_learnt, worth_learning
from bftrainer.threads import check

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", module="optuna")  # of users' studies: they would fill the daemon's log
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


FORGET = 1.25
"""Multiple of the trials looked at, from which on the sampler forgets all and begins again."""


class Sampling:
    """The state of a study's sampler: made of the existing trials, then updated with each result."""

    def __init__(self, spec: StudySpec, trials: Iterable[Trial] = ()) -> None:
        self._spec = spec
        self._space = space_of(spec)
        self._always = {own.name: self._space[own.name] for own in spec.space if not own.when}
        self._most = most_learnt(spec)
        self._told: dict[int, Trial] = {}  # those with a result that TPE learns from
        self._asked: dict[int, Asked] = {}  # those without a result
        self._begin({trial.number: trial for trial in trials if trial.results})
        self._grid: Grid | None = None

    def ask(self, number: int, known: Params = ()) -> Params:
        """Choose the parameters of the trial with this number, those that are not known. May take long."""
        if self._spec.sampler is Sampler.GRID:
            return self._points(number).point(number)
        if self._spec.sampler is Sampler.RANDOM:
            self._begin({})  # it learns nothing, so that nothing is kept
        self._study.sampler = _sampler(self._spec, number)
        if known:
            self._study.enqueue_trial(dict(known))
        asked = self._asked[number] = self._study.ask(self._always)
        chosen, values = asked.params, dict[str, Value]()
        for own in self._spec.space:
            check()
            if own.name in chosen:
                values[own.name] = _own(own, chosen[own.name])
            elif own.applies(values):
                values[own.name] = _suggested(asked, own)
        return tuple(values.items())

    def _points(self, number: int) -> Grid:
        if self._grid is None or number >= self._grid.most:  # trials may have been added
            self._grid = Grid(self._spec.space, max(self._spec.trials, number + 1))
        return self._grid

    def tell(self, trial: Trial) -> None:
        """Take in a trial's last result, or that it has none. Later results of a trial count as trials of
        their own: Optuna takes one of each."""
        asked = self._asked.pop(trial.number, None)
        if trial.results and self._spec.sampler is Sampler.TPE:
            self._told[trial.number] = trial
            if len(self._told) > FORGET * self._most:
                self._begin(self._told)
                return
        if not trial.results:
            if asked is not None:
                self._study.tell(asked, state=TrialState.FAIL)
            return
        last = trial.results[-1]
        learns_from_complete = self._spec.sampler is Sampler.CMAES
        if asked is None:
            if not learns_from_complete:
                self._study.add_trial(self._frozen(trial))
            return
        if learns_from_complete:
            self._study.tell(asked, last.value)
        else:
            asked.report(last.value, last.samples)
            self._study.tell(asked, state=TrialState.PRUNED)

    def _begin(self, trials: Mapping[int, Trial]) -> None:
        """Know these trials alone, of many the best and the latest."""
        spec = self._spec
        self._study = optuna.create_study(direction="maximize" if spec.maximize else "minimize")
        self._asked.clear()  # they are told as others are
        if spec.sampler is not Sampler.TPE:
            return
        self._told = {trial.number: trial for trial in worth_learning(spec, trials.values())}
        for trial in self._told.values():
            self._study.add_trial(self._frozen(trial))

    def _frozen(self, trial: Trial) -> FrozenTrial:
        """A trial as it is learnt from, by its results: Optuna would keep a copy of its course."""
        return frozen(self._spec, replace(trial, course=()), self._space)


def _sampler(spec: StudySpec, number: int) -> BaseSampler:
    seed = seed_of(spec.seed, number)
    if spec.sampler is Sampler.TPE:
        return TPESampler(seed=seed, constant_liar=True)
    if spec.sampler is Sampler.CMAES:
        return CmaEsSampler(seed=seed, warn_independent_sampling=False)
    return RandomSampler(seed=seed)


def _suggested(asked: Asked, own: Parameter) -> Value:
    """A value of a parameter, as the sampler suggests it."""
    if own.kind is Kind.CHOICE:
        return _own(own, asked.suggest_categorical(own.name, own.choices))  # type: ignore[arg-type]
    if own.kind is Kind.INT:
        return asked.suggest_int(own.name, int(own.low), int(own.high), step=int(own.step or 1), log=own.log)
    return asked.suggest_float(own.name, own.low, own.high, step=own.step or None, log=own.log)


def _own(own: Parameter, chosen: Value) -> Value:
    """Return the chosen value, as the parameter has it."""
    return next((value for value in own.choices if value is chosen or value == chosen), chosen)
