"""Samplers: Optuna chooses the parameters of new trials, from what the trials before have shown.

A sampler's random numbers for a trial follow from the study's seed and the trial's number alone, so that a
restart of the daemon does not change them.
"""

from __future__ import annotations

import warnings
from itertools import islice

import optuna
from optuna.samplers import BaseSampler, CmaEsSampler, RandomSampler, TPESampler
from optuna.trial import Trial as Asked
from optuna.trial import TrialState

from bftrainer.search.frozen import frozen
from bftrainer.search.space import Kind, Parameter, Params, Value, grid
from bftrainer.search.study import Sampler, StudySpec, seed_of
from bftrainer.search.trial import Trial

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


class Sampling:
    """What a study's sampler knows: made of the trials that there are, then told of each result."""

    def __init__(self, spec: StudySpec) -> None:
        self._spec = spec
        self._study = optuna.create_study(direction="maximize" if spec.maximize else "minimize")
        self._asked: dict[int, Asked] = {}  # those without a result

    def ask(self, number: int) -> Params:
        """Choose the parameters of the trial with this number. May take long."""
        if self._spec.sampler is Sampler.GRID:
            return next(islice(grid(self._spec.space), number, None))
        self._study.sampler = _sampler(self._spec, number)
        asked = self._asked[number] = self._study.ask()
        values: dict[str, Value] = {}
        for own in self._spec.space:
            if own.applies(values):
                values[own.name] = _suggested(asked, own)
        return tuple(values.items())

    def tell(self, trial: Trial) -> None:
        """Take in a trial's last result, or that it has none. Later results of a trial count as trials of
        their own: Optuna takes one of each."""
        asked = self._asked.pop(trial.number, None)
        if not trial.results:
            if asked is not None:
                self._study.tell(asked, state=TrialState.FAIL)
            return
        last = trial.results[-1]
        learns_from_complete = self._spec.sampler is Sampler.CMAES
        if asked is None:
            if not learns_from_complete:
                self._study.add_trial(frozen(self._spec, trial))
            return
        if learns_from_complete:
            self._study.tell(asked, last.value)
        else:
            asked.report(last.value, last.samples)
            self._study.tell(asked, state=TrialState.PRUNED)


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
        chosen = asked.suggest_categorical(own.name, own.choices)
        return next(value for value in own.choices if value is chosen or value == chosen)
    if own.kind is Kind.INT:
        return asked.suggest_int(own.name, int(own.low), int(own.high), step=int(own.step or 1), log=own.log)
    return asked.suggest_float(own.name, own.low, own.high, step=own.step or None, log=own.log)
