"""Studies and trials as the API tells of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from bftrainer.api.listing import encoded
from bftrainer.model.studies import StoredStudy
from bftrainer.search.fill import command_of, values_of
from bftrainer.search.plan.of_study import Learnt
from bftrainer.search.rows import brief
from bftrainer.search.stopping import unmeasured
from bftrainer.search.study import seed_of
from bftrainer.search.trial import COURSE, Study, Trial, TrialStatus

View = dict[str, Any]


class LiveTrainer(NamedTuple):
    """The nodes that a trainer holds, the samples that it last told of, and whether it waits for nodes: all
    as the list of trainers has it."""

    nodes: int = 0
    samples: int = 0
    waits: bool = False


Live = Mapping[int, LiveTrainer]
"""Unfinished trainers of a study's trials."""
NOTHING = LiveTrainer()
NOTHING_LEARNT = Learnt()
STUDIES = 8
KEPT_BYTES = 8_000_000
"""Bytes of a study's trials that are kept as JSON from one answer to the next, at most."""


@dataclass(frozen=True, slots=True)
class TrialPart:
    """Selects the trials of a study that an answer has.

    Attributes:
        most: The largest number of them: those that run, and then the best; None: all, by number.
        after: Only those with higher numbers: where the answer before has ended.
        bytes: The size, at most.
    """

    most: int | None = None
    after: int = -1
    bytes: float = float("inf")


WHOLE = TrialPart()


@dataclass(frozen=True, slots=True)
class Now:
    """What is known, beside the study itself, of an unfinished study.

    Attributes:
        unit: The unit that is shared out and that all counts of nodes count.
        forecast: The latest one.
        moved_at: When a trial has last got further.
        learnt: The measured speed and start time of its trials.
    """

    unit: str = "node"
    forecast: View | None = None
    moved_at: float | None = None
    learnt: Learnt = NOTHING_LEARNT


def study_row(study: Study, moved_at: float | None = None, live: Live | None = None) -> View:
    """A study's line in a list, while it has not ended; a trial has last got further at `moved_at`."""
    counts = dict(Counter(_word(trial, live or {}) for trial in study.trials.values()))
    now = {"moved_at": moved_at, "unmeasured": unmeasured(study), "counts": counts}
    return _row(study, brief(study)) | now


def _now(trial: Trial, live: Live) -> LiveTrainer:
    return live.get(trial.trainer or 0, NOTHING)


def _word(trial: Trial, live: Live) -> str:
    """Return the word that a trial is counted as: one whose trainer waits for nodes waits."""
    waits = trial.status is TrialStatus.RUNNING and _now(trial, live).waits
    return TrialStatus.WAITING.value if waits else trial.word


def stored_row(study: StoredStudy) -> View:
    """The line of one that has ended."""
    return _row(study, study.brief, name=study.name) | {"moved_at": None, "unmeasured": ""}


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


def study_view(study: Study, live: Live, now: Now) -> View:
    """All about a study but its trials."""
    spec, own = study.spec, study.spec.stopping
    return {
        **study_row(study, now.moved_at, live),
        "command": list(spec.trainer.command),
        "budget": spec.budget,
        "eta": own.eta,
        "parallelism": spec.parallelism,
        "room": study.room,
        "allowed": study.allowed,
        "retries": spec.retries,
        "give_up_after": spec.give_up_after,
        "deadline_at": None if spec.deadline_s is None else study.submitted_at + spec.deadline_s,
        "node_hours": spec.node_hours,
        "target": spec.target,
        "plateau": spec.plateau,
        "seed": spec.seed,
        "own_folders": spec.own_folders,
        "nodes": sum(own.nodes for own in live.values()),
        "unit": now.unit,
        "rungs": rungs(study, live),
        "forecast": now.forecast,
        "learnt": {"curve": [list(point) for point in now.learnt.curve], "start_s": now.learnt.start_s},
        "failed": next((t.number for _, t in sorted(study.trials.items()) if t.failures), None),
        "text": study.source.text,
        "base": study.source.base,
    }


def rungs(study: Study, live: Live | None = None) -> list[View]:
    """Count the trials by number of samples, with the best value there."""
    here: dict[int, Counter[str]] = {at: Counter() for own in study.brackets for at in own.budgets}
    values: dict[int, list[float]] = {at: [] for at in here}
    for trial in study.trials.values():
        budgets = study.bracket(trial.number).budgets
        here[budgets[trial.rung]][_word(trial, live or {})] += 1
        for result in trial.results:
            if result.samples >= (at := budgets[result.rung]):
                values[at].append(result.value)
    return [
        {
            "samples": at,
            "trials": dict(here[at]),
            "ended": len(values[at]),
            "best": min(values[at], key=study.spec.order, default=None),
        }
        for at in sorted(here)
    ]


class TrialTexts:
    """Trials as JSON, kept from one answer to the next: most of a study's have not changed meanwhile.

    To be used by one thread. Keeps those of the `STUDIES` studies that were asked for last, `KEPT_BYTES` of
    each.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], dict[int, tuple[Trial, LiveTrainer, bytes]]] = {}

    def of(self, study: Study, live: Live, points: int, part: TrialPart = WHOLE) -> dict[int, bytes]:
        """Part of a study's trials by number, each with the last `points` of its course: as many as fit, the
        first in any case."""
        before = self._kept.pop((study.id, points), {})
        found, size = dict[int, tuple[Trial, LiveTrainer, bytes]](), 0
        for trial in chosen(study, part.most):
            number = trial.number
            if number <= part.after:
                continue
            now = _now(trial, live)
            known = before.get(number)
            if known is None or known[0] is not trial or known[1] != now:
                known = (trial, now, encoded([trial_view(study, trial, now, points)])[0])
            size += len(known[2]) + 1
            if found and size > part.bytes:
                break
            found[number] = known
        self._keep((study.id, points), before | found)
        return {number: text for number, (_, _, text) in found.items()}

    def _keep(self, key: tuple[int, int], known: dict[int, tuple[Trial, LiveTrainer, bytes]]) -> None:
        if sum(len(text) for _, _, text in known.values()) <= KEPT_BYTES:
            self._kept[key] = known
        while len(self._kept) > STUDIES:
            del self._kept[next(iter(self._kept))]


def chosen(study: Study, most: int | None) -> list[Trial]:
    """Return at most `most` trials by number: those that run, and then the others from the best on."""
    every = sorted(study.trials.values(), key=lambda t: t.number)
    if most is None or len(every) <= most:
        return every

    def order(t: Trial) -> tuple[bool, int, float]:
        reached, value = (t.results[-1].samples, t.results[-1].value) if t.results else (0, t.value)
        return t.status is not TrialStatus.RUNNING, -reached, _first(study, value)

    return sorted(every, key=order)[:most]


def _first(study: Study, value: float | None) -> float:
    return float("inf") if value is None else study.spec.order(value)


def trial_view(study: Study, trial: Trial, live: LiveTrainer = NOTHING, points: int = COURSE) -> View:
    """All about a trial, with the last `points` of its course; `live`: its trainer now."""
    return {
        "number": trial.number,
        "status": "waiting" if live.waits else trial.status.value,
        "params": dict(trial.params),
        "rung": trial.rung,
        "bracket": study.group(trial.number),
        "samples": max(trial.samples, live.samples),
        "until": study.samples(trial),
        "value": trial.results[-1].value
        if trial.results and trial.status is not TrialStatus.RUNNING
        else trial.value,
        "results": [[result.samples, result.value] for result in trial.results],
        "course": [list(point) for point in trial.course[max(0, len(trial.course) - points) :]],
        "command": list(
            command_of(study.spec.trainer.command, values_of(study.spec, trial.number, trial.params))
        ),
        "run": trial.run,
        "trainer": f"{study.spec.name}.{trial.number}.{trial.run}" if trial.run else None,
        "trainer_id": trial.trainer,
        "nodes": live.nodes,
        "began_at": trial.began_at,
        "ended_at": trial.ended_at,
        "duration_s": _duration_s(trial),
        "failures": trial.failures,
        "seed": seed_of(study.spec.seed, trial.number),
        "reason": trial.reason,
    }


def _duration_s(trial: Trial) -> float | None:
    """From a trial's begin to its end, pauses at rungs and waits for nodes included; None before its end."""
    if trial.began_at is None or trial.ended_at is None:
        return None
    return round(trial.ended_at - trial.began_at, 3)
