"""Runs a script that was written for Optuna as one trial of a study of bftrainer, on one node.

    python -m bftrainer.elastic.optuna '{"lr": 0.1}' tune.py --data /data

The script is as it was: `study.optimize(objective, ...)` calls the objective once. `trial.suggest_...` gives
the parameters of the study file, `trial.report(value, step)` reports the figure `value` after `step` + 1
samples, as the study counts them, and `trial.should_prune()` is true when the trial must end here: at a
rung, or because its node is wanted. What the objective returns is the trial's last `value`.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from bftrainer.elastic.attach.job import Job, attach

VALUE = "value"
"""The figure's name: the `metric` of the study file."""
USAGE = (
    "usage: python -m bftrainer.elastic.optuna PARAMETERS SCRIPT [ARGUMENTS]; in a study file, "
    '"{params}" stands for PARAMETERS'
)


class Given(BaseSampler):
    """Suggests the parameters of one trial, and no others."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._params = params

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Empty: every parameter is looked up when the script asks for it."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Empty, see above."""
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The parameter's value.

        Raises:
            SystemExit: the study file has no such parameter, or a value that the script does not allow.
        """
        if param_name not in self._params:
            has = ", ".join(self._params) or "none"
            sys.exit(f"the script suggests {param_name!r}, which the space of the study lacks; it has {has}")
        value = self._params[param_name]
        try:
            inside = param_distribution._contains(param_distribution.to_internal_repr(value))
        except ValueError:
            inside = False
        if not inside:
            sys.exit(f"{param_name}: the study gave {value!r}, and the script allows {param_distribution}")
        return value


class OneTrial:
    """The one trial of this process: its figures, and whether it must end."""

    def __init__(self, job: Job, params: Mapping[str, Any]) -> None:
        self._job, self._params = job, params
        self._step = 0
        self._value: float | None = None
        self._optimized = False

    def report(self, original: Callable[..., None], trial: Trial, value: float, step: int) -> None:
        """Replaces `Trial.report`."""
        original(trial, value, step)
        self._step, self._value = step + 1, float(value)
        self._job.progress(step=self._step, samples=self._step, metrics={VALUE: self._value})

    def should_prune(self, trial: Trial) -> bool:
        """Replaces `Trial.should_prune`."""
        return self._job.stopping or self._job.complete(self._step)

    def optimize(
        self, original: Callable[..., None], study: Study, func: Any, *args: Any, **more: Any
    ) -> None:
        """Replaces `Study.optimize`: one trial.

        Raises:
            SystemExit: the trial ends here; or it has no value, or there has been one already.
        """
        if self._optimized:
            sys.exit("the script calls study.optimize twice; a trial has one objective")
        self._optimized, study.sampler = True, Given(self._params)
        kept = {key: value for key, value in more.items() if key in ("callbacks", "gc_after_trial")}
        before = len(study.get_trials(deepcopy=False))
        original(study, func, n_trials=1, **kept)
        trial = study.get_trials(deepcopy=False)[before]
        if self._job.stopping and trial.state is not TrialState.COMPLETE:
            self._job.saved(step=0, samples=0)  # the next run starts over: the script has saved nothing
            sys.exit(0)
        if trial.value is None:
            sys.exit("the trial has no value: the objective returned and reported no number")
        self._value = trial.value
        if trial.state is TrialState.PRUNED:
            self.done()
            sys.exit(0)  # what comes after it in the script is for a search that has ended

    def done(self) -> None:
        """Tell that the trial has ended, with all the samples that the study asked for.

        Raises:
            SystemExit: the script has not called `study.optimize`.
        """
        if self._value is None:
            sys.exit("the script has ended and has not called study.optimize")
        samples = self._job.samples or self._step
        self._job.progress(step=self._step, samples=samples, metrics={VALUE: self._value})
        self._job.done(step=self._step, samples=samples, value=self._value)


def main() -> None:
    """Run the script of the command line.

    Raises:
        SystemExit: with the script's own code, or with what is wrong.
    """
    try:
        params = json.loads(sys.argv[1])
        script = Path(sys.argv[2])
    except (IndexError, ValueError):
        sys.exit(USAGE)
    if not isinstance(params, dict):
        sys.exit(USAGE)
    one = OneTrial(attach(), params)
    for owner, name in ((Study, "optimize"), (Trial, "report")):
        setattr(owner, name, _method(partial(getattr(one, name), getattr(owner, name))))
    Trial.should_prune = _method(one.should_prune)  # type: ignore[method-assign]
    sys.argv = sys.argv[2:]
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")
    one.done()


def _method(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function, so that it is called with the object that it is a method of."""

    def method(*args: Any, **more: Any) -> Any:
        return call(*args, **more)

    return method


if __name__ == "__main__":
    main()
