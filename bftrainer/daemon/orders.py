"""Carries out orders: trainers are submitted and cancelled, the site is paused, drained and resumed."""

from __future__ import annotations

from bftrainer.daemon.mailbox import Mailbox
from bftrainer.daemon.storage.journal import StoreJournal
from bftrainer.model.events import Drain, PriorityChanged, Resume, TrainerCancelled, TrainerSubmitted
from bftrainer.model.machine import Operation
from bftrainer.model.trainer import TrainerSpec
from bftrainer.nodes.nodes import Nodes
from bftrainer.ports import Clock, Launcher

OPERATION = "operation"
"""The store's key for what the site allows us."""


class SiteOrders:
    """Carries out orders. Whether their caller may give them is decided in `service`."""

    def __init__(
        self, journal: StoreJournal, mailbox: Mailbox, launcher: Launcher, nodes: Nodes, clock: Clock
    ) -> None:
        self._journal, self._mailbox = journal, mailbox
        self._launcher, self._nodes, self._clock = launcher, nodes, clock

    async def submit(self, wanted: TrainerSpec, *, ahead: bool = False) -> int:
        """Store a trainer, tell the engine of it, and return its id. With `ahead` a user waits for that.

        Raises:
            StoreError: nothing was stored.
        """
        now = self._clock.now()
        id_ = await self._journal.submit(wanted, now, ahead=ahead)
        self._journal.begin(id_)
        self._launcher.add(id_, wanted)
        self._mailbox.emit(TrainerSubmitted(time=now, trainer=id_, spec=wanted))
        return id_

    def cancel(self, trainer: int) -> None:
        """End a trainer: its members write a checkpoint and leave."""
        self._mailbox.emit(TrainerCancelled(time=self._clock.now(), trainer=trainer))

    def prioritise(self, trainer: int, to: float) -> None:
        """Give a trainer another priority."""
        self._mailbox.emit(PriorityChanged(time=self._clock.now(), trainer=trainer, to=to))

    def administer(self, operation: Operation) -> None:
        """Pause, drain or resume, until the next such order; a restart of the daemon changes nothing."""
        state = self._nodes.state
        before, state.operation = state.operation, operation
        self._journal.remember(OPERATION, operation.value)
        if operation is Operation.DRAINING:
            self._mailbox.emit(Drain(time=self._clock.now()))
        elif before is Operation.DRAINING:
            self._mailbox.emit(Resume(time=self._clock.now()))
        self._nodes.wake()
