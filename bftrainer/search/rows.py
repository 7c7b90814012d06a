"""Studies and trials to and from what the store keeps of them. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from bftrainer.errors import BftrainerError
from bftrainer.messages.files.studies import DAMAGED_STUDY
from bftrainer.model.studies import StoredStudy, StoredTrial
from bftrainer.search.cost import held_by_trial
from bftrainer.search.files.parse import parse
from bftrainer.search.optuna.storage import shown
from bftrainer.search.trial import Study, StudyFile, StudyStatus, Trial
from bftrainer.spec.located_yaml import SPECS

TRIAL = TypeAdapter(Trial)


class DamagedStudyError(BftrainerError):
    """The store holds of a study what this version cannot read."""


def stored_study(study: Study) -> StoredStudy:
    """A study as the store keeps it, without its trials."""
    own = study.source
    return StoredStudy(
        id=study.id,
        user=study.user,
        name=study.spec.name,
        text=own.text,
        file=own.file,
        base=own.base,
        status=study.status.value,
        reason=study.reason,
        submitted_at=study.submitted_at,
        ended_at=study.ended_at,
        brief=brief(study),
    )


def stored_trial(trial: Trial) -> StoredTrial:
    """A trial as the store keeps it."""
    course = {"course": tuple(trial.course)}
    return StoredTrial(number=trial.number, data=TRIAL.dump_python(replace(trial, course=())) | course)


def stored_points(study: Study, after: int) -> list[StoredTrial]:
    """The known points as the store keeps them, once each: those behind the first `after` ones, of which the
    study file has some. Their numbers are below those of trials: -1, -2, and so on."""
    points = enumerate(study.points[after:], after - len(study.spec.points))
    return [StoredTrial(number=-1 - i, data={"point": dict(point)}) for i, point in points]


def brief(study: Study) -> dict[str, Any]:
    """Return a study's row in a list."""
    best = study.best()
    spec = study.spec
    return {
        "trials": spec.trials,
        "counts": dict(Counter(t.word for t in study.trials.values())),
        "metric": spec.metric,
        "direction": "maximize" if spec.maximize else "minimize",
        "sampler": spec.sampler.value,
        "stopping": spec.stopping.kind.value,
        "best": None
        if best is None
        else {
            "number": best.trial.number,
            "value": best.value,
            "samples": best.samples,
            "short_of": best.short_of,
            "params": dict(best.trial.params),
        },
        "node_s": study.used_node_s,
        "added": list(spec.added),
        "older": study.older,
        "points": study.untried,
        "tried": study.tried,
        "record": study.record,
        "since_record": study.since_record,
        "priority": spec.trainer.priority,
        "storage": None if spec.storage is None else shown(spec.storage),
    }


def loaded(kept: StoredStudy, trials: Sequence[StoredTrial]) -> Study:
    """The study that was stored.

    Raises:
        DamagedStudyError: it cannot be read.
    """
    try:
        return _loaded(kept, trials)
    except (BftrainerError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise DamagedStudyError(DAMAGED_STUDY.say(id=kept.id, name=kept.name, why=error)) from error


def _loaded(kept: StoredStudy, trials: Sequence[StoredTrial]) -> Study:
    source = StudyFile(text=kept.text, file=kept.file, base=kept.base)
    spec = parse(kept.text, kept.file, Path(kept.base), SPECS, accepted=True)
    found = {t.number: TRIAL.validate_python(t.data) for t in trials if t.number >= 0}
    added_points = [t.data["point"] for t in reversed(trials) if t.number < 0]
    used = kept.brief.get("node_s")
    priority = kept.brief.get("priority", spec.trainer.priority)  # it may have changed since
    added = tuple(kept.brief.get("added", ()))
    spec = replace(
        spec,
        trainer=replace(spec.trainer, user=kept.user, priority=float(priority)),
        trials=spec.trials + sum(added),
        added=added,
    )
    points = (*spec.points, *(tuple(point.items()) for point in added_points))
    study = replace(
        Study.new(kept.id, spec, kept.user, kept.submitted_at, source),
        status=StudyStatus(kept.status),
        reason=kept.reason,
        ended_at=kept.ended_at,
        trials=found,
        used_node_s=float(used) if isinstance(used, int | float) else 0.0,
        points=points,
        tried=int(kept.brief.get("tried", 0)),
        older=kept.brief.get("older"),
        record=kept.brief.get("record"),
        since_record=int(kept.brief.get("since_record", 0)),
        trial_bytes=held_by_trial(spec),
    )
    for trial in found.values():
        if not trial.status.final:
            study.samples(trial)  # its rung is one that there is
    return study


def changed(before: Study | None, after: Study) -> list[Trial]:
    """Return the trials that the store must rewrite: reports alone change nothing there."""
    known = before.trials if before is not None else {}
    return [t for n, t in after.trials.items() if known.get(n) is not t and _kept(known.get(n)) != _kept(t)]


def _kept(trial: Trial | None) -> Trial | None:
    return None if trial is None else dataclasses.replace(trial, course=(), samples=0, value=None)
