"""All launchers as one: every trainer has the one that its spec names."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from bftrainer.launch import messages
from bftrainer.launch.horovod.drivers import DriverProcesses
from bftrainer.launch.horovod.launcher import HorovodLauncher
from bftrainer.launch.job import WorkerView
from bftrainer.launch.launcher import AgentLauncher
from bftrainer.launch.messages import Folders
from bftrainer.launch.native.launcher import NativeLauncher
from bftrainer.launch.torchrun.launcher import TorchrunLauncher
from bftrainer.launch.torchrun.stores import StoreHost
from bftrainer.model.actions import Action
from bftrainer.model.reports import Message
from bftrainer.model.trainer import TrainerSpec
from bftrainer.ports import Emit, Journal, Link
from bftrainer.wire.messages.from_agent import Exited, read, running
from bftrainer.wire.phases import Phase

log = logging.getLogger(__name__)

HELPER_CONNECTIONS = 4096
"""Connections to a helper of one trainer at once: a worker needs two to four."""


class Launchers:
    """Implements `ports.Launcher` over one launcher for each name that a spec may say."""

    def __init__(
        self, link: Link, by_name: Mapping[str, AgentLauncher[Any]], folders: Folders, grace_s: float
    ) -> None:
        self._link, self._by_name, self._folders, self._grace_s = link, by_name, folders, grace_s
        self._strays: dict[str, set[int]] = {}  # node -> trainers unknown here that have a worker there

    @classmethod
    def over(
        cls,
        link: Link,
        emit: Emit,
        journal: Journal,
        *,
        nodes_see_us_at: str,
        state_dir: Path,
        orphan_s: float,
        max_helper_memory_mb: int,
        trainer_dir: str,
        store_id: str,
        **options: Any,
    ) -> Launchers:
        """All launchers that there are; `options` are those of `AgentLauncher`, the directories those of
        `Folders`.

        `nodes_see_us_at`: the address of this machine at which nodes reach what is started here. Processes
        that outlive the daemon are found again in `state_dir`, and end when no daemon comes for `orphan_s`.
        Each helper through which one trainer's workers find each other has its own bounds.
        """
        folders = Folders(trainer_dir=trainer_dir, store_id=store_id)
        bounds = {"memory_mb": max_helper_memory_mb, "connections": HELPER_CONNECTIONS}
        drivers = DriverProcesses(nodes_see_us_at, state_dir / "horovod", orphan_s=orphan_s, **bounds)
        stores = StoreHost(nodes_see_us_at, **bounds)
        by_name: dict[str, AgentLauncher[Any]] = {
            "native": NativeLauncher(link, emit, journal, folders, **options),
            "torchrun": TorchrunLauncher(link, emit, journal, folders, stores=stores, **options),
            "horovod": HorovodLauncher(link, emit, journal, folders, drivers=drivers, **options),
        }
        return cls(link, by_name, folders, options["grace_s"])

    def add(self, trainer: int, spec: TrainerSpec, **stored: Any) -> None:
        """See `AgentLauncher.add`."""
        self._by_name[spec.launcher].add(trainer, spec, **stored)

    def forget(self, trainer: int) -> None:
        """Forget a trainer that the engine has ended, as soon as its last worker has gone.

        Until then its workers are listed and heard; later messages of them are dropped.
        """
        launcher = self._of(trainer)
        if launcher is not None:
            launcher.known.forget(trainer)

    def perform(self, actions: Sequence[Action]) -> None:
        """Carry out the actions of one decision, in their order.

        Raises `KeyError` for a trainer that was never added or is forgotten.
        """
        for action in actions:
            launcher = self._of(action.trainer)
            if launcher is None:
                raise KeyError(action.trainer)
            launcher.perform(action)

    def workers(self, trainer: int) -> dict[str, str]:
        """Node -> phase of the trainer's workers that may still be there; of an unknown trainer those that
        agents listed when they came, and that have been told to end."""
        launcher = self._of(trainer)
        strays = {node: Phase.LEAVING.value for node, there in self._strays.items() if trainer in there}
        return launcher.known.workers(trainer) if launcher else strays

    def note(self, trainer: int) -> str:
        """Note to a trainer's user on its start or its progress; empty if there is none."""
        launcher = self._of(trainer)
        return launcher.note(trainer) if launcher else ""

    def any_workers(self) -> bool:
        """True if any trainer's worker may still be there."""
        return any(launcher.known.any_workers() for launcher in self._by_name.values())

    def views(self, trainer: int) -> Mapping[str, WorkerView]:
        """Node -> worker, as far as agents have reported; empty for an unknown trainer."""
        launcher = self._of(trainer)
        return launcher.known.views(trainer) if launcher else {}

    def _of(self, trainer: int) -> AgentLauncher[Any] | None:
        """The launcher that has this trainer."""
        return next((own for own in self._by_name.values() if trainer in own.known), None)

    def busy(self, node: str) -> bool:
        """True if a worker may be running on a node that still has something to do."""
        return any(launcher.known.busy(node) for launcher in self._by_name.values())

    def log_folder(self, trainer: int, spec: TrainerSpec) -> Path:
        """See `Folders.logs`."""
        return self._folders.logs(trainer, spec)

    def checkpoint_folder(self, trainer: int, spec: TrainerSpec) -> Path:
        """See `Folders.checkpoints`."""
        return self._folders.checkpoints(trainer, spec)

    def agent_up(self, node: str, inventory: Sequence[object], wanted: Collection[int]) -> None:
        """An agent has connected and listed its workers, of which only `wanted` trainers' may go on.

        Every launcher hears of its own trainers; workers of unknown ones are stopped.
        """
        there = running(inventory)
        self._strays[node] = {found.trainer for found in there if self._of(found.trainer) is None}
        for found in there:
            if found.trainer in self._strays[node]:
                self._link.send(node, messages.stop(found.trainer, self._grace_s))
        for launcher in self._by_name.values():
            launcher.agent_up(node, [found for found in there if found.trainer in launcher.known], wanted)

    def agent_down(self, node: str, *, blame: bool = False, waiting: bool = True) -> None:
        """A node is gone with everything on it. Idempotent. See `ports.Workers`."""
        self._strays.pop(node, None)
        for launcher in self._by_name.values():
            launcher.agent_down(node, blame=blame, waiting=waiting)

    def said(self, node: str, message: Message) -> None:
        """An agent has reported something of a worker; a report that makes no sense is logged and dropped."""
        try:
            report = read(message)
        except ValueError as error:
            log.warning("from %s comes what makes no sense: %r in %.200r", node, error, message)
            return
        if report is None:
            return
        launcher = self._of(report.trainer)
        if launcher is not None:
            launcher.reported(node, report)
        if isinstance(report.said, Exited):
            self._strays.get(node, set()).discard(report.trainer)
            self._link.send(node, messages.heard(report))

    def close(self) -> None:
        """End what the launchers themselves run: the daemon stops."""
        for launcher in self._by_name.values():
            launcher.close()
