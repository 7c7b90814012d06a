"""Averaged gradients are those of the global batch, however large the ranks' shares of it are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from bftrainer.elastic.members.group import Group, GroupBroken
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.train import average
from bftrainer.elastic.train.batches import IndexedBatches
from bftrainer.elastic.train.policy import FixedGlobal
from bftrainer.elastic.train.source import Source
from bftrainer.elastic.train.trainable import Trainable
from bftrainer.elastic.train.trained import ONE, trained
from tests.support.ddp_of_pytorch import WITHOUT_AND_WITH
from tests.support.two_ranks import on_two_ranks

BATCH, AT_ONCE = 7, 3
DATA = torch.arange(20.0).reshape(20, 1)


class Net(torch.nn.Module):
    """One parameter that is used, one that never is."""

    def __init__(self) -> None:
        super().__init__()
        self.used = torch.nn.Linear(1, 2)
        self.unused = torch.nn.Linear(1, 1)
        with torch.no_grad():
            for p in self.parameters():
                p.fill_(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def batches(policy: FixedGlobal, place: int | None, size: int, least: int = 1) -> IndexedBatches:
    source = Source(DATA, AT_ONCE, None, 0)
    found = IndexedBatches(source, policy, epochs=None, budget=None, stand_in=False, least=least)
    found.enter(Position(), place, size)
    return found


@pytest.mark.parametrize("ddp", WITHOUT_AND_WITH)
@pytest.mark.parametrize(
    ("batch", "least", "only"), [(BATCH, 1, None), (1, 1, None), (1, 1, 0), (3, 2, None), (3, 2, 0)]
)  # with 1 or 3, rank 1 has none
def test_two_ranks_have_the_gradient_of_one(
    monkeypatch: pytest.MonkeyPatch, ddp: bool, batch: int, least: int, only: int | None
) -> None:
    if only is not None:
        reduced = Group.begin_all_reduce
        monkeypatch.setattr(
            Group,
            "begin_all_reduce",
            lambda self, tensor, *op: reduced(self, tensor, *op) if tensor.dtype != torch.float32 else 1 / 0,
        )

    def gradients(group: Group) -> list[torch.Tensor | None]:
        net = Net()
        own = batches(FixedGlobal(batch), group.rank, group.size, least)
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        averaging = average.chosen(trained(net, sgd, None), ddp, True, Trainable({"": net}, 0))
        mine = own.share(Position())
        averaging.begin(group, mine.weight, only)
        parts = own.parts(mine)
        if not parts:
            averaging.absent()
        for part in parts:
            with averaging.micro_batch(last=part.last):
                x = own.fetch(0, part)
                (averaging.model(x).square().mean() * part.weight).backward()
        averaging.finish(ONE)
        return [p.grad for p in net.parameters()]

    alone, source = Net(), Source(DATA, BATCH, None, 0)
    alone(source.fetch(source.indices(0, 0, batch))).square().mean().backward()
    for found in on_two_ranks(gradients):
        for got, expected in zip(found, (p.grad for p in alone.parameters()), strict=True):
            assert (got is None) == (expected is None)
            if got is not None and expected is not None:
                torch.testing.assert_close(got, expected)


class Complex(torch.nn.Module):
    """A real weight, and complex ones, as of a Fourier neural operator; the last has no gradient. The complex
    ones come after an odd count of real numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(0.5))
        self.spectrum = torch.nn.Parameter(torch.tensor([[1 + 2j, 0.5 - 1j], [3j, 2 + 0j]]))
        self.unused = torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a real figure for each sample."""
        return torch.view_as_real((x * (1 - 2j)) @ self.spectrum[:1]).sum(-1).sin() * self.scale


@pytest.mark.parametrize("ddp", WITHOUT_AND_WITH)
def test_complex_gradients_are_averaged_whole(ddp: bool) -> None:
    def gradients(group: Group) -> list[torch.Tensor | None]:
        net = Complex()
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        averaging = average.chosen(trained(net, sgd, None), ddp, True, Trainable({"": net}, 0))
        averaging.begin(group, 0.5)
        with averaging.micro_batch(last=True):
            averaging.model(DATA[group.rank :: 2] / 20).square().mean().backward()
        averaging.finish(ONE)
        return [p.grad for p in net.parameters()]

    alone = Complex()
    alone(DATA / 20).square().mean().backward()
    expected = [p.grad for p in alone.parameters()]
    assert expected[1] is not None and expected[1].imag.any()
    for found in on_two_ranks(gradients):
        assert found[2] is None
        torch.testing.assert_close(found[:2], expected[:2])


class Either(torch.nn.Module):
    """One of two layers is used, by turns."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(2))

    def forward(self, x: torch.Tensor, use: int) -> torch.Tensor:
        return self.layers[use](x)


@pytest.mark.parametrize("ddp", WITHOUT_AND_WITH)
@pytest.mark.parametrize("before", ["alone", "given up"])
def test_what_an_earlier_step_used_counts_no_more_in_another_group(ddp: bool, before: str) -> None:
    def gradients(group: Group) -> list[torch.Tensor | None]:
        net = Either()
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        averaging = average.chosen(trained(net, sgd, None), ddp, True, Trainable({"": net}, 0))
        averaging.begin(Group(0, 0, 1) if before == "alone" else Group(0, group.rank, 2), 1.0)
        with averaging.micro_batch(last=before == "alone"):
            averaging.model(DATA, use=0).square().mean().backward()
        if before == "alone":
            averaging.finish(ONE)
            assert net.layers[0].weight.grad is not None
        sgd.zero_grad()
        averaging.begin(group, 0.5)
        with averaging.micro_batch(last=True):
            averaging.model(DATA[group.rank :: 2], use=1).square().mean().backward()
        averaging.finish(ONE)
        return [layer.weight.grad for layer in net.layers]

    for found in on_two_ranks(gradients):
        assert found[0] is None
        assert found[1] is not None


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_weights_of_micro_batches_make_a_mean_of_the_share(place: int) -> None:
    own = batches(FixedGlobal(BATCH * 3), place, 3)
    parts = own.parts(own.share(Position()))
    assert len(parts) == 3
    assert sum(part.weight for part in parts) == pytest.approx(1.0)
    assert [part.first for part in parts] == [True, False, False]
    assert [part.last for part in parts] == [False, False, True]


def test_a_rank_without_a_state_has_no_samples_and_a_stand_in_none_of_its_own() -> None:
    shadow = batches(FixedGlobal(BATCH), None, 2)
    assert shadow.parts(shadow.share(Position())) == []
    source = Source(DATA, AT_ONCE, None, 0)
    needy = IndexedBatches(source, FixedGlobal(1), epochs=None, budget=None, stand_in=True)
    needy.enter(Position(), 1, 2)
    (part,) = needy.parts(needy.share(Position()))
    assert (part.start, part.stop) == (0, 1), "the step's last sample"
    needy = IndexedBatches(source, FixedGlobal(3), epochs=None, budget=None, stand_in=True, least=2)
    needy.enter(Position(), 1, 2)
    (part,) = needy.parts(needy.share(Position()))
    assert (part.start, part.stop, part.weight) == (1, 3, 1.0), "as many as the model needs"


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("batch", [4, 1])  # with 1, rank 1 has no sample
def test_sparse_gradients_are_averaged_and_stay_sparse(tied: bool, batch: int) -> None:
    words = torch.tensor([[1, 2], [2, 3], [5, 5], [3, 7]])[:batch]

    def embedding() -> torch.nn.Embedding:
        made = torch.nn.Embedding(9, 2, sparse=True)
        torch.nn.init.constant_(made.weight, 0.5)
        return made

    def loss(net: torch.nn.Embedding, x: torch.Tensor) -> torch.Tensor:
        found = net(x).square().mean()
        return found + net.weight.square().mean() if tied else found

    def gradient(group: Group) -> torch.Tensor | None:
        net = embedding()
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        averaging = average.chosen(trained(net, sgd, None), False, True, Trainable({"": net}, 0))
        mine = words[group.rank :: group.size]
        averaging.begin(group, len(mine) / batch)
        if len(mine):
            loss(net, mine).backward()
        averaging.finish(ONE)
        return net.weight.grad

    alone = embedding()
    loss(alone, words).backward()
    expected = alone.weight.grad
    for found in on_two_ranks(gradient):
        assert found is not None and expected is not None
        assert found.is_sparse is expected.is_sparse is not tied
        torch.testing.assert_close(found.to_dense(), expected.to_dense())
        if not tied:
            rows = [one.coalesce().indices()[0].tolist() for one in (found, expected)]
            assert rows[0] == rows[1]


def of_one_loss(
    meanwhile: Callable[[Group, dict[str, torch.nn.Linear]], object],
) -> tuple[dict[str, float], dict[str, float]]:
    """What two ranks have as gradients of a weight of 1 for each of two optimisers of one loss, 3 and 5
    times their samples 2 and 4, where `meanwhile` happens when the first has stepped."""

    def gradients(group: Group) -> dict[str, float]:
        models = {name: torch.nn.Linear(1, 1, bias=False) for name in ("first", "second")}
        sgd = {name: torch.optim.SGD(one.parameters(), lr=1.0) for name, one in models.items()}
        averaging = average.chosen(trained(models, sgd, None), False, True, Trainable(models, 0))
        averaging.begin(group, 0.5)
        x = torch.tensor([[2.0], [4.0]])[group.rank : group.rank + 1]
        (3.0 * models["first"](x) + 5.0 * models["second"](x)).sum().backward()
        averaging.finish("first")
        found = {"first": models["first"].weight.grad.item()}
        sgd["first"].step()
        sgd["first"].zero_grad()
        meanwhile(group, models)
        if group.failure == "closed":
            return found
        averaging.finish("second")
        return found | {"second": models["second"].weight.grad.item()}

    return on_two_ranks(gradients)


def dies(group: Group, models: dict[str, torch.nn.Linear]) -> None:
    if group.rank == 1:
        group.close()


def test_gradients_of_one_loss_for_two_optimisers_survive_a_loss_between_their_steps() -> None:
    left, lost = of_one_loss(dies)
    assert left == {"first": 9.0, "second": 15.0}
    assert lost == {"first": 9.0}


def test_they_are_those_of_the_global_batch() -> None:
    assert of_one_loss(lambda *_: None) == ({"first": 9.0, "second": 15.0},) * 2


def test_what_a_script_does_to_them_between_the_steps_counts() -> None:
    def halves(group: Group, models: dict[str, torch.nn.Linear]) -> None:
        if group.rank == 1:
            models["second"].weight.grad.mul_(0.5)

    assert of_one_loss(halves) == ({"first": 9.0, "second": 10.0},) * 2


def test_what_was_changed_before_a_loss_cannot_be_averaged() -> None:
    def computes_anew(group: Group, models: dict[str, torch.nn.Linear]) -> None:
        models["second"].weight.grad = torch.ones(1, 1)
        dies(group, models)

    with pytest.raises(GroupBroken):
        of_one_loss(computes_anew)
