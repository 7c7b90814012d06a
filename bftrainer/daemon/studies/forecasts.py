"""Forecasts of studies that run: each is planned again after every stage, when nodes come or go, and now and
then.

All but the planning runs in the event loop; plans are made in a thread of their own, in which users take
turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from bftrainer.daemon.lanes import fair_thread
from bftrainer.errors import BftrainerError
from bftrainer.model.events import StudyForecast
from bftrainer.ports import Clock, Emit
from bftrainer.search.plan.ahead import Ahead, ahead, in_words, late, progress
from bftrainer.search.plan.of_study import Learnt
from bftrainer.search.trial import Study
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry

log = logging.getLogger(__name__)

EVERY_S = 10.0
"""Seconds between two plans of a study; at once where a stage has ended."""
AGAIN_S = 600.0
"""Seconds until a study that could not be planned is planned again: to try may take `lanes.WORK_S`."""
SHARE = 0.02
"""Share of the time that a study's plans take at most, except for those after a stage."""
ANOTHER = 0.25
"""A forecast is another one, and told, where the end has moved by this share of the time that is left."""
STAGE = "a stage has ended"
NODES = 512
"""Nodes of a plan, at most, where the machine's size is not known."""
NOTHING = Learnt()


@dataclass(frozen=True, slots=True)
class Means:
    """The nodes and knowledge that a study goes on with.

    Attributes:
        nodes: Those that it holds, and those that nobody uses.
        machine: The number that the machine has; 0: not known.
        unit: The unit of counts.
        learnt: The daemon's measurements of its trials.
        samples: By trial: how far its trainer has told that it is.
    """

    nodes: int
    machine: int
    unit: str = "node"
    learnt: Learnt = NOTHING
    samples: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StudyOutlook:
    """The forecast of a study, as of the moment `at`.

    Attributes:
        because: The reason why it was planned again.
        nodes: The number that it held, or could have had as nobody used them.
        until: The time left to its deadline then (s); None: it has none.
        took_s: To plan it.
    """

    at: float
    because: str
    found: Ahead
    nodes: int
    until: float | None
    unit: str = "node"
    took_s: float = 0.0

    @property
    def late(self) -> bool:
        """Return whether the deadline will be missed: with these nodes, or with any where it has none."""
        return late(self.found, self.until)

    @property
    def ends_at(self) -> float | None:
        """Return when the study will be done with these nodes; None: it has none."""
        waits = self.found.waits or self.found.seconds is None
        return None if waits else self.at + (self.found.seconds or 0.0)

    def text(self) -> str:
        """The forecast in words."""
        return in_words(self.found, self.until, self.unit)

    def differs(self, before: StudyOutlook) -> bool:
        """Return whether it says something else than the one before. While nothing is done the end moves on,
        and the words stay."""
        if self.text() == before.text():
            return False
        if self.late != before.late or (self.ends_at is None) != (before.ends_at is None):
            return True
        if self.ends_at is None or before.ends_at is None:
            return False
        return abs(self.ends_at - before.ends_at) > ANOTHER * max(EVERY_S, self.ends_at - self.at)


@dataclass(frozen=True, slots=True)
class Looked:
    """The thread's results for a study: its newest trainer, the stages ended when it was planned last, and
    its new forecast if there was a reason for one."""

    beside: int | None
    stages: int | None
    forecast: StudyOutlook | None = None


class StudyForecasts:
    """The latest forecast of each study of whose trials it is known how fast they are."""

    def __init__(self, settings: LiveSettings, clock: Clock, telemetry: Telemetry, emit: Emit) -> None:
        self._clock, self._telemetry, self._emit = clock, telemetry, emit
        self._thread = fair_thread("forecasts", telemetry)
        self._latest: dict[int, StudyOutlook] = {}
        self._told: dict[int, StudyOutlook] = {}
        self._stages: dict[int, int] = {}  # study -> how many stages had ended when it was planned last
        self._busy: set[int] = set()
        self._seen: dict[int, Study] = {}  # as they were looked at last
        self._failed: dict[int, float] = {}  # study -> when it could not be planned
        self._beside: dict[int, int] = {}  # study -> its newest trainer
        self._unsaid: dict[int, StudyOutlook] = {}  # study -> what is told as soon as it has a trainer
        self._before: dict[int, int] = {}  # study -> the nodes that it had when it last had some

    def look(self, study: Study, means: Means) -> None:
        """Have a study planned again if there is a reason: a study may have thousands of trials, so that the
        thread looks at them."""
        if (
            study.id in self._busy
            or study.status.final
            or not (study.spec.trainer.curve or means.learnt.curve)
            or self._clock.now() - self._failed.get(study.id, -AGAIN_S) < AGAIN_S
        ):
            return
        known = self._latest.get(study.id)
        if self._seen.get(study.id) is study and known is not None and not self._is_due(known):
            return
        before = self._before.get(study.id, 0)
        if means.nodes:
            self._before[study.id] = means.nodes
        self._seen[study.id] = study
        self._busy.add(study.id)
        stages = self._stages.get(study.id)
        task = self._thread.submit(study.user, partial(self._look_at, study, means, before, known, stages))
        asyncio.wrap_future(task).add_done_callback(lambda done: self._looked(study, done))

    def view(self, study: Study) -> dict[str, object] | None:
        """The latest forecast as the API tells of it; None: there is none."""
        known = self._latest.get(study.id)
        if known is None:
            return None
        return {
            "at": known.at,
            "because": known.because,
            "text": known.text(),
            "nodes": known.nodes,
            "ends_at": known.ends_at,
            "late": None if known.until is None else known.late,
            "nodes_needed": known.found.nodes,
        }

    def forget(self, unfinished: Collection[int]) -> None:
        """Forget all but these studies."""
        for id_ in [id_ for id_ in {**self._latest, **self._failed, **self._seen} if id_ not in unfinished]:
            for known in (
                *(self._latest, self._told, self._stages, self._beside, self._unsaid, self._before),
                *(self._failed, self._seen),
            ):
                known.pop(id_, None)

    def close(self) -> None:
        """Let go of the thread."""
        self._thread.close()

    def _is_due(self, known: StudyOutlook) -> bool:
        return self._clock.now() - known.at >= max(EVERY_S, known.took_s / SHARE)

    def _look_at(
        self, study: Study, means: Means, before: int, known: StudyOutlook | None, stages: int | None
    ) -> Looked:
        """In the thread: whether there is a reason for another forecast than `known`, and that forecast."""
        own = max((t.trainer for t in study.trials.values() if t.trainer is not None), default=None)
        ended = ended_stages(study)
        if known is None:
            because = "it began"
        elif ended != stages:
            because = STAGE
        elif self._is_due(known):
            because = "nodes came or went" if means.nodes != known.nodes else "time has passed"
        else:
            return Looked(own, stages)
        return Looked(own, ended, self._plan(study, means, before, because))

    def _plan(self, study: Study, means: Means, before: int, because: str) -> StudyOutlook | None:
        now, deadline = self._clock.now(), study.spec.deadline_s
        until = None if deadline is None else study.submitted_at + deadline - now
        most = max(means.machine or NODES, means.nodes)
        trials = progress(study, means.samples)
        found = ahead(study.spec, trials, means.nodes, until, most=most, before=before, learnt=means.learnt)
        if found is None:
            return None
        took_s = max(0.0, self._clock.now() - now)
        return StudyOutlook(now, because, found, means.nodes, until, means.unit, took_s)

    def _looked(self, study: Study, done: asyncio.Future[Looked]) -> None:
        self._busy.discard(study.id)
        if done.cancelled():
            return
        if error := done.exception():  # its user's matter: the study goes on without a forecast
            if not isinstance(error, BftrainerError):
                log.error("no forecast of the study %d", study.id, exc_info=error)
            self._telemetry.trouble("forecast", error, study=study.id)
            self._failed[study.id] = self._clock.now()
            return
        found = done.result()
        if found.stages is not None:
            self._stages[study.id] = found.stages
        if found.beside is not None:
            self._beside[study.id] = found.beside
            if study.id in self._unsaid:
                self._tell(study, self._unsaid.pop(study.id))
        if (forecast := found.forecast) is None:
            return
        self._latest[study.id] = forecast
        told = self._told.get(study.id)
        if told is None or forecast.because == STAGE or forecast.differs(told):
            self._told[study.id] = forecast
            self._tell(study, forecast)

    def _tell(self, study: Study, forecast: StudyOutlook) -> None:
        trainer = self._beside.get(study.id)
        if trainer is None:
            self._unsaid[study.id] = forecast
            return
        text = f"{study.spec.name}: {forecast.because}: {forecast.text()}"
        self._emit(StudyForecast(time=forecast.at, trainer=trainer, study=study.spec.name, reason=text))


def ended_stages(study: Study) -> int:
    """Count the stages of all brackets without a remaining trial."""
    found = 0
    for bracket in study.brackets:
        left = [0] * (len(bracket.budgets) + 2)  # index: stages left; value: how many trials
        for number in range(bracket.first, bracket.first + bracket.trials):
            if trial := study.trials.get(number):
                left[min(len(trial.results) + trial.status.final, len(left) - 1)] += 1
        gone = sum(left)
        for rung in range(len(bracket.budgets)):
            gone -= left[rung]
            found += gone >= bracket.size(rung)
    return found
