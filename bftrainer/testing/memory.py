"""A scheduler in memory that passes the contract of schedulers, and whose answers can be lost or refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bftrainer.errors import NoRoomError, SchedulerError, UnsureError
from bftrainer.model.machine import Claim, Node, NodeState, Pilot, Snapshot
from bftrainer.model.main_jobs import Accounted, MainJob


@dataclass
class Machine:
    """Nodes and what runs on them; it outlives the schedulers that look at it."""

    idle: set[str]
    busy: set[str] = field(default_factory=set)
    until: dict[str, float] = field(default_factory=dict)
    on: dict[str, tuple[str, float]] = field(default_factory=dict)  # main jobs on busy nodes, and their ends
    why: dict[str, str] = field(default_factory=dict)  # nodes in a state of which the scheduler says more
    claims: tuple[Claim, ...] = ()
    main: tuple[MainJob, ...] = ()
    pilots: list[Pilot] = field(default_factory=list)
    submitted: list[tuple[Pilot, float | None]] = field(
        default_factory=list
    )  # all that ever were, with limits
    cancelled: list[str] = field(default_factory=list)  # tags, in order
    preempted: set[str] = field(default_factory=set)  # nodes whose pilots had to go for main jobs
    failures: dict[str, str] = field(default_factory=dict)  # node -> why every pilot there fails
    jobs: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def take(self, node: str) -> None:
        """The main scheduler takes a node and kills what is there."""
        self.idle.discard(node)
        self.busy.add(node)
        self.pilots = [pilot for pilot in self.pilots if pilot.node != node]


class MemoryScheduler:
    """Implements `ports.Scheduler` over a `Machine`.

    `refuses` and `loses` say why a pilot is not accepted, or that the answer to its submission gets lost;
    `keeps` why it cannot be cancelled.
    """

    def __init__(self, machine: Machine, now: Callable[[], float]) -> None:
        self.machine, self._now = machine, now
        self.down = ""  # why nothing can be asked
        self.refuses: Callable[[Pilot], str] = lambda pilot: ""
        self.loses: Callable[[Pilot], bool] = lambda pilot: False
        self.keeps: Callable[[Pilot], str] = lambda pilot: ""

    async def poll(self) -> Snapshot:
        self._ask()
        machine = self.machine
        return Snapshot(
            time=self._now(),
            nodes=tuple(
                Node(
                    name=name,
                    state=NodeState.IDLE if name in machine.idle - machine.why.keys() else NodeState.BUSY,
                    until=machine.until.get(name),
                    why=machine.why.get(name, ""),
                    job=machine.on.get(name, ("", None))[0],
                    ends=machine.on.get(name, ("", None))[1],
                )
                for name in sorted(machine.idle | machine.busy)
            ),
            claims=machine.claims,
            main=machine.main,
            pilots=tuple(machine.pilots),
        )

    async def pilots(self) -> tuple[Pilot, ...]:
        self._ask()
        return tuple(self.machine.pilots)

    async def submit(self, pilot: Pilot, secret: str, limit_s: float | None = None) -> None:
        self._ask()
        if why := self.refuses(pilot):
            raise SchedulerError(why)
        if pilot.node not in self.machine.idle:
            raise NoRoomError(f"{pilot.node} is busy")
        self.machine.pilots.append(pilot)
        self.machine.submitted.append((pilot, limit_s))
        if self.loses(pilot):
            raise UnsureError("the answer was lost")

    async def cancel(self, pilots: Sequence[Pilot]) -> None:
        self._ask()
        kept = {pilot: why for pilot in pilots if (why := self.keeps(pilot))}
        self.machine.cancelled += [pilot.tag for pilot in pilots if pilot not in kept]
        self.machine.pilots = [p for p in self.machine.pilots if p in kept or p not in pilots]
        if kept:
            raise SchedulerError("; ".join(kept.values()))

    async def failures(self, pilots: Sequence[Pilot]) -> Mapping[Pilot, str]:
        self._ask()
        return {
            pilot: self.machine.failures[pilot.node]
            for pilot in pilots
            if pilot.node in self.machine.failures
        }

    async def preempted(self, pilots: Sequence[Pilot]) -> Collection[Pilot]:
        self._ask()
        return frozenset(pilot for pilot in pilots if pilot.node in self.machine.preempted)

    async def accounted(self, since: float) -> Accounted:
        self._ask()
        return Accounted(why="a machine in memory keeps no accounts")

    async def close(self) -> None:
        """Nothing runs."""

    def _ask(self) -> None:
        if self.down:
            raise SchedulerError(self.down)
