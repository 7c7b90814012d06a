"""An engine in memory, driven event by event."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from bftrainer.allocate import ALLOCATORS
from bftrainer.engine.state import State, Step
from bftrainer.engine.step import step
from bftrainer.launch.launcher import AgentLauncher
from bftrainer.model.actions import Regroup, StartWorker
from bftrainer.model.events import (
    Event,
    NodesChanged,
    TrainerCancelled,
    TrainerSubmitted,
    WorkerLost,
    WorkersReady,
)
from bftrainer.model.machine import NodeInfo
from bftrainer.model.policy import EngineSettings
from bftrainer.model.problem import Plan, Problem
from bftrainer.model.trainer import (
    Points,
    RescaleCosts,
    Trainer,
    TrainerSpec,
)

CLASSES = EngineSettings(node_classes={"fat": frozenset("ab"), "thin": frozenset("cd")})
"""Two classes of nodes; all others are a class of their own."""
EVERYBODY = EngineSettings(max_parallel=None, ageing_s=None)
"""Every waiting trainer may hold nodes, and none ages."""


def solve(problem: Problem) -> Plan:
    """The exact method's plan."""
    return ALLOCATORS["knapsack"](problem, EngineSettings())


def step_of(state: State, event: Event) -> Step:
    """What the engine makes of an event."""
    return step(state, event, solve)


def carried_out(state: State, event: Event, launcher: AgentLauncher[Any]) -> Step:
    """What the engine makes of an event, once the launcher has done what follows."""
    found = step_of(state, event)
    for action in found.actions:
        launcher.perform(action)
    if found.ended is not None:
        launcher.known.forget(found.ended.trainer)
    return found


def make_spec(
    n_min: int = 1,
    n_max: int = 8,
    rate: float = 1.0,
    weight: float = 1.0,
    curve: Points | None = (),
    **others: Any,
) -> TrainerSpec:
    """A trainer that scales linearly, unless told otherwise, and rescales for nothing."""
    spec = TrainerSpec(
        name="t",
        command=("train",),
        n_min=n_min,
        n_max=n_max,
        curve=((n_max, n_max * rate),) if curve == () else curve,
        costs=RescaleCosts(),
        weight=weight,
    )
    return replace(spec, **others)


@dataclass
class World:
    """An engine's state and a clock; every method takes one event in and returns its step."""

    settings: EngineSettings = field(default_factory=EngineSettings)
    now: float = 0.0
    state: State = field(init=False)

    def __post_init__(self) -> None:
        self.state = State(settings=self.settings)

    def take(self, event: Event) -> Step:
        step = step_of(self.state, replace(event, time=self.now))
        self.state, self.now = step.state, self.now + 1.0
        return step

    def nodes(self, joined: str = "", left: str = "", vacated: str = "") -> Step:
        """`vacated` leave, too."""
        left, gone = left + vacated, frozenset(vacated)
        return self.take(NodesChanged(time=0.0, joined=frozenset(joined), left=frozenset(left), vacated=gone))

    def expect(self, facts: dict[str, float | None], joined: str = "") -> Step:
        """The scheduler says when nodes will leave (from now, in seconds; None: it no longer says so)."""
        known = {n: NodeInfo(until=None if s is None else self.now + s) for n, s in facts.items()}
        return self.take(NodesChanged(time=0.0, joined=frozenset(joined), facts=known))

    def submit(self, trainer: int, **changes: Any) -> Step:
        return self.take(TrainerSubmitted(time=0.0, trainer=trainer, spec=make_spec(**changes)))

    def end(self, trainer: int) -> Step:
        return self.take(TrainerCancelled(time=0.0, trainer=trainer))

    def held(self, trainer: int) -> str:
        return "".join(sorted(self.trainer(trainer).nodes))

    def ready(self, trainer: int, nodes: str, generation: int | None = None) -> Step:
        started = self.trainer(trainer).joining[nodes[0]] if generation is None else generation
        return self.take(WorkersReady(time=0.0, trainer=trainer, generation=started, nodes=frozenset(nodes)))

    def lost(self, trainer: int, node: str, **changes: object) -> Step:
        t = self.trainer(trainer)
        event = WorkerLost(time=0.0, trainer=trainer, node=node, generation=t.started.get(node, 0))
        return self.take(replace(event, **changes))  # type: ignore[arg-type]

    def trainer(self, trainer: int) -> Trainer:
        return self.state.trainers[trainer]

    def running(self, members: str, **changes: object) -> World:
        """Trainer 1 trains on `members`, in this rank order: a batch, if it is in the order of names."""
        self.submit(1, **changes)
        for batch in [members] if sorted(members) == list(members) else members:
            self.nodes(joined=batch)
            self.ready(1, batch)
        assert self.trainer(1).members == tuple(members)
        return self


def starts(step: Step) -> list[tuple[int, str]]:
    return [(a.trainer, a.node) for a in step.actions if isinstance(a, StartWorker)]


def regroup(step: Step) -> Regroup:
    """The only action of this step, which is a Regroup."""
    (action,) = step.actions
    assert isinstance(action, Regroup)
    return action
