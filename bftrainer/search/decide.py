"""(study, event) -> (study, actions): every decision on trials, and no side effect.

Events that name a run of a trial count only while that run is the trial's present one. So one that comes
twice, or late, changes nothing; after a restart the daemon may repeat all it knows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from math import isfinite

from bftrainer.model.trainer import TrainerStatus
from bftrainer.search.events import (
    Action,
    Ask,
    Asked,
    Begun,
    Cancel,
    Ended,
    Event,
    Over,
    Pause,
    Prioritise,
    Refused,
    Reported,
    Resume,
    Room,
    Start,
    Started,
    Stop,
    Tell,
)
from bftrainer.search.stopping import falls_behind, hopeless, in_doubt, promote
from bftrainer.search.trial import Result, Study, StudyStatus, Trial, TrialStatus

Step = tuple[Study, tuple[Action, ...]]


def step(study: Study, event: Event, now: float) -> Step:
    """What an event leads to: the study after it, and what is to be done, in order."""
    taken, actions = take(event, study)
    if isinstance(event, Reported | Started) and not actions:  # the most frequent ones move no trial
        return taken, ()
    if taken.status is StudyStatus.RUNNING and (why := hopeless(taken)):
        taken, more = _give_up(taken, StudyStatus.ENDED, why)
        actions = (*actions, *more)
    if taken.status is StudyStatus.RUNNING:
        taken = promote(taken)
        taken, more = _start(taken)
        actions = (*actions, *more)
    return _end(taken, now), actions


@singledispatch
def take(event: Event, study: Study) -> Step:
    """The study with what an event says.

    Raises:
        TypeError: `event` is not an event.
    """
    raise TypeError(f"not an event: {event!r}")


@take.register
def _(event: Begun, study: Study) -> Step:
    return replace(study, asked=False), ()


@take.register
def _(event: Room, study: Study) -> Step:
    study = replace(study, room=max(1, event.trials), used_node_s=study.used_node_s + event.node_s)
    most = study.spec.node_hours
    if most is not None and study.used_node_s >= 3600.0 * most:
        return _give_up(study, StudyStatus.ENDED, f"it has used its {most:g} node-hours")
    return study, ()


@take.register
def _(event: Asked, study: Study) -> Step:
    study = replace(study, asked=False)
    if event.number in study.trials or study.status.final:
        return study, ()
    return study.put(Trial(number=event.number, params=event.params)), ()


@take.register
def _(event: Started, study: Study) -> Step:
    trial = _running(study, event.number, event.run)
    if trial is None:
        return study, ()
    stop = (Stop(number=trial.number, run=trial.run, trainer=event.trainer),) if trial.stopping else ()
    return study.put(replace(trial, trainer=event.trainer)), stop


@take.register
def _(event: Refused, study: Study) -> Step:
    trial = _running(study, event.number, event.run)
    if trial is None:
        return study, ()
    if trial.stopping is not None:
        return study.put(_stopped(trial)), ()
    if event.again:
        return study.put(replace(trial, status=TrialStatus.WAITING, trainer=None)), ()
    return study.put(replace(trial, status=TrialStatus.FAILED, reason=event.reason)), (
        Tell(number=trial.number),
    )


@take.register
def _(event: Reported, study: Study) -> Step:
    trial = _running(study, event.number, event.run)
    if trial is None or not isfinite(event.value):
        return study, ()
    trial = trial.reported(event.samples, event.value)
    why = "" if trial.stopping else falls_behind(study, trial)
    if not why:
        return study.put(trial), ()
    return _stop(study, trial, TrialStatus.STOPPED, why)


@take.register
def _(event: Ended, study: Study) -> Step:
    trial = _running(study, event.number, event.run)
    if trial is None:
        return study, ()
    if event.value is not None and isfinite(event.value):
        trial = trial.reported(event.samples, event.value)
    if event.status is TrainerStatus.COMPLETED:
        trial = _rung_ended(study, trial, event)
    elif event.status is TrainerStatus.FAILED:
        trial = _failed(study, trial, event)
    elif trial.stopping is not None:
        trial = _stopped(trial)
    else:
        trial = replace(trial, status=TrialStatus.CANCELLED, reason=event.reason)
    trial = replace(trial, samples=max(trial.samples, event.samples))
    return study.put(trial), (Tell(number=trial.number),) if trial.status is not TrialStatus.WAITING else ()


@take.register
def _(event: Pause, study: Study) -> Step:
    if study.status is not StudyStatus.RUNNING:
        return study, ()
    return _stop_all(replace(study, status=StudyStatus.PAUSED), TrialStatus.WAITING)


@take.register
def _(event: Resume, study: Study) -> Step:
    return (
        (replace(study, status=StudyStatus.RUNNING), ())
        if study.status is StudyStatus.PAUSED
        else (study, ())
    )


@take.register
def _(event: Prioritise, study: Study) -> Step:
    trainer = replace(study.spec.trainer, priority=event.to)
    return replace(study, spec=replace(study.spec, trainer=trainer)), ()


@take.register
def _(event: Cancel, study: Study) -> Step:
    return _give_up(study, StudyStatus.CANCELLED, "cancelled by its user")


@take.register
def _(event: Over, study: Study) -> Step:
    return _give_up(study, StudyStatus.ENDED, event.reason)


def _give_up(study: Study, status: StudyStatus, reason: str) -> Step:
    """End a study: its trials keep what they have shown."""
    if study.status.final:
        return study, ()
    rest = [t for t in study.trials.values() if t.status in (TrialStatus.WAITING, TrialStatus.PAUSED)]
    study = study.put(*(replace(t, status=TrialStatus.CANCELLED, reason=reason) for t in rest))
    return _stop_all(replace(study, status=status, reason=reason), TrialStatus.CANCELLED)


def _running(study: Study, number: int, run: int) -> Trial | None:
    """The trial, if this is its present run and has not ended."""
    trial = study.trials.get(number)
    return trial if trial is not None and trial.run == run and trial.status is TrialStatus.RUNNING else None


def _rung_ended(study: Study, trial: Trial, event: Ended) -> Trial:
    if trial.value is None or not trial.course or event.value is None or not isfinite(event.value):
        said = ", ".join(event.names[:8]) or "nothing"
        reason = f"it has not reported {study.spec.metric!r} as a number; it reported {said}"
        return replace(trial, status=TrialStatus.FAILED, reason=reason)
    result = Result(rung=trial.rung, samples=max(event.samples, trial.samples), value=event.value)
    last = trial.rung == len(study.bracket(trial.number).budgets) - 1
    status = TrialStatus.COMPLETED if last else TrialStatus.PAUSED
    if study.status.final and not last:
        status = TrialStatus.CANCELLED
    return replace(trial, status=status, results=(*trial.results, result), stopping=None, trainer=None)


def _failed(study: Study, trial: Trial, event: Ended) -> Trial:
    trial = replace(trial, failures=trial.failures + 1, reason=event.reason, trainer=None)
    if trial.failures > study.spec.retries:
        return replace(trial, status=TrialStatus.FAILED)
    return _stopped(trial) if trial.stopping else replace(trial, status=TrialStatus.WAITING)


def _stopped(trial: Trial) -> Trial:
    return replace(trial, status=trial.stopping or TrialStatus.CANCELLED, stopping=None, trainer=None)


def _stop(study: Study, trial: Trial, to: TrialStatus, reason: str) -> Step:
    study = study.put(replace(trial, stopping=to, reason=reason))
    if trial.trainer is None:  # it is being submitted: `Started` stops it
        return study, ()
    return study, (Stop(number=trial.number, run=trial.run, trainer=trial.trainer),)


def _stop_all(study: Study, to: TrialStatus) -> Step:
    actions: list[Action] = []
    for trial in [t for t in study.trials.values() if t.status is TrialStatus.RUNNING]:
        study, more = _stop(study, trial, to, study.reason)
        actions += more
    return study, tuple(actions)


def _start(study: Study) -> Step:
    """Fill the places for trials: those that are furthest first, then new ones, as long as these may help.
    Where a report ends the doubt, the next `Room` begins them."""
    actions: list[Action] = []
    new = not in_doubt(study)
    free = (study.spec.parallelism or study.room) - sum(
        t.status is TrialStatus.RUNNING for t in study.trials.values()
    )
    waiting = sorted(
        (t for t in study.trials.values() if t.status is TrialStatus.WAITING and (t.run or new)),
        key=lambda t: (-t.rung, t.number),
    )
    for trial in waiting[: max(0, free)]:
        begun = replace(
            trial, status=TrialStatus.RUNNING, run=trial.run + 1, trainer=None, stopping=None, reason=""
        )
        study = study.put(begun)
        actions.append(Start(number=begun.number, run=begun.run))
    number = len(study.trials)
    if new and free > len(waiting) and number < study.spec.trials and not study.asked:
        study = replace(study, asked=True)
        actions.append(Ask(number=number))
    return study, tuple(actions)


def _end(study: Study, now: float) -> Study:
    """A study ends when its last trial has, and no trainer is left."""
    if study.ended_at is not None or any(not t.status.final for t in study.trials.values()):
        return study
    if study.status.final:
        return replace(study, ended_at=now)
    if study.status is StudyStatus.RUNNING and len(study.trials) == study.spec.trials:
        reason = "" if any(t.results for t in study.trials.values()) else "no trial has a result"
        if reason and study.best() is not None:
            reason = "no trial has come to a rung's end"
        return replace(study, status=StudyStatus.COMPLETED, ended_at=now, reason=reason)
    return study
