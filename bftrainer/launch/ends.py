"""Handles the end of a worker, and decides when that ends its trainer.

Rank 0 says that the work is done ("finished"), and its script goes on with what it has after its loop. The
trainer is completed when rank 0 has then ended with exit code 0. Until then nothing is started for it, and no
other worker that ends is missed. If rank 0 ends otherwise, or its node is taken, the trainer runs again from
its last checkpoint: its loop has nothing left to do then, and what comes after that is repeated. Where the
script fails after its loop on another node, the trainer fails once rank 0 has ended well.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from bftrainer.launch import messages
from bftrainer.launch.deadlines import Deadlines
from bftrainer.launch.job import FROM_OUTSIDE, PEER_GONE, REPEATED, WORK_DONE, LaunchedTrainer, WorkerView
from bftrainer.launch.known import KnownTrainers
from bftrainer.launch.reports import Reports
from bftrainer.messages.ends import AFTER_LOOP
from bftrainer.ports import Link
from bftrainer.wire.messages import from_agent as said
from bftrainer.wire.phases import ENDED, Phase

log = logging.getLogger(__name__)

T = TypeVar("T", bound=LaunchedTrainer)


class Ends(ABC, Generic[T]):
    """The part of `AgentLauncher` that deals with ends of workers, as they are told to or not."""

    _link: Link
    _reports: Reports
    _deadlines: Deadlines[T]
    _grace_s: float
    known: KnownTrainers[T]

    @abstractmethod
    def _send_start(self, launched: T, node: str) -> None:
        """Have a worker started, now or when its agent connects."""

    # as told

    def _dismiss(self, launched: T, node: str) -> None:
        """A member must leave; the membership tells it so."""
        view = launched.workers[node]
        if view.phase in ENDED:
            launched.drop(node)
        else:
            view.phase = Phase.LEAVING

    def _stop(self, launched: T, node: str) -> None:
        """End a worker that is no member."""
        view = launched.workers.get(node)
        if view is None:
            return
        if not view.sent or view.phase in ENDED:
            launched.drop(node)
            return
        view.phase, view.left = Phase.LEAVING, True
        self._link.send(node, messages.stop(launched.id, self._grace_s))

    # by themselves

    def _finished(self, launched: T, node: str, view: WorkerView, standing: said.Finished) -> None:
        """The work is done, as one of the members says. It runs what its script has after that."""
        if view.phase != Phase.LEAVING:
            view.phase = Phase.FINISHED
        if standing.rank == 0:
            launched.finisher, launched.position_told = node, True
            self._reports.finished(launched, standing)
        elif launched.finisher == node and not launched.position_told:  # taken over: nobody knew its rank
            launched.finisher = ""
        self._deadlines.finished(launched)

    def _exited(self, launched: T, node: str, view: WorkerView, end: said.Exited) -> None:
        """A worker's process has ended: as told, with the work done, or lost."""
        leaving, last = view.phase == Phase.LEAVING, end.last
        unheard = last if isinstance(last, said.Finished) and not launched.position_told else None
        if unheard is not None and unheard.generation >= launched.confirmed:
            self._finished(launched, node, view, unheard)  # there was no connection, or it was on its way out
        if not leaving:
            self._note_failure(launched, node, view, end)
        if end.code == 0 and self._is_end(launched, node, leaving=leaving):
            self._succeed(launched, node)
        if leaving:
            launched.drop(node)
            if isinstance(last, said.Left):
                self._reports.left(launched, last)
            self._reports.kept(launched, end.kept, warns=True)
            if launched.finisher == node and not launched.succeeded:
                self._repeat(launched)
            self._vacated(launched)
        elif launched.succeeded:
            launched.drop(node)
            self._vacated(launched)
        elif end.code == 0 and view.phase == Phase.FINISHED and not view.repeated:
            self._wait_for_rank_0(view)
        elif end.code == 0 and not (view.overdue or view.repeated) and (untold := launched.untold(node)):
            self._reports.failed(launched, untold)
        else:
            reason, blame = launched.why_lost(view, end.code, end.reason)
            reason = "; ".join(filter(None, (reason, self._reports.kept(launched, end.kept, warns=False))))
            if launched.finisher not in ("", node) and end.code and -end.code not in FROM_OUTSIDE:
                launched.ending = f"{WORK_DONE}; after that, the worker on {node} was lost: {reason}"
            self._gone(launched, node, reason, blame=blame and not end.unfit)

    def _note_failure(self, launched: T, node: str, view: WorkerView, end: said.Exited) -> None:
        """Note it if a worker's script has failed by itself after its loop, and is not rank 0's."""
        by_itself = (
            end.code
            and -end.code not in FROM_OUTSIDE
            and launched.has_left_loop(node, view, end.phase, end.reason)
        )
        of_another = launched.succeeded and any(words in end.reason for words in PEER_GONE)
        if by_itself and not of_another and launched.finisher != node and not (view.overdue or view.repeated):
            reason, _ = launched.why_lost(view, end.code, end.reason)
            launched.failure = AFTER_LOOP.say(node=node, reason=reason, trainer=launched.id)
            launched.failed_in = view.joined

    def _is_end(self, launched: T, node: str, *, leaving: bool) -> bool:
        """True if this worker, which ended with exit code 0, ends its trainer."""
        if launched.finisher:
            return launched.finisher == node
        return launched.spec.work is None and not leaving and self._leads(launched, node)

    def _leads(self, launched: T, node: str) -> bool:
        """True if the script's end on this node is the trainer's, if its spec names no amount of work."""
        return True

    def _is_rank_0(self, launched: T, node: str) -> bool:
        """True if a worker of unknown rank that says that the work is done is rank 0."""
        return node in launched.members[:1]

    def _succeed(self, launched: T, node: str) -> None:
        """Rank 0 has ended with exit code 0, and the work is done."""
        launched.succeeded = True
        launched.workers[node].phase = Phase.DONE
        if launched.position_told and launched.ending == WORK_DONE:
            launched.ending = launched.left_early() or WORK_DONE
        count = sum(view.workers for view in launched.workers.values() if view.sent)
        if count > 1 and not launched.finisher and not self._have_met(launched):
            why = "its script ended with exit code 0" if launched.ending == WORK_DONE else launched.ending
            self._reports.failed(launched, launched.apart.say(why=why, count=count))

    def _have_met(self, launched: T) -> bool:
        """True if workers that ended well are known to have trained together."""
        return True

    @staticmethod
    def _wait_for_rank_0(view: WorkerView) -> None:
        """A worker other than rank 0 has ended after the work was done: its node stays a member."""
        view.phase, view.run, view.left = Phase.DONE, 0, True

    def _gone(self, launched: T, node: str, reason: str, *, blame: bool) -> None:
        """A worker is gone and was not told to: report its loss, unless nothing is left to do for it."""
        view, after = launched.workers[node], launched.finisher
        if after not in ("", node) and not launched.succeeded and view.phase != Phase.LEAVING:
            log.info(
                "trainer %d: the worker on %s ended after the work was done: %s", launched.id, node, reason
            )
            self._wait_for_rank_0(view)
            return
        launched.lose(node)
        if view.phase == Phase.LEAVING or launched.succeeded:
            if after == node and not launched.succeeded:
                self._repeat(launched)
            self._vacated(launched)
            return
        self._reports.lost(launched, node, view, reason, blame=blame)
        if after == node:
            self._repeat(launched)

    def _repeat(self, launched: T) -> None:
        """Rank 0 did not end well after the work was done. The others restart with it, as they have left
        their loops, too."""
        log.info("trainer %d: %s", launched.id, REPEATED)
        launched.finisher, launched.position_told, launched.ending = "", False, WORK_DONE
        done = [node for node, view in launched.workers.items() if view.phase == Phase.DONE]
        for node, view in launched.workers.items():
            if view.phase == Phase.FINISHED:
                view.repeated = True
                self._link.send(node, messages.kill(launched.id, REPEATED))
            elif not view.sent:
                self._send_start(launched, node)
        for node in done:
            self._gone(launched, node, REPEATED, blame=False)

    def _vacated(self, launched: T) -> None:
        """A worker is gone, and that is no loss to report."""
        self._reports.check_finished(launched)
