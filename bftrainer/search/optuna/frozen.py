"""Trials as Optuna has them: for samplers, and for a storage that dashboards and other Optuna code read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState, create_trial

from bftrainer.search.files.space import Kind, Parameter
from bftrainer.search.study import StudySpec, seed_of
from bftrainer.search.trial import Trial, TrialStatus


def frozen(
    spec: StudySpec, trial: Trial, space: Mapping[str, BaseDistribution], *, live: bool = False
) -> FrozenTrial:
    """A trial with its results and its course as intermediate values, by samples; `space` is of `space_of`.

    One that has ended a rung and did not get the whole budget is a pruned one, as far as it came; with `live`
    only if it has ended: it runs otherwise, and has no value yet.
    """
    state = TrialState.FAIL
    if trial.results:
        state = TrialState.COMPLETE if trial.status is TrialStatus.COMPLETED else TrialState.PRUNED
    runs = live and not trial.status.final
    if runs:
        state = TrialState.RUNNING
    course = dict(trial.course)
    made = create_trial(
        state=state,
        value=trial.results[-1].value if trial.results and not runs else None,
        params=dict(trial.params),
        distributions={name: space[name] for name, _ in trial.params},
        intermediate_values=course | {result.samples: result.value for result in trial.results},
        user_attrs={
            "number": trial.number,
            "seed": seed_of(spec.seed, trial.number),
            "status": trial.status.value,
        },
    )
    if trial.began_at is not None:
        made.datetime_start = datetime.fromtimestamp(trial.began_at)  # noqa: DTZ006  Optuna's are local times
    if trial.ended_at is not None and not runs:
        made.datetime_complete = datetime.fromtimestamp(trial.ended_at)  # noqa: DTZ006
    return made


def space_of(spec: StudySpec) -> dict[str, BaseDistribution]:
    """A study's parameters as Optuna describes them, by name. All of its trials share them: there may be
    thousands of trials with a hundred parameters each."""
    return {own.name: _distribution(own) for own in spec.space}


def _distribution(own: Parameter) -> BaseDistribution:
    if own.kind is Kind.CHOICE:
        return CategoricalDistribution(own.choices)
    if own.kind is Kind.INT:
        return IntDistribution(int(own.low), int(own.high), log=own.log, step=int(own.step or 1))
    return FloatDistribution(own.low, own.high, log=own.log, step=own.step or None)
