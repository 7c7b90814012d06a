"""What differs between the states of two ranks is found, and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from bftrainer.elastic.checks.comparison import Comparison
from bftrainer.elastic.loop.observers import ReplicasDiffer
from bftrainer.elastic.members.group import Group
from bftrainer.elastic.state.leaves import leaves_of, sample
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.state.training_state import TrainingState
from tests.support.two_ranks import on_two_ranks


class Own:
    def __init__(self) -> None:
        self.count = 3
        self.best: dict[str, torch.Tensor] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "nested": [{"x": torch.ones(2)}], "text": "a", "best": self.best}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.count = state_dict["count"]


def made() -> TrainingState:
    generator = torch.Generator().manual_seed(0)
    conv = torch.nn.Conv2d(3, 8, 3)
    model = torch.nn.Sequential(conv, torch.nn.BatchNorm2d(8), torch.nn.Linear(40, 50))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.register_buffer("scale", torch.ones(3))
    model.register_buffer("spectrum", torch.ones(3, dtype=torch.complex64))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for p in model.parameters():
        with torch.no_grad():
            p.copy_(torch.randn(p.shape, generator=generator))
        p.grad = torch.randn(p.shape, generator=generator)
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    return TrainingState({"model": model, "optimizer": optimizer, "scheduler": scheduler, "own": Own()})


def entered(state: TrainingState, every: int, may_differ: tuple[str, ...] = ()) -> Comparison:
    comparison = Comparison(every, may_differ)
    comparison.enters(state)
    return comparison


def found(
    change: Callable[[Any], object],
    may_differ: tuple[str, ...] = (),
    also: Callable[[Any], object] = lambda state: None,
) -> list[str]:
    """What two ranks are told when rank 1's state is changed so, rank 0's by `also`; nothing if their digests
    are the same."""

    def compared(group: Group) -> str:
        state = made()
        (change if group.rank == 1 else also)(state)
        comparison = entered(state, 10, may_differ)
        table = torch.zeros(2, dtype=torch.int64)
        table[group.rank] = comparison.digest(is_over=True) or 0
        group.all_reduce(table)
        if table[0] == table[1]:
            return ""
        try:
            comparison.differs(group, (0, 1))
        except ReplicasDiffer as error:
            return str(error)
        return "rounding"

    return list(on_two_ranks(compared))


def edit(part: str, name: str, by: Callable[[torch.Tensor], Any]) -> Callable[[Any], object]:
    def change(state: TrainingState) -> None:
        tensor = state.parts[part].state_dict()[name]
        with torch.no_grad():
            tensor.view(-1)[0] = by(tensor.view(-1)[0])

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (edit("model", "2.weight", lambda x: x + 1.0), "model.2.weight is "),
        (edit("model", "scale", lambda x: x * 1.1), "model.scale is 1 on rank 0, 1.1"),
        (edit("model", "2.bias", lambda x: float("nan")), "model.2.bias is "),
        (edit("model", "spectrum", lambda x: x + 2j), "model.spectrum is 0 on rank 0, 2 on"),
        (lambda s: s.parts["optimizer"].param_groups[0].update(lr=0.1), "lr is 0.01 on rank 0, 0.1 on"),
        (
            lambda s: setattr(s.parts["scheduler"], "last_epoch", 1),
            "scheduler.last_epoch is 0 on rank 0, 1 on rank 1",
        ),
        (lambda s: setattr(s.parts["own"], "count", 4), "own.count is 3 on rank 0, 4 on rank 1"),
        (lambda s: s.parts["optimizer"].state.clear(), "more entries differ"),
    ],
)
def test_a_difference_is_named_on_both_ranks(change: Any, words: str) -> None:
    one, other = found(change)
    assert one == other
    assert words in one and one.endswith("(bftrainer explain BFT-188)")


def test_what_may_differ_does() -> None:
    assert found(lambda state: None) == ["", ""]
    statistics = edit("model", "1.running_mean", lambda x: x + 1.0)
    assert found(statistics) == ["", ""], "statistics of normalisation layers are each node's own"
    assert found(edit("model", "scale", lambda x: 2.0), ("model.sc*",)) == ["", ""]
    assert found(edit("model", "2.weight", lambda x: x * (1.0 + 1e-6))) == ["rounding"] * 2


def test_a_copy_of_the_best_weights_has_statistics_of_each_nodes_own() -> None:
    def keep(name: str, by: float) -> Callable[[TrainingState], object]:
        def change(state: TrainingState) -> None:
            edit("model", name, lambda x: x + by)(state)
            copied = {key: value.clone() for key, value in state.parts["model"].state_dict().items()}
            state.parts["own"].best = {f"module.{key}": value for key, value in copied.items()}
            edit("model", name, lambda x: x - by)(state)

        return change

    assert found(keep("1.running_var", 1.0), also=keep("1.running_var", 0.0)) == ["", ""]
    assert "own.best.module.2.bias is" in found(keep("2.bias", 1.0), also=keep("2.bias", 0.0))[0]


def test_states_are_compared_soon_after_a_change_of_nodes_and_at_the_end() -> None:
    state = made()

    def compared(every: int, steps: range, is_over: bool = False) -> list[int]:
        comparison = entered(state, every)
        state.position = Position(step=7)
        comparison.members_changed(2)
        found = []
        for step in steps:
            state.position = Position(step=step)
            found += [step] if comparison.digest(is_over=is_over) is not None else []
        return found

    assert compared(100, range(7, 250)) == [9, 17, 37, 100, 200]
    assert compared(100, range(20, 22), is_over=True) == [20, 21]
    assert compared(0, range(7, 250)) == compared(0, range(7, 250), is_over=True) == []


def test_an_optimiser_that_the_run_does_not_have_is_found_when_it_steps() -> None:
    state = made()
    comparison = entered(state, 10)
    other = torch.nn.Parameter(torch.ones(3))
    other.grad = torch.ones(3)
    lasting = torch.optim.SGD([other], lr=0.5)
    before = comparison.digest(is_over=True)
    for step in range(1, 20):
        state.position = Position(step=step)
        inner = torch.optim.SGD([other], lr=0.5)  # as of a loop within the step
        for _ in range(2):
            inner.step()
        if step == 10:
            assert comparison.digest(is_over=True) == before
        if step >= 10:
            lasting.step()
    assert comparison.digest(is_over=True) != before
    outside = [name for name in comparison._sample().names if "outside" in name]
    assert outside == ["parameter 0 of SGD no. 1 outside of the run"]
    assert len(comparison._others) <= 2, "those that are gone are forgotten"


def test_what_a_spectral_norm_iterates_is_each_nodes_own() -> None:
    old = torch.nn.utils.spectral_norm(torch.nn.Linear(4, 4))
    new = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(4, 4))
    model = torch.nn.Sequential(old, new)
    model.register_buffer("mask", torch.ones(2))
    names = [leaf.name for leaf in leaves_of({"model": model})]
    assert [name for name in names if "_u" in name or "_v" in name] == []
    assert "model.mask" in names


def test_few_elements_of_every_tensor_are_looked_at() -> None:
    taken = sample(leaves_of(made().parts))
    assert max(taken.sizes) == 64
    assert len(taken.names) == len(set(taken.names))
    assert [name for name in taken.names if name.startswith("own")] == ["own.count", "own.nested[0].x"]
