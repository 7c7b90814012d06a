"""The samples of each step, on any number of ranks."""

from __future__ import annotations

from bftrainer.elastic.frameworks.even_batches import EvenBatches
from bftrainer.elastic.frameworks.fixed_batch import cut

LENGTH, TOTAL = 50, 12


def steps(size: int, *, at_most: int = 4, epoch: int = 0, first: int = 0) -> list[set[int]]:
    """What all ranks together take in each step of an epoch."""
    own = cut(TOTAL, size, at_most)
    ranks = [EvenBatches(LENGTH, TOTAL, own, rank, shuffle=True, seed=1) for rank in range(size)]
    found: list[set[int]] = []
    for batches in ranks:
        batches.go_on(epoch, first)
        for number, samples in enumerate(batches):
            if number // own.micro_batches == len(found):
                found.append(set())
            found[number // own.micro_batches] |= set(samples)
            assert len(samples) == own.samples
    return found


def test_a_step_has_the_same_samples_on_any_number_of_ranks() -> None:
    assert steps(1) == steps(2) == steps(3) == steps(4) == steps(2, at_most=12)
    used = set().union(*steps(1))
    assert len(steps(1)) == 4 and len(used) == 4 * TOTAL
    assert steps(1, epoch=1) != steps(1)


def test_an_epoch_that_goes_on_has_the_steps_that_are_left() -> None:
    assert steps(3, epoch=2, first=3) == steps(1, epoch=2)[3:]


def test_the_epochs_that_follow_begin_at_their_start() -> None:
    batches = EvenBatches(LENGTH, TOTAL, cut(TOTAL, 1), 0, shuffle=False, seed=0)
    batches.go_on(0, 3)
    assert len(list(batches)) == 1
    batches.set_epoch(1)
    assert len(list(batches)) == len(batches) == 4
