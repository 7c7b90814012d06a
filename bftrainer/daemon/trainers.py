"""What the daemon tells of trainers: each caller of its own, admins of all."""

from __future__ import annotations

from dataclasses import dataclass

from bftrainer.api.callers import Caller
from bftrainer.api.errors import UnknownTrainerError
from bftrainer.daemon.journal import Journal
from bftrainer.daemon.runner import Runner
from bftrainer.daemon.views import TrainerView, trainer_view
from bftrainer.engine.places import why_never
from bftrainer.errors import BftrainerError
from bftrainer.model.reports import StoredTrainer, TrainerSummary
from bftrainer.model.trainer import TrainerStatus
from bftrainer.ports import Launcher, Store

NAMED = 10
"""So many users are named who have a trainer of the name that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainers:
    """Reads the store for what has ended, and memory for what is newer than the store."""

    store: Store
    journal: Journal
    runner: Runner
    launcher: Launcher

    def unfinished(self, caller: Caller) -> list[TrainerView]:
        """The trainers that have not ended and that the caller may see, in order of arrival."""
        return [self.view(t) for t in self.store.unfinished_summaries(_owner(caller))]

    def ended(self, caller: Caller, limit: int, skip: int) -> list[TrainerView]:
        """Of those that ended and that the caller may see: `limit` after the `skip` that ended last, in order
        of arrival."""
        found = self.store.ended_summaries(limit, skip, _owner(caller)) if limit else []
        return [self.view(t) for t in sorted(found, key=lambda t: t.id)]

    def count_ended(self, caller: Caller) -> int:
        """How many have ended that the caller may see."""
        return sum(self.store.count_ended(_owner(caller)).values())

    def counts(self, caller: Caller, unfinished: list[TrainerView]) -> dict[str, int]:
        """How many trainers that the caller may see have which status; `unfinished` are those unfinished."""
        ended = self.store.count_ended(_owner(caller))
        found = dict.fromkeys((status.value for status in TrainerStatus), 0)
        found |= {status.value: count for status, count in ended.items()}
        for view in unfinished:
            found[view["status"]] += 1
        return {status: count for status, count in found.items() if count}

    def find(self, caller: Caller, trainer: str) -> StoredTrainer:
        """By number, or by name: the latest of that name, of the caller's own if there is one.

        Raises:
            UnknownTrainerError: there is none that the caller may see.
            BftrainerError: several other users have one of this name.
        """
        latest = {user: id_ for user, id_ in self.store.latest_named(trainer).items() if caller.may_see(user)}
        numbered = self.store.trainer(int(trainer)) if _is_number(trainer) else None
        if numbered is not None and caller.may_see(numbered.spec.user):
            owner = numbered.spec.user
            latest[owner] = max(numbered.id, latest.get(owner, 0))
        if caller.user in latest:
            latest = {caller.user: latest[caller.user]}
        if len(latest) > 1:
            first = sorted((id_, user) for user, id_ in latest.items())[-NAMED:]
            which = ", ".join(f"{id_} ({user})" for id_, user in first)
            raise BftrainerError(f"several users have a trainer {trainer!r}; name it by its number: {which}")
        found = next((self.store.trainer(id_) for id_ in latest.values()), None)
        if found is None:
            raise UnknownTrainerError(f"no trainer {trainer!r}; bftrainer list shows those that there are")
        return found

    def view(self, stored: TrainerSummary) -> TrainerView:
        """A trainer's line in a list."""
        state = self.runner.state
        live, latest = state.active.get(stored.id), self.journal.latest(stored.id)
        view = trainer_view(stored, live, latest, self.launcher.workers(stored.id))
        if stored.id in state.waiting:  # whatever the daemon before had stored
            view["status"] = TrainerStatus.WAITING.value
        unfinished = state.trainer(stored.id)
        if unfinished is not None and not unfinished.nodes:
            view["reason"] = why_never(unfinished.spec, state.settings, state.machine) or view["reason"]
        return view


def _owner(caller: Caller) -> str | None:
    """The user whose trainers the caller may see; None: those of all."""
    return None if caller.admin else caller.user


def _is_number(text: str) -> bool:
    """Whether it can be an id: SQLite's go to 2**63."""
    return text.isascii() and text.isdecimal() and len(text) < 19
