"""A daemon whose runner a test feeds by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.daemon import Daemon
from bftrainer.model.actions import Action, StartWorker
from bftrainer.model.events import Event, TrainerSubmitted
from bftrainer.model.trainer import TrainerSpec
from bftrainer.store.sql import SqlStore
from tests.support.no_nodes import NoNodes
from tests.support.nodes_world import settings_in


class Acts:
    """A launcher that notes what it is to do, and fails on one node."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.fails_on = ""
        self.forgotten: list[int] = []

    def perform(self, actions: Sequence[Action]) -> None:
        """Note actions, up to one on the node that fails."""
        for action in actions:
            if isinstance(action, StartWorker) and action.node == self.fails_on:
                raise KeyError(action.trainer)
            self.actions.append(action)

    def add(self, trainer: int, spec: TrainerSpec) -> None:
        """Known."""

    def forget(self, trainer: int) -> None:
        """Note that a trainer has ended."""
        self.forgotten.append(trainer)


class FedDaemon:
    """The daemon with `given` settings, its store, and `acts` in its launcher's place."""

    def __init__(self, folder: Path, **given: object) -> None:
        self.own = settings_in(folder, **given)
        self.store = SqlStore(self.own.database)
        self.daemon = Daemon(self.own, NoNodes(), self.store, WallClock())  # type: ignore[arg-type]
        self.runner, self.acts = self.daemon.runner, Acts()
        self.runner._launcher = self.acts  # type: ignore[assignment]

    async def take(self, *events: Event) -> None:
        """Have the runner take events, then what waits in the mailbox."""
        for event in events:
            await self.runner.take(event)
        for event in self.daemon.mailbox.waiting():
            await self.runner.take(event)

    async def submit(self, spec: TrainerSpec) -> int:
        """Submit a trainer. Returns its number."""
        id_ = await self.daemon.journal.submit(spec, 1.0)
        await self.take(TrainerSubmitted(time=time.time(), trainer=id_, spec=spec))
        return id_

    def close(self) -> None:
        """Let go of threads and database."""
        self.runner.close()
        self.daemon.journal._writer.give_up()
        self.store.close()
