"""A run calls its observers at every event, and knows none of them by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bftrainer import elastic
from bftrainer.elastic.loop import assembly
from bftrainer.elastic.loop.observers import EVENTS, NOTHING, Observers, StepObserver, TrainerFails
from bftrainer.elastic.members.group import Group
from bftrainer.elastic.process.channel import Orders
from bftrainer.elastic.state.training_state import Stateful, TrainingState
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.elastic.train.sampler import RankShare
from tests.support.agent_end import agent_of, until
from tests.support.two_ranks import on_two_ranks

DATA = torch.arange(8.0).reshape(8, 1)


class NoiseScale(StepObserver):
    """Gathers what a gradient noise scale is estimated from: the squared norms of this rank's own gradient
    and of the averaged one, and the samples of both. Its count of steps is a part of the training state."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.steps = 0
        self.rows: list[tuple[int, int, float, float]] = []

    def parts(self) -> Mapping[str, Stateful]:
        """Its own."""
        return {"noise scale": self}

    def state_dict(self) -> dict[str, Any]:
        """The steps so far."""
        return {"steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them over."""
        self.steps = state_dict["steps"]

    def step_begins(self, share: RankShare) -> None:
        """Keep the samples."""
        self._share = share

    def before_average(self, optimizer: str, part: MicroBatch) -> None:
        """Keep this rank's own gradient."""
        self._own = self._norm()

    def before_update(self, optimizer: str) -> None:
        """Keep the average."""
        self.rows.append((self._share.size, self._share.total, self._own, self._norm()))

    def step_taken(self, *, has_state: bool) -> None:
        """Count."""
        self.steps += 1

    def _norm(self) -> float:
        return sum(float(p.grad.square().sum()) for p in self._model.parameters() if p.grad is not None)


class Every(StepObserver):
    """Notes every event."""

    def __init__(self) -> None:
        self.events: list[str] = []


def noted(event: str) -> Any:
    def note(self: Every, *given: object, **more: object) -> Any:
        self.events.append(event)
        return getattr(StepObserver, event)(self, *given, **more)

    return note


for name in EVENTS:
    setattr(Every, name, noted(name))


def run_of(monkeypatch: pytest.MonkeyPatch, *observers: StepObserver, **options: Any) -> elastic.Run:
    monkeypatch.setattr(assembly, "observers_of", lambda checked: list(observers))
    model = nn.Linear(1, 1)
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3)
    return elastic.Run(model, sgd, DATA, batch_size=4, **{"epochs": 1, **options})


def train(run: elastic.Run) -> None:
    for x in run:
        run.backward(run.model(x).mean())
        run.step()


IN_A_STEP = [
    "step_begins",
    "before_compute",
    "before_backward",
    "before_average",
    "before_update",
    "after_update",
    "before_schedule",
    "step_taken",
    "step_ends",
]


def test_an_observer_is_told_of_every_event_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    every = Every()
    train(run_of(monkeypatch, every))
    start = ["parts", "enters", "members_changed", "loop_begins"]
    assert every.events == [*start, *IN_A_STEP, *IN_A_STEP, "work_ends", "loop_ends"]


def test_each_micro_batch_is_told_and_a_loop_that_is_left_ends_its_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every, ends = Every(), []
    monkeypatch.setattr(Every, "step_ends", lambda self, *, is_whole: ends.append(is_whole))
    run = run_of(monkeypatch, every, policy=elastic.FixedGlobal(8))
    for x in run:
        run.backward(run.model(x).mean())
        run.step()
        if not run.accumulating and run.position.step:
            break
    assert ends == [False] and every.events.count("before_average") == 2
    assert every.events.count("before_update") == 1 and every.events[-1] == "loop_ends"


def test_an_observer_can_estimate_gradient_noise_and_its_state_survives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    model = nn.Linear(1, 1)
    noise = NoiseScale(model)
    monkeypatch.setattr(assembly, "observers_of", lambda checked: [noise])
    run = elastic.Run(model, torch.optim.SGD(model.parameters(), lr=0.1), DATA, batch_size=4, epochs=1)
    train(run)
    assert [(size, total) for size, total, _, _ in noise.rows] == [(4, 4), (4, 4)]
    assert all(own == average > 0 for _, _, own, average in noise.rows), "one rank alone"
    saved = run._parts.state.snapshot()
    noise.steps = 0
    run._parts.state.restore(saved)
    assert noise.steps == 2


class Failing(StepObserver):
    """Fails the trainer."""


def fail(self: object, *given: object, **more: object) -> None:
    raise TrainerFails("another start would be as wrong")


@pytest.mark.parametrize("event", ["members_changed", "loop_begins", *IN_A_STEP, "work_ends"])
def test_a_trainer_fails_wherever_an_observer_has_it_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, event: str
) -> None:
    with agent_of(monkeypatch, tmp_path, samples=None) as (agent, orders):
        monkeypatch.setattr(Orders, "from_environment", lambda: orders)
        monkeypatch.setattr(Failing, event, fail, raising=False)
        run = run_of(monkeypatch, Failing())
        agent.say("regroup", generation=2, members=["a"], leaving=[])
        with pytest.raises(TrainerFails):
            train(run)
        until(lambda: any(m["type"] == "failed" for m in agent.hear()))
        (told,) = [m["reason"] for m in agent.hear() if m["type"] == "failed"]
        assert told == "another start would be as wrong"


class Number(StepObserver):
    """Compares a number with the other ranks'."""

    def __init__(self, number: int | None) -> None:
        self.number, self.asked = number, 0

    def digest(self, *, is_over: bool) -> int | None:
        """The number."""
        return self.number

    def differs(self, group: Group, working: Sequence[int]) -> None:
        """Count the calls."""
        self.asked += 1


@pytest.mark.parametrize(
    ("mine", "theirs", "asked"), [(3, 3, 0), (3, 4, 1), (None, None, 0), (-(2**61), 2**61, 1), (0, 0, 0)]
)
def test_only_an_observer_whose_digests_differ_is_asked_why(
    mine: int | None, theirs: int | None, asked: int
) -> None:
    def compared(group: Group) -> list[int]:
        numbers = [Number(mine if group.rank == 0 else theirs), Number(7)]
        observers = Observers([numbers[0], StepObserver(), numbers[1]])
        lowest = torch.tensor(observers.digests())
        group.all_reduce(lowest, torch.distributed.ReduceOp.MIN)
        observers.compare(lowest.tolist(), group, (0, 1))
        return [each.asked for each in numbers]

    assert list(on_two_ranks(compared)) == [[asked, 0]] * 2


def test_a_rank_without_a_state_takes_no_part_in_a_comparison() -> None:
    observers = Observers([Number(3)])
    assert observers.digests(takes_part=False) == [NOTHING, NOTHING]
    observers.compare([NOTHING, NOTHING], Group(1, 0, 2), (0, 1))


def test_what_observes_nothing_costs_nothing() -> None:
    observers = Observers([StepObserver(), StepObserver()])
    assert not EVENTS & vars(observers).keys() and observers.digests() == []
    observers.enters(TrainingState.__new__(TrainingState))


def test_a_run_among_others_compares_states_and_watches_the_scripts_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def made() -> elastic.Run:
        model = nn.Linear(1, 1)
        sgd = torch.optim.SGD(model.parameters(), lr=1e-3)
        return elastic.Run(model, sgd, torch.ones(25, 1), batch_size=1, epochs=1)

    assert made()._parts.observers.digests() == [], "by hand there are no others"
    with agent_of(monkeypatch, tmp_path, samples=None) as (agent, orders):
        monkeypatch.setattr(Orders, "from_environment", lambda: orders)
        agent.say("regroup", generation=2, members=["a"], leaving=[])
        run, count = made(), 0
        with pytest.warns(UserWarning, match="variables of the script change .*: count"):
            for x in run:
                run.backward(run.model(x).mean())
                run.step()
                count += 1
        lowest, highest = run._parts.observers.digests(is_over=True)
    assert lowest == -highest != NOTHING and count == 25
