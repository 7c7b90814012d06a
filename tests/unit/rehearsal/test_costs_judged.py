"""What partial back-propagation saves and costs is told from the steps' costs, without the first ones."""

from __future__ import annotations

import pytest

from bftrainer.rehearsal.costs.judged import FIRST, StepCost, compute, fewer_steps, fewer_workers, loss, parts


def costs(steps: int = 40, workers: int = 2) -> list[StepCost]:
    """Rank r has role j = (r + step) mod 2 + 1 of 2, whose backward pass takes j seconds; steps that count
    not take an hour. A loss is the number of its step."""
    return [
        StepCost(
            step=step,
            rank=rank,
            workers=workers,
            samples=3 if rank else 1,
            total=4,
            loss=float(step + rank),
            forward=1.0,
            backward=float((rank + step - 1) % workers + 1) if step > FIRST else 3600.0,
            saved=10 * ((rank + step - 1) % workers + 1) if step % 4 == 0 else None,
            computed=100 * ((rank + step - 1) % workers + 1),
        )
        for step in range(1, steps + 1)
        for rank in range(workers)
    ]


def test_each_part_has_its_own_costs() -> None:
    first, second = parts(costs())
    assert (first.name, first.backward, first.saved, first.gradient) == ("1/2", 1.0, 10, 400)
    assert (second.name, second.backward, second.saved, second.gradient) == ("2/2", 2.0, 20, 800)


def test_compute_is_that_of_all_workers() -> None:
    assert compute(costs(FIRST + 4)) == pytest.approx(2 * 1.0 + 1.0 + 2.0)


@pytest.mark.parametrize(("upto", "mean"), [(40, 38.5 + 0.75), (20, 19.0 + 0.75)])
def test_the_loss_is_the_mean_over_the_last_samples(upto: int, mean: float) -> None:
    assert loss(costs(), upto) == pytest.approx(mean)


def test_as_much_compute_is_fewer_steps_or_fewer_workers() -> None:
    assert fewer_steps(100, 0.6) == 60
    assert fewer_steps(100, 1.1) == 100
    assert [fewer_workers(k, 0.7) for k in (2, 4, 8)] == [1, 3, 6]
