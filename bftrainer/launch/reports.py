"""Turns workers' reports into entries of the journal and events of the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice

from bftrainer.launch.job import LaunchedTrainer, WorkerLimits, WorkerView
from bftrainer.model.events import Measured, TrainerEnded, WorkerLost, WorkersReady
from bftrainer.model.reports import MEASURE_AGAIN_S, MEASURE_S, Pause, PauseKind, Progress
from bftrainer.model.trainer import Cost, DeviceUse, TrainerStatus, batch_of
from bftrainer.ports import Emit, Journal
from bftrainer.wire.messages import from_agent as said
from bftrainer.wire.phases import Phase

log = logging.getLogger(__name__)

NO_BOUNDS = WorkerLimits()
STANDSTILL_S = 60.0
"""Seconds after which a trainer that comes no further is said to make no progress."""
MAX_PAUSES = 10
"""Pauses that one node may report of one membership."""


class Reports:
    """Keeps progress and pauses in the journal, and tells the engine of ends, losses and measurements."""

    def __init__(
        self, emit: Emit, journal: Journal, clock: Callable[[], float], bounds: WorkerLimits = NO_BOUNDS
    ) -> None:
        self._emit, self._journal, self._clock, self._bounds = emit, journal, clock, bounds

    # a worker's life

    def ready(self, launched: LaunchedTrainer, node: str, view: WorkerView) -> None:
        """A worker is up and can join."""
        now, nodes = self._clock(), frozenset({node})
        launched.init_s = max(launched.init_s or 0.0, now - view.started_at)
        self._emit(WorkersReady(time=now, trainer=launched.id, generation=view.generation, nodes=nodes))

    def lost(
        self, launched: LaunchedTrainer, node: str, view: WorkerView, reason: str, *, blame: bool
    ) -> None:
        """A worker is gone without having been told to. `blame`: its program failed by itself."""
        log.info("trainer %d lost its worker on %s: %s", launched.id, node, reason)
        now = self._clock()
        launched.died(now, node, reason if blame else "")
        self._emit(
            WorkerLost(
                time=now,
                trainer=launched.id,
                node=node,
                generation=view.generation,
                reason=f"{reason}; see bftrainer logs {launched.id} --node {node}",
                blame=blame,
                samples=float(launched.samples),
                late=bool(view.overdue),
            )
        )

    def check_finished(self, launched: LaunchedTrainer) -> None:
        """A worker is gone: tell of the trainer's end if it has come, see `LaunchedTrainer.completed`."""
        if launched.completed and launched.failed_after:
            self.failed(launched, launched.failed_after)
        elif launched.completed:
            self._ended(launched, TrainerStatus.COMPLETED, launched.ending)

    def failed(self, launched: LaunchedTrainer, reason: str) -> None:
        """The script has failed, and to go on, or to begin again, is in vain."""
        self._ended(launched, TrainerStatus.FAILED, reason)

    def _ended(self, launched: LaunchedTrainer, status: TrainerStatus, reason: str) -> None:
        end = TrainerEnded(
            time=self._clock(),
            trainer=launched.id,
            generation=launched.published,
            status=status,
            reason=reason,
        )
        self._emit(end)

    # changes of membership

    def joined(self, launched: LaunchedTrainer, node: str, view: WorkerView, joined: said.Joined) -> None:
        """A member trains in a new membership, in the process in which it trained before, if it did."""
        view.phase, view.joined = Phase.MEMBER, joined.generation
        kind = launched.kind(joined.generation)
        launched.confirmed = max(launched.confirmed, joined.generation)
        if not joined.survivor:
            if joined.size > 1 and kind != PauseKind.RESTART:
                return
            kind = PauseKind.RESTART
        self.paused(
            launched,
            node,
            kind,
            generation=joined.generation,
            size=joined.size,
            step=joined.step,
            pause_s=joined.pause_s,
        )

    def caught_up(self, launched: LaunchedTrainer, node: str, state: said.CaughtUp) -> None:
        """A newcomer has the state: from now on more nodes share the samples."""
        size, seconds = state.bytes / 1e6, state.seconds
        log.info("trainer %d: %s has got its state of %.0f MB in %.1f s", launched.id, node, size, seconds)
        launched.window_from = None

    def paused(
        self,
        launched: LaunchedTrainer,
        node: str,
        kind: PauseKind,
        *,
        generation: int,
        size: int,
        step: int,
        pause_s: float,
    ) -> None:
        """Training goes on at `step` after a change of membership for which a node stood still.

        A node tells one pause of a membership, or a few where a runtime met twice in it; further ones are
        made up, and dropped."""
        if generation > launched.published:
            return
        launched.pauses[generation, node] += 1
        if launched.pauses[generation, node] > MAX_PAUSES:
            return
        now = self._clock()
        self._journal.pause(
            Pause(
                time=now,
                trainer=launched.id,
                generation=generation,
                node=node,
                kind=kind,
                size=size,
                step=step,
                pause_s=pause_s,
                lost_steps=max(0, launched.committed - step),
            )
        )
        launched.confirmed = max(launched.confirmed, generation)
        launched.committed = min(launched.committed, step)
        launched.anew = step == 0 and launched.furthest > 0
        launched.window_from = None
        if kind == PauseKind.JOIN:
            up = Cost(stall_s=pause_s, init_s=launched.init_s or 0.0)
            self._emit(Measured(time=now, trainer=launched.id, generation=generation, up=up))
        elif kind in (PauseKind.LEAVE, PauseKind.LOSS):
            down = Cost(stall_s=pause_s)
            self._emit(Measured(time=now, trainer=launched.id, generation=generation, down=down))
        launched.init_s = None

    # progress

    def progressed(self, launched: LaunchedTrainer, progress: said.Progress) -> None:
        """Rank 0 has reported how far training is: keep it, and measure the speed."""
        launched.committed = max(launched.committed, progress.step)
        before, launched.samples = launched.samples, progress.samples
        if progress.samples > launched.furthest or launched.furthest_at is None:
            launched.furthest, launched.furthest_at = progress.samples, self._clock()
        self._keep(launched, progress, progress.size, progress.rate)
        launched.adapts(batch_of(launched.reported.metrics if launched.reported else {}))
        use = None if progress.device is None else DeviceUse(**progress.device.model_dump())
        if launched.is_beside(None if use is None else use.beside) and launched.samples != before:
            self._measure(launched, progress.size, use, is_back=launched.samples < before)

    def standstill(self, launched: LaunchedTrainer) -> str:
        """Since when a trainer that runs has not come further than it once was, if that is long; and why, if
        it has found nothing saved."""
        if launched.furthest_at is None or not launched.members or launched.finished:
            return ""
        for_s = self._clock() - launched.furthest_at
        if for_s < STANDSTILL_S:
            return ""
        anew = "; its last start found nothing saved, and began at step 0" if launched.anew else ""
        return f"no progress for {for_s:.0f} s{anew}"

    def _measure(self, launched: LaunchedTrainer, size: int, use: DeviceUse | None, *, is_back: bool) -> None:
        """The speed from one rise of the count to another, over `MEASURE_S` or, where it is known, longer."""
        now = self._clock()
        if launched.window_from is None or is_back:
            launched.window_from = (now, launched.samples)
            return
        since, samples = launched.window_from
        if now - since < (MEASURE_AGAIN_S if size in launched.measured else MEASURE_S):
            return
        launched.window_from = (now, launched.samples)
        launched.measured.add(size)
        speed = (launched.samples - samples) / (now - since)
        if speed > 0 and size == len(launched.members):  # else of an earlier membership, or made up
            measured = Measured(time=now, trainer=launched.id, generation=launched.published, use=use)
            self._emit(replace(measured, point=(size, speed), batch=launched.batch, left=launched.left))

    def metrics(self, launched: LaunchedTrainer, metrics: said.FreshMetrics) -> None:
        """Rank 0 has reported figures between two reports of progress: keep them with their step."""
        rate = launched.reported.rate if launched.reported else None
        self._keep(launched, metrics, metrics.size, rate)

    def warned(self, launched: LaunchedTrainer, what: said.Warned) -> None:
        """A script that tells of no progress is warned of something: keep that beside what is known of it."""
        nothing = Progress(
            time=self._clock(),
            trainer=launched.id,
            generation=launched.published,
            size=len(launched.members),
            step=launched.committed,
            samples=launched.samples,
            epoch=0,
            rate=None,
            metrics={},
        )
        launched.reported = replace(launched.reported or nothing, warned=tuple(what.warned))
        self._journal.progressed(launched.reported)

    def finished(self, launched: LaunchedTrainer, standing: said.Finished) -> None:
        """The work is done; training stands here."""
        launched.committed, launched.samples = standing.step, standing.samples
        self._keep(launched, standing, len(launched.members), 0.0)

    def left(self, launched: LaunchedTrainer, standing: said.Left) -> None:
        """A worker that has left wrote its state down here; the last to say so is furthest."""
        if standing.step >= launched.committed:
            launched.committed, launched.samples = standing.step, standing.samples
            self._keep(launched, standing, 0, 0.0)

    def kept(self, launched: LaunchedTrainer, kept: int | None, *, warns: bool) -> str:
        """No member has the state any more, and the last checkpoint is of this step: keep that. Returns what
        is lost with that, empty if nothing is; with `warns`, its user is warned of it, too."""
        lost, last = launched.keep(kept), launched.reported
        if last is None or (last.saved == launched.saved and not (lost and warns)):
            return lost
        if lost and warns:
            log.warning("trainer %d: %s", launched.id, lost)
            last = replace(last, time=self._clock(), size=0, rate=0.0, warned=(*last.warned, lost))
        launched.reported = replace(last, saved=launched.saved)
        self._journal.progressed(launched.reported)
        return lost

    def _figures(self, launched: LaunchedTrainer, new: Mapping[str, float]) -> Mapping[str, float]:
        """The trainer's figures with these; of further names than may be, those that came first."""
        before = launched.reported.metrics if launched.reported else {}
        both = {**before, **new}
        if len(both) <= self._bounds.metrics:
            return both
        if not launched.told_metrics:
            launched.told_metrics = True
            self._bounds.hit("max_metrics", launched.spec.user, self._bounds.metrics)
        return dict(islice(both.items(), self._bounds.metrics))

    def _warnings(self, launched: LaunchedTrainer, at: said.Standing) -> tuple[str, ...]:
        """Warnings to the script, with the reason why it cannot save if it cannot."""
        problem = at.problem if isinstance(at, said.Progress) else launched.problem
        launched.problem = problem
        return (*at.warned, problem) if problem else tuple(at.warned)

    def _keep(self, launched: LaunchedTrainer, at: said.Standing, size: int, rate: float | None) -> None:
        launched.saved = at.saved if at.saved is not None else launched.saved
        launched.reported = Progress(
            time=self._clock(),
            trainer=launched.id,
            generation=at.generation,
            size=size,
            step=at.step,
            samples=at.samples,
            epoch=at.epoch,
            rate=rate,
            metrics=self._figures(launched, at.metrics),
            of=at.of,
            warned=self._warnings(launched, at),
            saved=launched.saved,
        )
        self._journal.progressed(launched.reported)
