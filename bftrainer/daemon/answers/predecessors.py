"""Finds the trainers before a new one: those of its name, and the one whose checkpoints it goes on from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bftrainer.api.callers import Caller
from bftrainer.api.errors import LateError
from bftrainer.api.transport.admission import BusyError
from bftrainer.daemon.answers.trainers import Trainers
from bftrainer.daemon.answers.views.trainers import EarlierView
from bftrainer.daemon.lanes import Lanes
from bftrainer.errors import BftrainerError, StoreError
from bftrainer.messages.commands.daemon import CHECKPOINTS_IN_USE, OTHER_CHECKPOINTS, STILL_WRITING
from bftrainer.model.reports import StoredTrainer, TrainerSummary
from bftrainer.model.trainer import TrainerSpec
from bftrainer.ports import Launcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Predecessors:
    """Finds a caller's own earlier trainers, in the lane that reads trainers. An admin finds its own, too: it
    trains as itself, and cannot read the checkpoints of others."""

    known: Trainers
    lanes: Lanes
    launcher: Launcher

    async def resumed(
        self, caller: Caller, wanted: TrainerSpec, name: str
    ) -> tuple[TrainerSpec, EarlierView]:
        """The spec `wanted` with the folder of checkpoints of the caller's trainer `name` (or number), which
        has ended.

        Raises:
            UnknownTrainerError: the caller has no such trainer.
            BftrainerError: it has not ended, or its workers have not, or other trainers have that folder.
            BusyError, LateError: see `Lane.run`.
        """
        unfinished = self.known.index.of(caller.user)

        def find() -> StoredTrainer:
            found = self.known.find(replace(caller, admin=False), name)
            self._check_free(found, wanted, unfinished)
            return found

        found = await self.lanes.store.run(caller.user, find)
        if self.launcher.workers(found.id):
            who = f"trainer {found.id} ({found.spec.name})"
            raise BftrainerError(STILL_WRITING.say(who=who))
        own = replace(wanted, checkpoint_dir=str(self._folder(found.id, found.spec)))
        return own, self._view(found, goes_on=True)

    async def of_its_name(self, caller: Caller, wanted: TrainerSpec) -> EarlierView | None:
        """The caller's latest trainer with the name that is wanted, if there was one; None, too, where the
        store is busy: a trainer is not refused because of what else there is to say of it."""

        def find() -> EarlierView | None:
            id_ = self.known.store.latest_named(wanted.name).get(caller.user)
            found = None if id_ is None else self.known.store.trainer(id_)
            if found is None:
                return None
            goes_on = Path(wanted.checkpoint_dir) == self._folder(found.id, found.spec)
            return self._view(found, goes_on=goes_on)

        try:
            return await self.lanes.store.run(caller.user, find)
        except (BusyError, LateError, StoreError):
            return None

    def _check_free(
        self, found: StoredTrainer, wanted: TrainerSpec, unfinished: Sequence[TrainerSummary]
    ) -> None:
        """Refuse a trainer that has not ended, whose checkpoints another one has, or not the spec's own."""
        folder = self._folder(found.id, found.spec)
        who = f"trainer {found.id} ({found.spec.name})"
        if not found.status.final and self.known.index.over(found.id) is None:
            raise BftrainerError(CHECKPOINTS_IN_USE.say(who=who, id=found.id))
        if wanted.checkpoint_dir and Path(wanted.checkpoint_dir) != folder:
            raise BftrainerError(OTHER_CHECKPOINTS.say(given=wanted.checkpoint_dir, who=who, folder=folder))
        state = self.known.runner.state
        for other in unfinished:
            live = state.trainer(other.id)
            if live is not None and self._folder(other.id, live.spec) == folder:
                raise BftrainerError(
                    CHECKPOINTS_IN_USE.say(who=f"trainer {other.id} ({other.name})", id=other.id)
                )

    def _folder(self, trainer: int, spec: TrainerSpec) -> Path:
        return self.launcher.checkpoint_folder(trainer, spec)

    def _view(self, found: StoredTrainer, *, goes_on: bool) -> EarlierView:
        newest = self.known.index.over(found.id) or found.summary
        return {
            "id": found.id,
            "name": found.spec.name,
            "status": newest.status.value,
            "step": newest.step,
            "checkpoint_dir": str(self._folder(found.id, found.spec)),
            "goes_on": goes_on,
        }
