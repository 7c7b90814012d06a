"""Studies and trials as the API tells of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from bftrainer.model.studies import StoredStudy
from bftrainer.search.fill import command_of, values_of
from bftrainer.search.stored import brief
from bftrainer.search.study import seed_of
from bftrainer.search.trial import Study, Trial, TrialStatus

View = dict[str, Any]
Live = Mapping[int, tuple[int, int]]
"""Trainer -> how many nodes it holds, and the samples that it last told of."""


def study_row(study: Study) -> View:
    """A study's line in a list, while it has not ended."""
    return _row(study, brief(study))


def stored_row(study: StoredStudy) -> View:
    """The line of one that has ended."""
    return _row(study, study.brief, name=study.name)


def _row(study: Study | StoredStudy, known: Mapping[str, Any], name: str = "") -> View:
    return {
        "id": study.id,
        "name": name or (study.spec.name if isinstance(study, Study) else study.name),
        "user": study.user,
        "status": str(study.status),
        "reason": study.reason,
        "submitted_at": study.submitted_at,
        "ended_at": study.ended_at,
        **known,
    }


def study_view(study: Study, live: Live) -> View:
    """All about a study but its trials."""
    spec, own = study.spec, study.spec.stopping
    return {
        **study_row(study),
        "command": list(spec.trainer.command),
        "budget": spec.budget,
        "eta": own.eta,
        "parallelism": spec.parallelism,
        "room": study.room,
        "retries": spec.retries,
        "deadline_at": None if spec.deadline_s is None else study.submitted_at + spec.deadline_s,
        "node_hours": spec.node_hours,
        "seed": spec.seed,
        "nodes": sum(nodes for nodes, _ in live.values()),
        "rungs": rungs(study),
        "text": study.source.text,
    }


def rungs(study: Study) -> list[View]:
    """How many trials are at which number of samples, and the best value there."""
    found = []
    for samples in sorted({samples for bracket in study.brackets for samples in bracket.budgets}):
        here = [t for t in study.trials.values() if study.samples(t) == samples]
        values = [
            r.value
            for t in study.trials.values()
            for r in t.results
            if r.samples >= samples and _at(study, t, r.rung) == samples
        ]
        found.append(
            {
                "samples": samples,
                "trials": dict(Counter(t.status.value for t in here)),
                "ended": len(values),
                "best": min(values, key=study.spec.order, default=None),
            }
        )
    return found


def _at(study: Study, trial: Trial, rung: int) -> int:
    return study.bracket(trial.number).budgets[rung]


def trial_views(study: Study, live: Live) -> Callable[[], list[View]]:
    """The study's trials by number: made when it is called, by any thread."""
    return lambda: [
        _trial(study, trial, live) for trial in sorted(study.trials.values(), key=lambda t: t.number)
    ]


def _trial(study: Study, trial: Trial, live: Live) -> View:
    return {
        "number": trial.number,
        "status": trial.status.value,
        "params": dict(trial.params),
        "rung": trial.rung,
        "samples": max(trial.samples, live.get(trial.trainer or 0, (0, 0))[1]),
        "until": study.samples(trial),
        "value": trial.results[-1].value
        if trial.results and trial.status is not TrialStatus.RUNNING
        else trial.value,
        "results": [[result.samples, result.value] for result in trial.results],
        "course": [list(point) for point in trial.course],
        "command": list(
            command_of(study.spec.trainer.command, values_of(study.spec, trial.number, trial.params))
        ),
        "run": trial.run,
        "trainer": f"{study.spec.name}.{trial.number}.{trial.run}" if trial.run else None,
        "nodes": live.get(trial.trainer or 0, (0, 0))[0],
        "failures": trial.failures,
        "seed": seed_of(study.spec.seed, trial.number),
        "reason": trial.reason,
    }
