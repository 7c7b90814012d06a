"""(study, event) -> (study, actions): every decision on trials, and no side effect.

Events that name a run of a trial count only while that run is the trial's present one. So one that comes
twice, or late, changes nothing; after a restart the daemon may repeat all it knows.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from math import isfinite

from bftrainer.errors import BftrainerError
from bftrainer.messages.files.studies import POINTS_ABOVE, TRIALS_ABOVE
from bftrainer.model.text import cut
from bftrainer.model.trainer import TrainerStatus
from bftrainer.search.brackets import brackets
from bftrainer.search.events import (
    Action,
    Add,
    Ask,
    Asked,
    Begun,
    Cancel,
    Event,
    Over,
    PauseStudy,
    Prioritise,
    Refused,
    Reported,
    ResumeStudy,
    Started,
    StartTrial,
    StopTrial,
    Tell,
    TrialEnded,
    TrialSlots,
    Unmeasured,
)
from bftrainer.search.stopping import (
    at_target,
    falls_behind,
    flat,
    hopeless,
    in_doubt,
    promote,
    recorded,
    reporting,
    told,
)
from bftrainer.search.trial import RungResult, Study, StudyStatus, Trial, TrialStatus

Step = tuple[Study, tuple[Action, ...]]
WHY = 300
"""Characters of the reason of a trainer's end that are kept with its trial."""


class OrderRefusedError(BftrainerError):
    """A user's order does not fit the study as it is by now; nothing has changed."""


def check_room(study: Study, trials: int, points: int) -> None:
    """Raise `OrderRefusedError` if a study with `trials` more trials has no room for `points` more points."""
    room = study.spec.trials + trials - len(study.trials) - study.asked - study.untried
    if points > room:
        raise OrderRefusedError(POINTS_ABOVE.say(points=points, room=max(0, room)))


def step(study: Study, event: Event, now: float) -> Step:
    """Return the result of an event: the study after it, and the actions, in order.

    Raises:
        OrderRefusedError: a user's order does not fit the study.
    """
    taken, actions = take(event, study)
    if isinstance(event, Reported | Started) and not actions and not taken.status.final:
        return taken, ()  # the most frequent ones move no trial
    if taken.status is StudyStatus.RUNNING and (why := hopeless(taken)):
        taken, more = _give_up(taken, StudyStatus.ENDED, why)
        actions = (*actions, *more)
    if taken.status is StudyStatus.RUNNING:
        taken = promote(taken)
        taken, more = _start(taken)
        actions = (*actions, *more)
    return _end(_timed(study, taken, now), now), actions


def _timed(before: Study, after: Study, now: float) -> Study:
    """The study in which trials that have begun or ended since `before` say when."""
    found = []
    for number, t in after.trials.items():
        if t is before.trials.get(number):
            continue
        begun = now if t.run and t.began_at is None else t.began_at
        ended = now if t.status.final and t.ended_at is None else t.ended_at
        if (begun, ended) != (t.began_at, t.ended_at):
            found.append(replace(t, began_at=begun, ended_at=ended))
    return after.put(*found) if found else after


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
def _(event: TrialSlots, study: Study) -> Step:
    study = replace(
        study,
        room=max(1, event.trials),
        allowed=event.allowed,
        used_node_s=study.used_node_s + event.node_s,
    )
    most = study.spec.node_hours
    if most is not None and study.used_node_s >= 3600.0 * most:
        return _give_up(study, StudyStatus.ENDED, f"it has used its {most:g} node-hours")
    return study, ()


@take.register
def _(event: Asked, study: Study) -> Step:
    study = replace(study, asked=False)
    if event.number in study.trials or study.status.final:
        return study, ()
    if event.known and study.points[study.tried : study.tried + 1] == (event.known,):
        study = replace(study, tried=study.tried + 1)
    return study.put(Trial(number=event.number, params=event.params)), ()


@take.register
def _(event: Add, study: Study) -> Step:
    if study.status.final:
        return study, ()
    spec = study.spec
    if event.most is not None and event.trials and spec.trials + event.trials > event.most:
        said = f"{spec.trials + event.trials:,} trials in all are"
        which = "the most here, as some were added just before"
        raise OrderRefusedError(TRIALS_ABOVE.say(said=said, most=event.most, which=which))
    check_room(study, event.trials, len(event.points))
    if event.trials:
        spec = replace(spec, trials=spec.trials + event.trials, added=(*spec.added, event.trials))
    return replace(study, spec=spec, brackets=brackets(spec), points=(*study.points, *event.points)), ()


@take.register
def _(event: Started, study: Study) -> Step:
    trial = _running(study, event.number, event.run)
    if trial is None:
        return study, ()
    stop = (StopTrial(number=trial.number, run=trial.run, trainer=event.trainer),) if trial.stopping else ()
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
    if trial is None:
        return study, ()
    trial = _measured(trial, event.samples, event.value)
    if not isfinite(event.value):
        return study.put(trial), ()
    if reached := at_target(study, trial, event.value):
        return _give_up(study.put(trial), StudyStatus.ENDED, reached)
    why = "" if trial.stopping else falls_behind(study, trial)
    if not why:
        return study.put(trial), ()
    return _stop(study, trial, TrialStatus.STOPPED, why)


def _measured(trial: Trial, samples: int, value: float) -> Trial:
    """A trial that reports the metric; a value that is no finite number is none to go by."""
    trial = replace(trial, measured=True, figures=(), slip="", misnamed=False)
    return trial.reported(samples, value) if isfinite(value) else trial


@take.register
def _(event: Unmeasured, study: Study) -> Step:
    trial = _running(study, event.number, event.run)
    if trial is None or trial.measured is not None:
        return study, ()
    return study.put(reporting(study, trial, event.names)), ()


@take.register
def _(event: TrialEnded, study: Study) -> Step:
    trial = _running(study, event.number, event.run)
    if trial is None:
        return study, ()
    if event.value is not None:
        trial = _measured(trial, event.samples, event.value)
    if event.status is TrainerStatus.COMPLETED:
        trial = _rung_ended(study, trial, event)
    elif event.status is TrainerStatus.FAILED:
        trial = _failed(study, trial, event)
    elif trial.stopping is not None:
        trial = _stopped(trial)
    else:
        trial = replace(trial, status=TrialStatus.CANCELLED, reason=cut(event.reason, WHY))
    trial = replace(trial, samples=max(trial.samples, event.samples))
    actions: tuple[Action, ...] = () if trial.status is TrialStatus.WAITING else (Tell(number=trial.number),)
    if trial.results and trial.results[-1].rung == trial.rung and trial.results[-1].value == event.value:
        study = recorded(study, trial.results[-1].value)
    study = study.put(trial)
    value = event.value if event.value is not None and isfinite(event.value) else None
    if why := (at_target(study, trial, value) if value is not None else "") or flat(study):
        study, more = _give_up(study, StudyStatus.ENDED, why)
        actions += more
    return study, actions


@take.register
def _(event: PauseStudy, study: Study) -> Step:
    if study.status is not StudyStatus.RUNNING:
        return study, ()
    return _stop_all(replace(study, status=StudyStatus.PAUSED), TrialStatus.WAITING)


@take.register
def _(event: ResumeStudy, study: Study) -> Step:
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


def _rung_ended(study: Study, trial: Trial, event: TrialEnded) -> Trial:
    if event.value is None:
        trial = reporting(study, trial, event.names)
        reason = (
            f"it has not reported {study.spec.metric!r} by the end of its rung, after {event.samples:,} "
            f"samples; it reported {told(trial)}"
        )
        return replace(trial, status=TrialStatus.FAILED, reason=reason, measured=bool(trial.measured))
    if not isfinite(event.value):
        reason = f"its {study.spec.metric!r} was {event.value} after {event.samples:,} samples"
        return replace(trial, status=TrialStatus.FAILED, reason=reason)
    result = RungResult(rung=trial.rung, samples=max(event.samples, trial.samples), value=event.value)
    last = trial.rung == len(study.bracket(trial.number).budgets) - 1
    status = TrialStatus.COMPLETED if last else TrialStatus.PAUSED
    if study.status.final and not last:
        status = TrialStatus.CANCELLED
    return replace(trial, status=status, results=(*trial.results, result), stopping=None)


def _failed(study: Study, trial: Trial, event: TrialEnded) -> Trial:
    trial = replace(trial, failures=trial.failures + 1, reason=cut(event.reason, WHY))
    if trial.failures > study.spec.retries:
        return replace(trial, status=TrialStatus.FAILED)
    return _stopped(trial) if trial.stopping else replace(trial, status=TrialStatus.WAITING)


def _stopped(trial: Trial) -> Trial:
    return replace(trial, status=trial.stopping or TrialStatus.CANCELLED, stopping=None)


def _stop(study: Study, trial: Trial, to: TrialStatus, reason: str) -> Step:
    study = study.put(replace(trial, stopping=to, reason=reason))
    if trial.trainer is None:  # it is being submitted: `Started` stops it
        return study, ()
    return study, (StopTrial(number=trial.number, run=trial.run, trainer=trial.trainer),)


def _stop_all(study: Study, to: TrialStatus) -> Step:
    actions: list[Action] = []
    for trial in [t for t in study.trials.values() if t.status is TrialStatus.RUNNING]:
        study, more = _stop(study, trial, to, study.reason)
        actions += more
    return study, tuple(actions)


def _start(study: Study) -> Step:
    """Fill the places for trials: those that are furthest first, then new ones, as long as these may help.
    Where a report ends the doubt, the next `TrialSlots` begins them."""
    actions: list[Action] = []
    new = not in_doubt(study)
    most = study.spec.parallelism or study.room
    if study.allowed is not None:
        most = min(most, study.allowed)
    free = most - sum(t.status is TrialStatus.RUNNING for t in study.trials.values())
    waiting = sorted(
        (t for t in study.trials.values() if t.status is TrialStatus.WAITING and (t.run or new)),
        key=lambda t: (-t.rung, t.number),
    )
    for trial in waiting[: max(0, free)]:
        begun = replace(
            trial, status=TrialStatus.RUNNING, run=trial.run + 1, trainer=None, stopping=None, reason=""
        )
        study = study.put(begun)
        actions.append(StartTrial(number=begun.number, run=begun.run))
    number = len(study.trials)
    if new and free > len(waiting) and number < study.spec.trials and not study.asked:
        study = replace(study, asked=True)
        actions.append(Ask(number=number, known=study.points[study.tried] if study.untried else ()))
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
