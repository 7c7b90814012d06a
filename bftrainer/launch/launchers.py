"""All launchers as one: every trainer has the one that its spec names."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from bftrainer.launch.horovod.drivers import DriverProcesses
from bftrainer.launch.horovod.launcher import HorovodLauncher
from bftrainer.launch.launcher import AgentLauncher, WorkerView
from bftrainer.launch.native.launcher import NativeLauncher
from bftrainer.launch.torchrun.launcher import TorchrunLauncher
from bftrainer.launch.torchrun.stores import StoreHost
from bftrainer.model.actions import Action
from bftrainer.model.reports import Message
from bftrainer.model.trainer import TrainerSpec
from bftrainer.ports import Emit, Journal, Link
from bftrainer.wire.messages import sane

log = logging.getLogger(__name__)

INVENTORY = {"trainer", "generation", "run", "phase", "joined"}
"""What an agent says of each worker that it has."""


class Launchers:
    """Implements `ports.Launcher` over one launcher for each name that a spec may say."""

    def __init__(self, link: Link, by_name: Mapping[str, AgentLauncher[Any]], grace_s: float) -> None:
        self._link, self._by_name, self._grace_s = link, by_name, grace_s

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
        **options: Any,
    ) -> Launchers:
        """All that there are; `options` are those of `AgentLauncher`.

        `nodes_see_us_at`: the address of this machine at which nodes reach what is started here; what
        outlives the daemon is found again in `state_dir`, and ends when no daemon comes for `orphan_s`.
        """
        drivers = DriverProcesses(nodes_see_us_at, state_dir / "horovod", orphan_s=orphan_s)
        by_name: dict[str, AgentLauncher[Any]] = {
            "native": NativeLauncher(link, emit, journal, **options),
            "torchrun": TorchrunLauncher(link, emit, journal, stores=StoreHost(nodes_see_us_at), **options),
            "horovod": HorovodLauncher(link, emit, journal, drivers=drivers, **options),
        }
        return cls(link, by_name, options["grace_s"])

    def add(self, trainer: int, spec: TrainerSpec, **stored: Any) -> None:
        """See `AgentLauncher.add`."""
        self._by_name[spec.launcher].add(trainer, spec, **stored)

    def forget(self, trainer: int) -> None:
        """Forget a trainer that the engine has ended, as soon as its last worker has gone.

        Until then its workers are listed and heard; later messages of them are dropped.
        """
        launcher = self._of(trainer)
        if launcher is not None:
            launcher.forget(trainer)

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
        """Node -> phase of the trainer's workers that may still be there; empty for an unknown trainer."""
        launcher = self._of(trainer)
        return launcher.workers(trainer) if launcher else {}

    def any_workers(self) -> bool:
        """Whether any trainer's worker may still be there."""
        return any(launcher.any_workers() for launcher in self._by_name.values())

    def views(self, trainer: int) -> Mapping[str, WorkerView]:
        """Node -> worker, as far as agents have told; empty for an unknown trainer."""
        launcher = self._of(trainer)
        return launcher.views(trainer) if launcher else {}

    def _of(self, trainer: int) -> AgentLauncher[Any] | None:
        """The launcher that has this trainer."""
        return next((own for own in self._by_name.values() if own.knows(trainer)), None)

    def busy(self, node: str) -> bool:
        """Whether a worker may be running on a node that still has something to do."""
        return any(launcher.busy(node) for launcher in self._by_name.values())

    def log_folder(self, trainer: int, spec: TrainerSpec) -> Path:
        return self._by_name[spec.launcher].log_folder(trainer, spec)

    def checkpoint_folder(self, trainer: int, spec: TrainerSpec) -> Path:
        return self._by_name[spec.launcher].checkpoint_folder(trainer, spec)

    def agent_up(self, node: str, inventory: list[Message], wanted: Collection[int]) -> None:
        """Every launcher hears of its own trainers; those of nobody are stopped."""
        inventory = [found for found in inventory if sane(found) and found.keys() >= INVENTORY]
        for found in inventory:
            if self._of(found["trainer"]) is None:
                order = {"type": "stop", "trainer": found["trainer"], "grace_s": self._grace_s}
                self._link.send(node, order)
        for launcher in self._by_name.values():
            own = [found for found in inventory if launcher.knows(found["trainer"])]
            launcher.agent_up(node, own, wanted)

    def agent_down(self, node: str) -> None:
        for launcher in self._by_name.values():
            launcher.agent_down(node)

    def said(self, node: str, message: Message) -> None:
        """What a worker says through its agent is as trustworthy as its script: nonsense is dropped."""
        try:
            if not sane(message):
                raise ValueError("no such values are possible")
            launcher = self._of(message["trainer"])
            if launcher is not None:
                launcher.said(node, message)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("from %s comes what makes no sense: %r in %.200r", node, error, message)

    def close(self) -> None:
        """The daemon stops: so does what the launchers themselves run."""
        for launcher in self._by_name.values():
            launcher.close()
