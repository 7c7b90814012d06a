"""Which trials go on and which end early. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from bftrainer.model.text import counted
from bftrainer.search.brackets import Bracket
from bftrainer.search.study import StoppingKind
from bftrainer.search.trial import Study, Trial, TrialStatus

REASON = 200
"""So much of the reason of a trial's end is told with that of its study."""


def promote(study: Study) -> Study:
    """The study in which each paused trial whose rung is decided waits for its next one, or has ended."""
    for bracket in study.brackets:
        numbers = range(bracket.first, bracket.first + bracket.trials)
        own = [study.trials[n] for n in numbers if n in study.trials]
        if study.spec.stopping.kind is StoppingKind.ASHA:
            study = _as_soon_as_good(study, bracket, own)
        else:
            study = _together(study, bracket, own)
    return study


def _together(study: Study, bracket: Bracket, own: Sequence[Trial]) -> Study:
    """Successive halving: a rung is decided when no trial of the bracket may still reach it."""
    for rung in range(len(bracket.budgets) - 1):
        here = [t for t in own if t.status is TrialStatus.PAUSED and t.rung == rung]
        below = any(not t.status.final and (t.rung, t.status) != (rung, TrialStatus.PAUSED) for t in own)
        if here and not below and len(own) == bracket.trials:
            kept = _best(study, here)[: bracket.size(rung + 1)]
            return study.put(*(_onward(t) if t in kept else _worse(t, len(here), len(kept)) for t in here))
    return study


def _as_soon_as_good(study: Study, bracket: Bracket, own: Sequence[Trial]) -> Study:
    """ASHA: of the trials that have ended a rung, the best 1/eta go on at once. What is still paused when no
    trial can come any more ends."""
    for rung in range(len(bracket.budgets) - 1):
        done = [t for t in own if any(result.rung == rung for result in t.results)]
        ranked = sorted(done, key=lambda t: (study.spec.order(_value(t, rung)), t.number))
        kept = ranked[: len(ranked) // bracket.eta]
        onward = [t for t in kept if t.status is TrialStatus.PAUSED and t.rung == rung]
        study = study.put(*map(_onward, onward))
        own = [study.trials[t.number] for t in own]
    moving = any(t.status in (TrialStatus.RUNNING, TrialStatus.WAITING) for t in own)
    paused = [t for t in own if t.status is TrialStatus.PAUSED]
    if moving or not paused or len(own) < bracket.trials:
        return study
    furthest = max(t.rung for t in own if t.results)
    if (
        furthest < len(bracket.budgets) - 1
    ):  # too few trials for a last rung: the best one has the whole budget
        best = min(
            (t for t in paused if t.rung == furthest),
            key=lambda t: study.spec.order(_value(t, t.rung)),
            default=None,
        )
        if best is not None:
            return study.put(_onward(best))
    return study.put(*(_worse(t, len(own), 0) for t in paused))


def falls_behind(study: Study, trial: Trial) -> str:
    """Why a trial that runs should end by the rule of the median, in words; empty if it should not."""
    own = study.spec.stopping
    if own.kind is not StoppingKind.MEDIAN or trial.value is None or trial.samples < own.least:
        return ""
    others = [t.at(trial.samples) for t in study.trials.values() if t.number != trial.number]
    there = [value for value in others if value is not None]
    best = min((value for _, value in trial.course), key=study.spec.order, default=trial.value)
    if len(there) < own.startup or not study.spec.better(median(there), best):
        return ""
    middle = f"{median(there):g}, the median of {counted(len(there), 'other')}"
    return f"its best {study.spec.metric} of {best:g} is worse than {middle}"


def in_doubt(study: Study) -> bool:
    """Whether so many trials have failed, and none has shown anything, that no new one is to begin: most
    likely the command is wrong, or the script does not report the metric."""
    most, trials = study.spec.give_up_after, study.trials.values()
    if most is None or sum(t.status is TrialStatus.FAILED for t in trials) < most:
        return False
    return not any(t.course or t.results for t in trials)


def hopeless(study: Study) -> str:
    """Why a study ends in which trials have not begun yet, in words: it is in doubt, and no trial that has
    begun may still show something. Empty if it does not end."""
    trials = study.trials.values()
    begun = [t for t in trials if t.run]
    if not in_doubt(study) or len(begun) == study.spec.trials or any(not t.status.final for t in begun):
        return ""
    first = min((t for t in begun if t.status is TrialStatus.FAILED), key=lambda t: t.number)
    return (
        f"{counted(len(begun), 'trial')} ended without a report of {study.spec.metric!r} (give_up_after: "
        f"{study.spec.give_up_after}); trial {first.number}: {first.reason[:REASON]}"
    )


def _best(study: Study, trials: Sequence[Trial]) -> list[Trial]:
    return sorted(trials, key=lambda t: (study.spec.order(_value(t, t.rung)), t.number))


def _value(trial: Trial, rung: int) -> float:
    return next(result.value for result in trial.results if result.rung == rung)


def _onward(trial: Trial) -> Trial:
    return replace(trial, status=TrialStatus.WAITING, rung=trial.rung + 1)


def _worse(trial: Trial, of: int, kept: int) -> Trial:
    reason = (
        f"not among the best {kept} of {of} at rung {trial.rung}"
        if kept
        else f"not promoted from rung {trial.rung}"
    )
    return replace(trial, status=TrialStatus.STOPPED, reason=reason)
