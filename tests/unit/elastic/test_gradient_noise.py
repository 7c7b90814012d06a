"""Gradient noise, from gradients whose noise is known."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bftrainer import elastic
from bftrainer.elastic.adaptive.gradients import Preconditioner, dense, squared_norm
from bftrainer.elastic.adaptive.noise import ENOUGH, LARGEST, NoiseAverage, NoiseEstimate, of_replicas, of_two
from bftrainer.elastic.members.group import Group
from bftrainer.elastic.train import average
from bftrainer.elastic.train.trainable import Trainable
from bftrainer.elastic.train.trained import ONE, trained
from tests.support.ddp_of_pytorch import needs_ddp
from tests.support.two_ranks import on_two_ranks

SIZES = st.integers(1, 1000)
VALUES = st.floats(1e-3, 1e3)


@given(VALUES, VALUES, SIZES, SIZES)
def test_two_gradients_give_what_they_are_expected_to(sqr: float, var: float, n_a: int, n_b: int) -> None:
    """With the expected norms of two independent gradients, both figures come out."""
    found = of_two(sqr + var / n_a, sqr + var / n_b, sqr, n_a, n_b)
    assert (found.sqr, found.var) == (pytest.approx(sqr), pytest.approx(var, rel=1e-6))


@given(VALUES, VALUES, st.lists(SIZES, min_size=2, max_size=8))
def test_replicas_with_any_shares_give_what_they_are_expected_to(
    sqr: float, var: float, shares: list[int]
) -> None:
    total = sum(shares)
    small = sum(n / total * (sqr + var / n) for n in shares)
    found = of_replicas(small, sqr + var / total, len(shares), total)
    assert found.sqr == pytest.approx(sqr, rel=1e-6, abs=1e-6 * var)
    assert found.var == pytest.approx(var, rel=1e-6, abs=1e-6 * sqr * total)


@given(VALUES, VALUES, st.lists(st.integers(1, 64), min_size=1, max_size=50))
def test_an_average_of_equal_estimates_is_what_they_are(sqr: float, var: float, batches: list[int]) -> None:
    """It begins at 0, and yet its bias is corrected from the first on."""
    found = NoiseAverage()
    for batch in batches:
        found = found.taken(NoiseEstimate(sqr, var, batch), 8)
    assert (found.sqr, found.var) == (pytest.approx(sqr), pytest.approx(var))
    assert 0 < found.weight < 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e31])
def test_what_is_not_finite_is_left_out(bad: float) -> None:
    before = NoiseAverage().taken(NoiseEstimate(1.0, 2.0, 8), 8)
    assert before.taken(NoiseEstimate(bad, 2.0, 8), 8) == before
    assert before.taken(NoiseEstimate(1.0, bad, 8), 8) == before


def test_nothing_follows_from_little_or_from_a_gradient_that_is_lost_in_its_noise() -> None:
    assert NoiseAverage(1.0, 2.0, ENOUGH / 2).phi is None
    assert NoiseAverage(1.0, 2.0, 0.5).phi == 2.0
    assert NoiseAverage(-1.0, 2.0, 0.5).phi is None
    assert NoiseAverage(0.0, 2.0, 0.5).phi is None
    assert NoiseAverage(1e-300, 2.0, 0.5).phi == LARGEST, "which single precision holds"
    assert NoiseAverage(1.0, -2.0, 0.5).phi == 0.0, "no noise at all"


def test_less_of_the_past_counts_once_the_learning_rate_has_changed() -> None:
    old = NoiseAverage(1.0, 1.0, 1.0)
    new = NoiseEstimate(3.0, 3.0, 800)
    assert old.forgotten().taken(new, 8).sqr > old.taken(new, 8).sqr + 0.3
    assert old.forgotten().phi == old.phi


class Centres(torch.nn.Module):
    """A quadratic: the mean of (w - x)^2 / 2, whose gradient is w - x, so that its noise is that of x."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.w - x).square().sum(1).mean() / 2


SIZE, DEVIATION = 400, 3.0


def points(count: int = 4096) -> torch.Tensor:
    """x of mean 1 in all directions: mu^2 is their number, and sigma^2 nine times as much."""
    return 1 + DEVIATION * torch.randn(count, SIZE, generator=torch.Generator().manual_seed(1))


def measured(**options: Any) -> float:
    """The noise scale that a run in one process measures on the quadratic. It hardly moves."""
    model = Centres(SIZE)
    run = elastic.Run(
        model,
        torch.optim.SGD(model.parameters(), lr=1e-9),
        torch.utils.data.TensorDataset(points()),
        batch_size=options.pop("at_once", 16),
        policy=elastic.Adaptive(initial=16, max=16),
        epochs=2,
        **options,
    )
    for (x,) in run:
        run.backward(run.model(x))
        run.step()
    adapting = run._parts.adapting
    assert adapting is not None
    assert adapting.live.phi is not None
    return adapting.live.phi


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"at_once": 8},
        {"at_once": 5},
        pytest.param({"ddp": True}, marks=needs_ddp),
        {"scaler": torch.amp.GradScaler("cpu", init_scale=8.0)},
    ],
    ids=["consecutive steps", "halves", "parts", "ddp", "scaled"],
)
def test_a_run_measures_the_noise_of_a_quadratic(options: dict[str, Any]) -> None:
    assert measured(**options) == pytest.approx(DEVIATION**2, rel=0.1)


class Split(torch.nn.Module):
    """Two layers, of which DDP makes two buckets."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Centres(3), Centres(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one(x[:, :3]) + self.two(x[:, 3:])


@pytest.mark.parametrize(
    "ddp", [False, pytest.param({"bucket_cap_mb": 1e-6}, marks=needs_ddp)], ids=["flat", "ddp"]
)
def test_ranks_show_their_own_gradients_and_sum_numbers(ddp: Any) -> None:
    x = torch.arange(15.0).reshape(3, 5)
    shares = {0: x[:2], 1: x[2:]}

    def norms(group: Group) -> tuple[float, float]:
        net = Split()
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        averaging = average.chosen(trained(net, sgd, None), ddp, True, Trainable({"": net}, 0))
        averaging.sums = torch.tensor([0.0, 1.0 + group.rank])

        def watch(parameters: Any, gradients: Any, weight: float) -> None:
            assert averaging.sums is not None
            averaging.sums[0] += weight * squared_norm([g for _, g in dense(parameters, gradients)])

        averaging.watch = watch
        averaging.begin(group, len(shares[group.rank]) / 3)
        with averaging.micro_batch(last=True):
            averaging.model(shares[group.rank]).backward()
        averaging.finish(ONE)
        first, second = averaging.sums.tolist()
        return first, second

    expected = sum(len(mine) / 3 * mine.mean(0).square().sum().item() for mine in shares.values())
    for found in on_two_ranks(norms):
        assert found == (pytest.approx(expected), 3.0)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad])
def test_gradients_are_preconditioned_as_the_optimiser_steps_them(kind: Any) -> None:
    """A step is the learning rate times the pre-conditioned gradient, where there is no momentum."""
    torch.manual_seed(0)
    w = torch.nn.Parameter(torch.zeros(5))
    optimizer = kind([w], lr=1.0, **({"betas": (0.0, 0.9)} if kind is torch.optim.Adam else {}))
    conditioned = Preconditioner(optimizer)
    for _ in range(3):
        w.grad = torch.rand(5) + 0.5
        before = w.detach().clone()
        optimizer.step()
        conditioned.stepped()
    (found,) = conditioned.apply([(w, w.grad)])
    torch.testing.assert_close(found, before - w.detach())


def test_sgd_leaves_gradients_as_they_are() -> None:
    w = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([w], lr=1.0, momentum=0.9)
    conditioned = Preconditioner(optimizer)
    w.grad = torch.tensor([1.0, 2.0, 2.0])
    optimizer.step()
    conditioned.stepped()
    assert squared_norm(conditioned.apply([(w, w.grad)])).item() == pytest.approx(9.0)
    assert squared_norm([]).item() == 0.0


def test_norms_of_half_precision_are_not_rounded_to_it() -> None:
    values = torch.rand(1000, generator=torch.Generator().manual_seed(0)).bfloat16()
    expected = values.double().square().sum().item()
    assert squared_norm([values]).item() == pytest.approx(expected, rel=1e-5)
