"""Reports what happens in the daemon: by a line in the log and counts for Prometheus.

Each kind of thing has one method, called where it happens; nothing here decides or acts. All methods may be
called from any thread, and as often as anything happens: the log's rate is limited.

These report troubles, and readiness, `status`, log and `/metrics` follow:

    telemetry.condition("store", "disk full")         until the part works again: condition("store", "")
    telemetry.happened("agents", "an agent was ...")  over by itself if it does not happen again for a minute
    telemetry.bounded("max_connections", "uid 1003")  a bound was hit: counted, logged, shown to admins
    telemetry.trouble("cancel", error)                something failed once: counted and logged
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields

from bftrainer import __version__
from bftrainer.model.actions import Action, Ended
from bftrainer.model.events import Event, GpusChanged, Measured, PollFailed, TrainerSubmitted
from bftrainer.model.machine import Pilot
from bftrainer.model.main_jobs import Affected, MainStart
from bftrainer.model.problem import Plan
from bftrainer.model.reports import Pause
from bftrainer.telemetry.bounds import BoundHits
from bftrainer.telemetry.log import names, note
from bftrainer.telemetry.metrics import Metrics
from bftrainer.telemetry.troubles import TOLD_BY, Part, Trouble, Troubles

log = logging.getLogger("bftrainer")

FAILURES = frozenset({"refused", "unsure", "lost", "cancel_failed"})
"""The events of pilots that are failures."""


class Telemetry:
    """The daemon's log lines, counters, the register of what is wrong, and the bounds that were hit."""

    def __init__(self) -> None:
        self.metrics = Metrics(__version__)
        self.troubles = Troubles(ended=_recovered)
        self.bounds = BoundHits()
        self._rescaled: dict[int, int] = {}  # trainer -> the last generation that was counted

    def took(self, event: Event, plan: Plan | None, actions: Sequence[Action], ended: Ended | None) -> None:
        """The engine took an event and decided."""
        kind, known = _snake(event), _told(event)
        self.metrics.events.labels(kind).inc()
        if plan is not None:
            self.metrics.decisions.labels(plan.status.value).inc()
            self.metrics.solve.observe(plan.solve_s)
            known |= {
                "status": plan.status.value,
                "allocator": plan.allocator,
                "objective": plan.objective,
                "solve_ms": plan.solve_s * 1e3,
            }
            if plan.fallback:
                self.metrics.fallbacks.inc()
                known["fallback"] = plan.fallback
            instead = f"{plan.allocator} makes the plans: {plan.fallback}" if plan.fallback else ""
            self.condition("allocator", instead)
        for action in actions:
            self.metrics.actions.labels(_snake(action)).inc()
        note(log, kind, _level(event, plan), **known, actions=len(actions) or None)
        if ended is not None:
            self.metrics.ended.labels(ended.status.value).inc()
            self._rescaled.pop(ended.trainer, None)
            note(log, "trainer_is_over", trainer=ended.trainer, status=ended.status, reason=ended.reason)

    def paused(self, pause: Pause) -> None:
        """A member's pause. The first of its generation stands for the rescale."""
        first = self._rescaled.get(pause.trainer, -1) < pause.generation
        if first:
            self._rescaled[pause.trainer] = pause.generation
            self.metrics.rescales.labels(pause.kind).inc()
        self.metrics.pauses.labels(pause.kind).observe(pause.pause_s)
        self.metrics.lost_steps.inc(pause.lost_steps)
        note(
            log,
            "rescaled" if first else "paused",
            logging.INFO if first else logging.DEBUG,
            trainer=pause.trainer,
            kind=pause.kind,
            generation=pause.generation,
            size=pause.size,
            node=pause.node,
            pause_s=pause.pause_s,
            lost_steps=pause.lost_steps or None,
        )

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Around a poll of the scheduler: counts it, and how long it took."""
        began, result = time.perf_counter(), "failed"
        try:
            yield
            result = "ok"
        finally:
            self.metrics.poll.observe(time.perf_counter() - began)
            self.metrics.polls.labels(result).inc()

    def pilot(self, event: str, pilots: Iterable[Pilot], reason: str = "") -> None:
        """Something was done to pilots, or happened to them, such as submitted, refused, cancelled or
        lost."""
        concerned = tuple(pilots)
        if concerned:
            self.metrics.pilots.labels(event).inc(len(concerned))
            if event in FAILURES:
                self.metrics.errors.labels("pilot").inc(len(concerned))
            note(
                log,
                f"pilot_{event}",
                logging.WARNING if event in FAILURES else logging.INFO,
                count=len(concerned),
                nodes=names(pilot.node for pilot in concerned),
                users=names({pilot.user for pilot in concerned} - {""}),
                reason=reason,
            )

    def vacated(self, jobs: Iterable[str], nodes: Iterable[str], seconds: float) -> None:
        """Nodes were given up, for main jobs if `jobs` names some, `seconds` after the decision."""
        jobs, nodes = tuple(jobs), tuple(nodes)
        if jobs:
            self.metrics.claims.inc(len(jobs))
            self.metrics.vacate.observe(seconds)
        self.metrics.pilots.labels("vacated").inc(len(nodes))
        note(log, "vacated", jobs=names(jobs), count=len(nodes), nodes=names(nodes), seconds=seconds)

    def main_job(self, start: MainStart) -> None:
        """A main job has started, or nodes were given back for it in vain."""
        if start.affected is Affected.IN_VAIN:
            self.metrics.in_vain.inc()
        else:
            self.metrics.main_wait.labels("no" if start.affected is Affected.NO else "yes").observe(
                start.wait_s
            )
        if start.affected is not Affected.NO:
            note(
                log,
                "main_job_waited",
                job=start.job,
                nodes=start.nodes,
                affected=start.affected,
                wait_s=start.wait_s,
                given=start.given or None,
                vacate_s=start.vacate_s,
            )

    def trouble(self, kind: str, reason: object, **more: object) -> None:
        """Something failed, and the daemon goes on."""
        self.metrics.errors.labels(kind).inc()
        note(log, f"{kind}_failed", logging.WARNING, **more, reason=reason)

    def condition(self, part: Part, reason: str, detail: str = "") -> None:
        """Note whether a part works (an empty `reason`) or why not; the log gets a line when that changes."""
        trouble = Trouble(reason, detail) if reason else None
        if self.troubles.set(part, trouble):
            if trouble is None:
                _recovered(part)
            else:
                _degraded(part, trouble)

    def happened(self, part: Part, reason: str, detail: str = "") -> None:
        """Note what is wrong with a part for a minute after it has happened. It ends by itself; until then
        status and readiness tell how often it has happened. `detail` may name users: it is for admins."""
        trouble = Trouble(reason, detail)
        if self.troubles.happened(part, trouble):
            _degraded(part, trouble)

    def bounded(self, bound: str, by: str = "", *, times: int = 1, **more: object) -> None:
        """A bound was hit, and what went beyond was refused or left out.

        `bound` is the setting's name, or a word of the program's, never a text of users. `by` is the user,
        address or node that hit it. `times` stands for many hits reported together; `more` is for the log.
        Prometheus gets the count, admins find it in `status` for an hour, and the log has each hit, at its
        limited rate. If the daemon serves others less because of it, call `happened` as well.
        """
        self.metrics.bound_hits.labels(bound).inc(times)
        self.bounds.hit(bound, by, times)
        note(
            log, "bound_hit", logging.WARNING, bound=bound, by=by, times=times if times > 1 else None, **more
        )

    def ordered(self, order: str, user: str, **more: object) -> None:
        """A user or admin has ordered something."""
        note(log, "ordered", order=order, user=user, **more)


def _degraded(part: Part, trouble: Trouble) -> None:
    note(log, "degraded", logging.ERROR, part=part, reason=TOLD_BY[part].ends(trouble.text))


def _recovered(part: Part) -> None:
    note(log, "recovered", part=part)


def _snake(thing: object) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(thing).__name__).lower()


def _told(event: Event) -> dict[str, object]:
    """An event's fields for the log: sets of nodes by their size and names, specs by name and user."""
    if isinstance(event, TrainerSubmitted):
        return {"trainer": event.trainer, "name": event.spec.name, "user": event.spec.user}
    found: dict[str, object] = {}
    for field in fields(event):
        value = getattr(event, field.name)
        if isinstance(value, frozenset):
            found |= {field.name: len(value) or None, f"{field.name}_names": names(value)}
        elif isinstance(value, str | int | float) and field.name != "time":
            found[field.name] = value
    return found


def _level(event: Event, plan: Plan | None) -> int:
    if isinstance(event, GpusChanged) and event.reason:
        return logging.WARNING
    if isinstance(event, PollFailed) or (plan is not None and plan.fallback):
        return logging.WARNING
    return logging.DEBUG if isinstance(event, Measured) and plan is None else logging.INFO
