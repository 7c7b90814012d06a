"""Forecasts of studies that run: each is planned again after every stage, when nodes come or go, and now and
then.

All but the planning runs in the event loop; plans are made in a thread of their own, one after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bftrainer.model.events import StudyForecast
from bftrainer.ports import Clock, Emit
from bftrainer.search.plan.ahead import Ahead, ahead, in_words, late, progress
from bftrainer.search.plan.of_study import Learnt
from bftrainer.search.trial import Study
from bftrainer.telemetry.telemetry import Telemetry

log = logging.getLogger(__name__)

EVERY_S = 10.0
"""A study is planned again so often; at once where a stage has ended."""
ANOTHER = 0.25
"""A forecast is another one, and told, where the end has moved by this share of the time that is left."""
STAGE = "a stage has ended"
NODES = 512
"""Plans have so many nodes at most where it is not known how many the machine has."""
NOTHING = Learnt()


@dataclass(frozen=True, slots=True)
class Means:
    """What a study goes on with.

    Attributes:
        nodes: Those that it holds, and those that nobody uses.
        machine: So many the machine has; 0: not known.
        unit: What is counted.
        learnt: What the daemon has learnt of its trials.
    """

    nodes: int
    machine: int
    unit: str = "node"
    learnt: Learnt = NOTHING


@dataclass(frozen=True, slots=True)
class Forecast:
    """How a study goes on, as of the moment `at`.

    Attributes:
        because: Why it was planned again.
        nodes: So many it held, or could have had as nobody used them.
        until: The time left to its deadline then (s); None: it has none.
    """

    at: float
    because: str
    found: Ahead
    nodes: int
    until: float | None
    unit: str = "node"

    @property
    def late(self) -> bool:
        """Whether the deadline will be missed: with these nodes, or with any where it has none."""
        return late(self.found, self.until)

    @property
    def ends_at(self) -> float | None:
        """When the study will be done with these nodes; None: it has none."""
        waits = self.found.waits or self.found.seconds is None
        return None if waits else self.at + (self.found.seconds or 0.0)

    def text(self) -> str:
        """The forecast in words."""
        return in_words(self.found, self.until, self.unit)

    def differs(self, before: Forecast) -> bool:
        """Whether it says something else than the one before. While nothing is done the end moves on, and
        the words stay."""
        if self.text() == before.text():
            return False
        if self.late != before.late or (self.ends_at is None) != (before.ends_at is None):
            return True
        if self.ends_at is None or before.ends_at is None:
            return False
        return abs(self.ends_at - before.ends_at) > ANOTHER * max(EVERY_S, self.ends_at - self.at)


class StudyForecasts:
    """The latest forecast of each study of whose trials it is known how fast they are."""

    def __init__(self, clock: Clock, telemetry: Telemetry, emit: Emit) -> None:
        self._clock, self._telemetry, self._emit = clock, telemetry, emit
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="forecasts")
        self._latest: dict[int, Forecast] = {}
        self._told: dict[int, Forecast] = {}
        self._stages: dict[int, int] = {}  # study -> how many stages had ended when it was planned last
        self._busy: set[int] = set()
        self._beside: dict[int, int] = {}  # study -> its newest trainer
        self._unsaid: dict[int, Forecast] = {}  # study -> what is told as soon as it has a trainer
        self._before: dict[int, int] = {}  # study -> the nodes that it had when it last had some

    def look(self, study: Study, means: Means) -> None:
        """Have a study planned again if there is a reason."""
        if (
            study.id in self._busy
            or study.status.final
            or not (study.spec.trainer.curve or means.learnt.curve)
        ):
            return
        own = max((t.trainer for t in study.trials.values() if t.trainer is not None), default=None)
        if own is not None:
            self._beside[study.id] = own
            if study.id in self._unsaid:
                self._tell(study, self._unsaid.pop(study.id))
        before = self._before.get(study.id, 0)
        if means.nodes:
            self._before[study.id] = means.nodes
        stages = ended_stages(study)
        if not (because := self._reason(study, means.nodes, stages)):
            return
        self._busy.add(study.id)
        self._stages[study.id] = stages
        task = self._thread.submit(self._plan, study, means, before, because)
        asyncio.wrap_future(task).add_done_callback(lambda done: self._planned(study, done))

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
            "nodes_by_stage": known.found.nodes,
        }

    def forget(self, unfinished: Collection[int]) -> None:
        """Forget all but these studies."""
        for id_ in [id_ for id_ in self._latest if id_ not in unfinished]:
            del self._latest[id_]
            for known in (self._told, self._stages, self._beside, self._unsaid, self._before):
                known.pop(id_, None)

    def close(self) -> None:
        """Let go of the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _reason(self, study: Study, nodes: int, stages: int) -> str:
        known = self._latest.get(study.id)
        if known is None:
            return "it began"
        if stages != self._stages.get(study.id):
            return STAGE
        if self._clock.now() - known.at < EVERY_S:
            return ""
        return "nodes came or went" if nodes != known.nodes else "time has passed"

    def _plan(self, study: Study, means: Means, before: int, because: str) -> Forecast | None:
        """In the thread."""
        now, deadline = self._clock.now(), study.spec.deadline_s
        until = None if deadline is None else study.submitted_at + deadline - now
        most = max(means.machine or NODES, means.nodes)
        found = ahead(
            study.spec, progress(study), means.nodes, until, most=most, before=before, learnt=means.learnt
        )
        return None if found is None else Forecast(now, because, found, means.nodes, until, means.unit)

    def _planned(self, study: Study, done: asyncio.Future[Forecast | None]) -> None:
        self._busy.discard(study.id)
        if done.cancelled():
            return
        if error := done.exception():  # a bug: the study goes on without a forecast
            log.error("no forecast of the study %d", study.id, exc_info=error)
            self._telemetry.happened("studies", "a study could not be planned again; see the log")
            return
        if (forecast := done.result()) is None:
            return
        self._latest[study.id] = forecast
        told = self._told.get(study.id)
        if told is None or forecast.because == STAGE or forecast.differs(told):
            self._told[study.id] = forecast
            self._tell(study, forecast)

    def _tell(self, study: Study, forecast: Forecast) -> None:
        trainer = self._beside.get(study.id)
        if trainer is None:
            self._unsaid[study.id] = forecast
            return
        text = f"{study.spec.name}: {forecast.because}: {forecast.text()}"
        self._emit(StudyForecast(time=forecast.at, trainer=trainer, study=study.spec.name, reason=text))


def ended_stages(study: Study) -> int:
    """How many stages of all brackets no trial is left in."""
    found = 0
    for bracket in study.brackets:
        own = [t for t in study.trials.values() if bracket.first <= t.number < bracket.first + bracket.trials]
        for rung in range(len(bracket.budgets)):
            gone = sum(len(t.results) > rung or (t.status.final and len(t.results) == rung) for t in own)
            found += gone >= bracket.size(rung)
    return found
