"""The trainers that a launcher knows, and what the daemon asks of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from bftrainer.launch.job import LaunchedTrainer, WorkersByNode, WorkerView
from bftrainer.model.trainer import TrainerSpec

T = TypeVar("T", bound=LaunchedTrainer)


class KnownTrainers(Generic[T]):
    """Trainers by number, from `add` until they have ended and their last worker has gone."""

    def __init__(self, forgotten: Callable[[int], None]) -> None:
        self._trainers: dict[int, T] = {}
        self._of_user: dict[str, dict[int, T]] = {}
        self._ended: set[int] = set()  # to be forgotten when their last worker has gone
        self._forgotten = forgotten
        self.by_node = WorkersByNode()

    def add(self, launched: T) -> None:
        """Make a trainer known."""
        self._trainers[launched.id] = launched
        self._of_user.setdefault(launched.spec.user, {})[launched.id] = launched

    def forget(self, trainer: int) -> None:
        """Forget a trainer that the engine has ended, as soon as its last worker has gone."""
        if trainer in self._trainers:
            self._ended.add(trainer)
            self.prune()

    def prune(self) -> None:
        """Forget the trainers that have ended and have no worker left."""
        for trainer in [id_ for id_ in self._ended if not self._trainers[id_].workers]:
            self._ended.remove(trainer)
            user = self._trainers.pop(trainer).spec.user
            del self._of_user[user][trainer]
            if not self._of_user[user]:
                del self._of_user[user]
            self._forgotten(trainer)

    def __contains__(self, trainer: int) -> bool:
        return trainer in self._trainers

    def __iter__(self) -> Iterator[T]:
        return iter(self._trainers.values())

    def __getitem__(self, trainer: int) -> T:
        return self._trainers[trainer]

    def get(self, trainer: int) -> T | None:
        """A trainer, if it is known."""
        return self._trainers.get(trainer)

    def may_start(self, where: Callable[[TrainerSpec], bool]) -> TrainerSpec | None:
        """A trainer that may be started there; None if there is none. An agent serves all trainers of a user
        or none of them: one of each user is asked for, however many wait."""
        first = (
            next((own.spec for own in of.values() if not own.finished), None) for of in self._of_user.values()
        )
        return next((spec for spec in first if spec is not None and where(spec)), None)

    def at(self, node: str) -> list[tuple[T, WorkerView]]:
        """The trainers with a worker on a node, and that worker."""
        return [(self._trainers[trainer], view) for trainer, view in self.by_node.on(node).items()]

    def workers(self, trainer: int) -> dict[str, str]:
        """Node -> phase of the trainer's workers that may still be there; empty if it is not known."""
        launched = self._trainers.get(trainer)
        return {node: view.phase for node, view in launched.workers.items() if view.sent} if launched else {}

    def any_workers(self) -> bool:
        """True if any trainer's worker may still be there."""
        return any(view.sent for view in self.by_node)

    def views(self, trainer: int) -> Mapping[str, WorkerView]:
        """Node -> worker, as far as agents have reported; empty if the trainer is not known."""
        launched = self._trainers.get(trainer)
        return launched.workers if launched else {}

    def busy(self, node: str) -> bool:
        """True if a worker may be running on a node that still has something to do."""
        return any(view.sent and not view.left for view in self.by_node.on(node).values())
