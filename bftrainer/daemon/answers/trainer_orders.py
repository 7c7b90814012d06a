"""Carries out what callers order of single trainers: to end, or to have another priority."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer.api.callers import Caller
from bftrainer.daemon.answers.submissions import Submissions
from bftrainer.daemon.answers.trainers import Trainers
from bftrainer.daemon.answers.views.trainers import TrainerView
from bftrainer.daemon.lanes import Lanes
from bftrainer.daemon.orders import SiteOrders
from bftrainer.errors import BftrainerError
from bftrainer.messages.commands.daemon import OVER
from bftrainer.model.reports import TrainerSummary
from bftrainer.telemetry.telemetry import Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerOrders:
    """Passes orders on single trainers on, as far as their callers may give them."""

    known: Trainers
    lanes: Lanes
    orders: SiteOrders
    submissions: Submissions
    telemetry: Telemetry

    async def cancel(self, caller: Caller, trainer: str) -> TrainerView:
        """End a trainer; no error if it has ended already.

        Raises:
            UnknownTrainerError: there is none that the caller may see.
            BftrainerError: several others' have this name.
        """
        found = await self._found(caller, trainer)
        if not found.status.final:
            self.telemetry.ordered("cancel", caller.user, trainer=found.id, name=found.name)
            self.orders.cancel(found.id)
        return self._row(found)

    async def prioritise(self, caller: Caller, trainer: str, to: float) -> TrainerView:
        """Give a trainer another priority. Raises as `cancel`, and if the caller may not, or it has ended."""
        self.submissions.check_priority(caller, to)
        found = await self._found(caller, trainer)
        if found.status.final:
            option, gain = f"--resume {found.name}", "it goes on from this one's checkpoints"
            raise BftrainerError(OVER.say(what=found.name, how=found.status.value, option=option, gain=gain))
        self.telemetry.ordered("priority", caller.user, trainer=found.id, name=found.name, to=to)
        self.orders.prioritise(found.id, to)
        return {**self._row(found), "priority": to}

    def _row(self, found: TrainerSummary) -> TrainerView:
        """Return a trainer's row without when it will end or why it waits: for these, all others that wait
        are looked at, which takes long in the event loop, and an order changes both."""
        return self.known.view_now(found, self.known.moment([found]), with_why=False)

    async def _found(self, caller: Caller, trainer: str) -> TrainerSummary:
        """The store is asked only where memory alone does not tell which trainer is meant."""
        found = self.known.unfinished(caller, trainer)
        if found is not None:
            return found
        return (await self.lanes.store.run(caller.user, lambda: self.known.find(caller, trainer))).summary
