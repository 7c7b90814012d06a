"""Nodes over a scheduler in memory and the real engine; no agent comes unless the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from bftrainer.allocate import decide
from bftrainer.engine.state import State
from bftrainer.engine.step import step
from bftrainer.model.events import Drain, Event, Resume, TrainerCancelled, TrainerSubmitted
from bftrainer.model.machine import Operation
from bftrainer.model.reports import Message
from bftrainer.model.trainer import Points, Scalability, Trainer, TrainerSpec
from bftrainer.nodes.nodes import Nodes
from bftrainer.nodes.pilots import Pilots
from bftrainer.nodes.quarantine import Quarantine
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.sources import load
from bftrainer.settings.values import Settings
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.testing.memory import Machine, MemoryScheduler

NOWHERE = {"XDG_CONFIG_HOME": "/nowhere", "BFTRAINER_SITE_CONFIG": "/nowhere"}
CURVE: Points = ((8, 80.0),)


def settings_in(folder: Path, **given: object) -> Settings:
    """Settings that no file of this machine has a part in."""
    return load({"state_dir": folder, **given}, environ=NOWHERE)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Play a scenario; one that hangs fails."""

    async def within_time() -> None:
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(within_time())


class Workers:
    """`ports.Workers` of a test: it says which nodes are busy, and sees which are given up."""

    def __init__(self) -> None:
        self.on: set[str] = set()
        self.gone: list[str] = []
        self.blamed: list[str] = []
        self.called_off: list[str] = []  # where what waits for a pilot is given up, too

    def busy(self, node: str) -> bool:
        return node in self.on

    def agent_down(self, node: str, *, blame: bool = False, waiting: bool = True) -> None:
        self.on.discard(node)
        self.gone.append(node)
        if waiting:
            self.called_off.append(node)
        if blame:
            self.blamed.append(node)


class Sent:
    """`ports.Link` of a test: it sees what agents are sent."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Message]] = []

    def serves(self, node: str, spec: TrainerSpec) -> bool:
        return True

    def devices(self, node: str) -> int:
        return 0

    def send(self, node: str, message: Message) -> None:
        self.messages.append((node, message))


class World:
    """Nodes whose loops the test turns by hand, with a clock that the test moves."""

    def __init__(self, folder: Path, nodes: int, **given: object) -> None:
        self.time = 1e9
        self.machine = Machine({f"n{i}" for i in range(nodes)})
        self.scheduler = MemoryScheduler(self.machine, self.now)
        self.agents: set[str] = set()
        self.settings = LiveSettings(
            settings_in(folder, **{"vacate_s": 0, "spare_s": 10, "rejoin_s": 0, **given}),
        )
        self.events: list[Event] = []
        self.state = State(settings=self.settings.current.engine)
        self.telemetry, self.workers, self.link = Telemetry(), Workers(), Sent()
        self.submitted = 0
        self.users = frozenset[str]()
        own = self.settings.current
        self.pilots = Pilots(
            *(self.scheduler, b"key", self, lambda node: node in self.agents),
            *(self.telemetry.pilot, lambda reason: self.telemetry.condition("pilots", reason)),
            start_s=own.pilot_start_s,
            spare_s=own.spare_s,
            per_minute=own.submissions_per_minute,
            quarantine=Quarantine(self, lambda: self.users),
        )
        self.nodes = Nodes(
            settings=self.settings,
            clock=self,
            scheduler=self.scheduler,
            pilots=self.pilots,
            link=self.link,
            workers=self.workers,
            trainers=self.trainers,
            curves=lambda trainers: {t.id: CURVE for t in trainers},
            user_of=lambda spec: spec.user,
            emit=self.events.append,
            telemetry=self.telemetry,
        )

    def now(self) -> float:
        return self.time

    def trainers(self) -> tuple[Trainer, ...]:
        return tuple(self.state.active.values())

    @property
    def pool(self) -> frozenset[str]:
        """What the engine has for the pool."""
        return self.state.pool

    def held(self) -> str:
        """The nodes with a pilot, as the machine has them."""
        return " ".join(sorted(pilot.node for pilot in self.machine.pilots))

    async def turn(self, seconds: float = 1.0) -> None:
        """One poll, what follows from it, and the pilots that come of that."""
        self.time += seconds
        await self.nodes.watch.poll()
        await self.settle()

    async def settle(self) -> None:
        """What waits for the engine, and what follows from its decisions."""
        self.decide()
        await self.nodes.hold.check()
        await self.nodes.background.wait()
        self.decide()

    def decide(self) -> None:
        """Have the engine take the events that wait."""
        engine = self.settings.current.engine
        while self.events:
            before = replace(self.state, settings=engine)
            self.state = step(before, self.events.pop(0), lambda problem: decide(problem, engine)).state

    async def submit(self, name: str = "a", n_max: int = 8, user: str = "") -> None:
        self.submitted += 1
        spec = TrainerSpec(
            name=name,
            command=("x",),
            n_min=1,
            n_max=n_max,
            samples=10,
            user=user,
            curve=CURVE,
            scalability=Scalability.GIVEN,
        )
        self.events.append(TrainerSubmitted(time=self.time, trainer=self.submitted, spec=spec))
        await self.settle()

    def cancel(self, trainer: int) -> None:
        self.events.append(TrainerCancelled(time=self.time, trainer=trainer))

    def administer(self, operation: Operation) -> None:
        """An admin's order, as far as it concerns nodes."""
        before, self.nodes.state.operation = self.nodes.state.operation, operation
        if operation is Operation.DRAINING:
            self.events.append(Drain(time=self.time))
        elif before is Operation.DRAINING:
            self.events.append(Resume(time=self.time))
        self.nodes.wake()

    def reload(self, **given: object) -> None:
        self.settings.reload(self.settings.current.model_copy(update=given))
        self.nodes.reload()
