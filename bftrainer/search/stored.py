"""Studies and trials to and from what the store keeps of them. Pure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from bftrainer.errors import BftrainerError
from bftrainer.model.studies import StoredStudy, StoredTrial
from bftrainer.search.parse import parse
from bftrainer.search.storage import shown
from bftrainer.search.trial import Source, Study, StudyStatus, Trial
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
    return StoredTrial(number=trial.number, data=TRIAL.dump_python(trial, mode="json"))


def brief(study: Study) -> dict[str, Any]:
    """What a list shows of a study."""
    best = study.best()
    spec = study.spec
    return {
        "trials": spec.trials,
        "counts": dict(Counter(t.status.value for t in study.trials.values())),
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
        "priority": spec.trainer.priority,
        "storage": None if spec.storage is None else shown(spec.storage),
    }


def loaded(kept: StoredStudy, trials: Sequence[StoredTrial]) -> Study:
    """The study that was stored.

    Raises:
        DamagedStudyError: it cannot be read.
    """
    source = Source(text=kept.text, file=kept.file, base=kept.base)
    try:
        spec = parse(kept.text, kept.file, Path(kept.base), SPECS, accepted=True)
        status = StudyStatus(kept.status)
        found = {trial.number: TRIAL.validate_python(trial.data) for trial in trials}
    except (BftrainerError, ValidationError, ValueError) as error:
        raise DamagedStudyError(f"the study {kept.id} ({kept.name}) cannot be read: {error}") from error
    used = kept.brief.get("node_s")
    priority = kept.brief.get("priority", spec.trainer.priority)  # it may have changed since
    spec = replace(spec, trainer=replace(spec.trainer, user=kept.user, priority=float(priority)))
    return replace(
        Study.new(kept.id, spec, kept.user, kept.submitted_at, source),
        status=status,
        reason=kept.reason,
        ended_at=kept.ended_at,
        trials=found,
        used_node_s=float(used) if isinstance(used, int | float) else 0.0,
    )


def changed(before: Study | None, after: Study) -> list[Trial]:
    """The trials that the store is to have anew: reports alone change nothing there."""
    known = before.trials if before is not None else {}
    return [t for n, t in after.trials.items() if known.get(n) is not t and _kept(known.get(n)) != _kept(t)]


def _kept(trial: Trial | None) -> Trial | None:
    return None if trial is None else dataclasses.replace(trial, course=(), samples=0, value=None)
