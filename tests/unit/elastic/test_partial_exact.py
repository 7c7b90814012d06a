"""Partial back-propagation: each worker's part of the gradient is exact, and so is the mean of all parts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import TensorDataset

from bftrainer import elastic
from bftrainer.elastic.loop.peers import SingleProcess
from bftrainer.elastic.members.group import Group
from bftrainer.elastic.partial import trial
from bftrainer.elastic.partial.exchange import cuts, sent, sum_prefixes
from bftrainer.elastic.partial.order import Completed, GradientOrder, ordered, role
from bftrainer.elastic.partial.steps import TRIALS, PartialSteps
from bftrainer.elastic.partial.trial import TrialWatch
from bftrainer.elastic.state.training_state import TrainingState
from bftrainer.elastic.train.policy import FixedGlobal
from bftrainer.elastic.train.sampler import RankShare
from bftrainer.elastic.train.schedule import Schedule
from bftrainer.elastic.train.trainable import Trainable
from bftrainer.elastic.train.trained import ONE, trained
from bftrainer.elastic.train.update import Update
from tests.support.ddp_of_pytorch import needs_ddp
from tests.support.two_ranks import on_two_ranks

# orders and roles


@given(st.integers(1, 9), st.integers(0, 10**6))
def test_each_step_has_all_roles_and_each_worker_all_in_turn(workers: int, step: int) -> None:
    everyone = set(range(1, workers + 1))
    assert {role(place, step, workers) for place in range(workers)} == everyone
    assert {role(0, step + i, workers) for i in range(workers)} == everyone


def completed(*names: str, never: tuple[str, ...] = ()) -> list[Completed]:
    """Parameters in the order of completion, each a second after the one before."""
    count = len(names) + len(never)
    found = [Completed(name, i, i + 1.0) for i, name in enumerate(names)]
    return found + [Completed(name, count, count) for name in never]


def test_a_module_is_never_divided_and_time_says_where_to_cut() -> None:
    order = ordered(completed(".c.weight", ".b.weight", ".c.bias", ".a.weight"), "time")
    assert order.names == (".b.weight", ".c.weight", ".c.bias", ".a.weight")
    assert order.ends == (0.5, 0.75, 0.75, 1.0)
    assert [order.count(j / 4) for j in (1, 2, 3, 4)] == [1, 1, 3, 4]


def test_what_gets_no_gradient_comes_last_and_keeps_nothing_back() -> None:
    order = ordered(completed(".b.weight", ".a.weight", never=(".b.unused",)), "modules")
    assert order.names == (".b.weight", ".a.weight", ".b.unused")
    assert order.ends == (0.5, 1.0, 1.0)


def test_names_of_modules_begin_parts() -> None:
    found = completed(".fc.w", ".l2.0.w", ".l2.down.w", ".l1.w", ".stem.w")
    order = ordered(found, ["l1", "l2"])
    assert order.ends == (1 / 3, 1 / 3, 1 / 3, 2 / 3, 1.0)
    with pytest.raises(ValueError, match="'l7'"):
        ordered(found, ["l7"])


# the exchange


@given(st.integers(0, 30), st.data())
def test_the_numbers_that_travel_are_those_of_parts(total: int, data: st.DataObject) -> None:
    ranks = data.draw(st.integers(2, 5))
    lengths = data.draw(st.lists(st.integers(0, total), min_size=ranks, max_size=ranks))
    ends = cuts(total, ranks)
    owner = [max(r for r in range(ranks) if ends[r] <= i) for i in range(total)]
    expected = sum(owner[i] != r for r in range(ranks) for i in range(lengths[r])) + (ranks - 1) * total
    assert sent(lengths, total) == expected / ranks


@pytest.mark.parametrize("lengths", [(7, 7), (7, 2), (0, 7), (3, 5)])
def test_prefixes_are_summed_alike_on_all_ranks(lengths: tuple[int, int]) -> None:
    numbers = torch.rand(2, 7, generator=torch.Generator().manual_seed(1))

    def work(group: Group) -> torch.Tensor:
        own = numbers[group.rank, : lengths[group.rank]].clone()
        return sum_prefixes(group, own, lengths, 7)

    expected = torch.zeros(7)
    for rank, length in enumerate(lengths):
        expected[:length] += numbers[rank, :length]
    for found in on_two_ranks(work):
        assert torch.equal(found, expected)


# models


def mlp() -> torch.nn.Module:
    layers = [torch.nn.Linear(8, 8) for _ in range(4)]
    return torch.nn.Sequential(*(m for each in layers for m in (each, torch.nn.ReLU())))


class Residual(torch.nn.Module):
    """Two convolutions with batch normalisation, and a branch past them."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (torch.nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.norm, self.past = torch.nn.BatchNorm2d(4), torch.nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.two(self.norm(self.one(x)).relu()) + self.past(x))


class ResNet(torch.nn.Sequential):
    def __init__(self) -> None:
        super().__init__(torch.nn.Conv2d(1, 4, 1), *(Residual() for _ in range(3)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.view(-1, 1, 2, 4)).flatten(1)


class Language(torch.nn.Module):
    """A transformer whose output layer has the embedding's weights; perhaps one block for all, or
    checkpoints."""

    def __init__(self, *, shared: bool = False, reentrant: bool | None = None) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.embed, self.head = torch.nn.Embedding(8, 8), torch.nn.Linear(8, 8, bias=False)
        self.head.weight = self.embed.weight
        blocks = [torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True) for _ in range(3)]
        self.blocks = torch.nn.ModuleList([blocks[0]] if shared else blocks)
        self.order = [0, 0, 0] if shared else [0, 1, 2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.embed((x * 8).long().clamp(0, 7))
        for i in self.order:
            block = self.blocks[i]
            y = block(y) if self.reentrant is None else checkpoint(block, y, use_reentrant=self.reentrant)
        return self.head(y)


class Siamese(torch.nn.Module):
    """A tower that two views go through, which are independent of each other."""

    def __init__(self) -> None:
        super().__init__()
        self.tower = mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tower(x) * self.tower(x.flip(0))


MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "mlp": mlp,
    "resnet": ResNet,
    "tied": Language,
    "checkpointed": lambda: Language(reentrant=False),
    "siamese": Siamese,
}


def run_of(model: torch.nn.Module, **options: Any) -> elastic.Run:
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(24, 8))
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    return elastic.Run(model, sgd, data, batch_size=4, **{"partial": elastic.Partial(), **options})


def train(model: torch.nn.Module, **options: Any) -> GradientOrder:
    """The order that the trial steps of a run have found."""
    run = run_of(model, **options)
    for (x,) in run:
        run.backward(run.model(x).square().mean())
        run.step()
    order = run._parts.averaging._order
    assert order is not None
    return order


def gradients(model: torch.nn.Module, frozen: tuple[str, ...]) -> tuple[dict[str, torch.Tensor | None], int]:
    """Gradients by name, of a pass for which some parameters are frozen, and the bytes it has saved."""
    named = {f".{name}": p for name, p in model.named_parameters()}
    saved = dict[int, int]()

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    before = {name: value.clone() for name, value in model.state_dict().items()}
    for p in named.values():
        p.grad = None
    for name in frozen:
        named[name].requires_grad_(False)
    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = model(torch.rand(4, 8, generator=torch.Generator().manual_seed(2))).square().mean()
    loss.backward()
    for name in frozen:
        named[name].requires_grad_(True)
    model.load_state_dict(before)
    return {name: p.grad for name, p in named.items()}, sum(saved.values())


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("by", ["time", "modules"])
def test_a_part_is_bit_for_bit_the_full_gradient_of_it(kind: str, by: str) -> None:
    torch.manual_seed(0)
    model = MODELS[kind]()
    order = train(model, partial=elastic.Partial(by=by))
    assert {*order.names} == {f".{name}" for name, _ in model.named_parameters()}
    full, most = gradients(model, ())
    for j in (1, 2, 3, 4):
        count = order.count(j / 4)
        part, bytes_saved = gradients(model, order.names[count:])
        for name in order.names[:count]:
            assert part[name] is not None
            assert torch.equal(part[name], full[name]), name
        assert all(part[name] is None for name in order.names[count:])
        assert bytes_saved <= most
        if j == 1:
            assert bytes_saved < most or kind == "checkpointed"


def test_time_counts_from_the_beginning_of_the_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(trial, "_clock", lambda parameter: lambda: float(next(ticks)))
    model = mlp()
    watch, parameters = TrialWatch({"": model}), dict(model.named_parameters())
    watch.watch(parameters)
    loss = model(torch.randn(2, 8)).sum()
    watch.before_backward()
    loss.backward()
    assert sorted(s for _, s in watch.read(parameters)) == [1.0 + i for i in range(len(parameters))]


def test_tied_weights_are_complete_where_their_first_use_is() -> None:
    assert train(Language()).names[-1] == ".embed.weight"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: Language(shared=True), r"'blocks\.0' runs several times"),
        (lambda: Language(reentrant=True), r"'blocks\.0[\w.]*' is under reentrant checkpointing"),
    ],
)
def test_models_without_an_order_are_refused_by_name(
    model: Callable[[], torch.nn.Module], words: str
) -> None:
    with pytest.raises(RuntimeError, match=words):
        train(model())


# several workers


class Two(SingleProcess):
    """One of two workers that both have samples."""

    def __init__(self, group: Group) -> None:
        super().__init__(TrainingState({"model": mlp(), "optimizer": mlp()}), lambda: None)
        self.group, self.figures = group, dict[str, float]()

    size = property(lambda self: 2)
    working = property(lambda self: (0, 1))

    def report(self, metrics: Mapping[str, float], *, now: bool) -> None:
        self.figures |= metrics


@pytest.mark.parametrize("lr", ["share", "none"])
def test_a_parameters_mean_is_over_those_who_computed_it(lr: str) -> None:
    """In the step after an even number of others, rank 0 computes the last half, and rank 1 all."""
    data, weights = torch.rand(2, 3, 8, generator=torch.Generator().manual_seed(3)), (0.25, 0.75)

    def work(group: Group) -> tuple[dict[str, torch.Tensor], dict[str, float], dict[str, float]]:
        model = deepcopy(begun)
        what = trained(model, torch.optim.SGD(model.parameters(), lr=1.0), None)
        steps = PartialSteps(elastic.Partial(lr=lr, by="modules"), what, Trainable({"": model}, 0))
        update = Update(what, Schedule({}, None), None, None, FixedGlobal(6))
        peers = Two(group)
        steps.connect(update, peers)
        names = [f".{name}" for name, _ in model.named_parameters()]
        found = [[[float(len(names) - i), 1.0] for i in range(len(names))]] * TRIALS
        state = TrainingState({"model": model, "optimizer": what.optimizers[ONE]})
        steps.enters(state)
        steps.load_state_dict({"names": names, "watched": found})
        steps.step_begins(RankShare(0, 3, 6, state.position, 2))
        steps.begin(group, weights[group.rank])
        with steps.micro_batch(last=True):
            model(data[group.rank]).square().mean().backward()
        assert all(p.requires_grad for p in model.parameters())
        steps.finish(ONE)
        gradients = {name: p.grad for name, p in model.named_parameters()}
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        update.take(ONE, 0)
        moved = {
            name: ((before[name] - p) / gradients[name]).nanmean().item()
            for name, p in model.named_parameters()
        }
        return gradients, moved, peers.figures

    torch.manual_seed(0)  # once, for both: the ranks are threads of one process, with one generator
    begun = mlp()
    model = deepcopy(begun)
    alone: list[dict[str, torch.Tensor]] = []
    for x in data:
        model.zero_grad()
        model(x).square().mean().backward()
        alone.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    first, second = on_two_ranks(work)
    for name in first[0]:
        assert torch.equal(first[0][name], second[0][name])
        is_last = name.partition(".")[0] in ("4", "6")
        mean = sum(w * g[name] for w, g in zip(weights, alone, strict=True))
        torch.testing.assert_close(first[0][name], mean if is_last else alone[1][name])
        rate = 1.0 if is_last or lr == "none" else 0.75
        assert first[1][name] == pytest.approx(rate, abs=1e-3)
    total = 4 * (64 + 8)
    assert first[2]["partial.bytes_full"] == 4 * total
    assert (
        first[2]["partial.bytes"] == 4 * (total / 2 + total) / 2
    )  # rank 1 sends its first half, both a half


class Wrapped(torch.nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(3, 3, sparse=True)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        pytest.param(mlp, {"ddp": True}, "together with ddp", marks=needs_ddp),
        (mlp, {"average": False}, "average=False"),
        (mlp, {"policy": elastic.Adaptive(initial=4, max=8)}, "elastic.Adaptive"),
        (Wrapped, {}, "'words', which has sparse gradients"),
        (mlp, {"partial": True}, "no elastic.Partial"),
    ],
)
def test_what_does_not_go_together_is_refused(
    model: Callable[[], torch.nn.Module], options: dict[str, Any], words: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        run_of(model(), **options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "depth"}, "'time', 'modules'"),
        ({"by": []}, "one name"),
        ({"lr": "linear"}, "'share' or 'none'"),
        ({"warmup_steps": -1}, "warmup_steps=-1"),
    ],
)
def test_options_that_are_none_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        elastic.Partial(**options)
