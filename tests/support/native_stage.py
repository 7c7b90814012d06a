"""The native launcher without agents: what it sends, writes down and tells the engine."""

from __future__ import annotations

from typing import Any

from bftrainer.launch.deadlines import TimeLimits
from bftrainer.launch.launcher import NO_LIMITS
from bftrainer.launch.native.launcher import NativeLauncher
from bftrainer.model.actions import StartWorker
from bftrainer.model.trainer import TrainerSpec
from bftrainer.wire.messages.from_agent import Running
from tests.support.messages import report
from tests.support.remembering_ports import FOLDERS, RememberingPorts

SPEC = TrainerSpec(name="a", command=("python", "a.py"), n_min=1, n_max=4, samples=1000)


class NativeStage(RememberingPorts):
    """A native launcher with trainer 1, between a link and a journal that only remember."""

    def __init__(self, limits: TimeLimits = NO_LIMITS) -> None:
        super().__init__()
        self.up: set[str] = set()
        self.now = 1.0
        self.launcher = NativeLauncher(
            self,
            self.events.append,
            self,
            FOLDERS,
            grace_s=5.0,
            clock=lambda: self.now,
            limits=limits,
        )
        self.launcher.add(1, SPEC)

    def serves(self, node: str, spec: TrainerSpec) -> bool:
        return node in self.up

    def agent(self, node: str, *inventory: Running, wanted: set[int] | None = None) -> None:
        self.up.add(node)
        self.launcher.agent_up(node, list(inventory), {1} if wanted is None else wanted)

    def start(self, generation: int, *nodes: str) -> None:
        for node in nodes:
            if node not in self.up:
                self.agent(node)
            self.launcher.perform(StartWorker(trainer=1, generation=generation, node=node))

    def said(self, node: str, kind: str, started: int = 1, **fields: Any) -> None:
        self.launcher.reported(node, report(kind, started=started, **fields))

    def joined(
        self, node: str, generation: int, *, survivor: bool, step: int, size: int = 2, started: int = 1
    ) -> None:
        self.said(
            node,
            "joined",
            started,
            generation=generation,
            survivor=survivor,
            step=step,
            size=size,
            pause_s=0.1,
        )

    def kinds(self) -> list[tuple[str, str]]:
        return [(node, message["type"]) for node, message in self.sent if message["type"] != "warm"]
