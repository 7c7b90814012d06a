"""Whatever the ranks and the batches, every sample of an epoch is used once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.elastic.train.sampler import Position, micro_batches, share

COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@given(st.integers(1, 60), COUNTS, st.integers(1, 40), st.booleans(), st.integers(1, 200))
def test_each_sample_is_used_once_however_the_ranks_change(
    length: int, sizes: list[int], batch: int, per_node: bool, budget: int
) -> None:
    position, used = Position(), []
    for step in range(400):
        if position.samples >= budget:
            break
        size = sizes[step % len(sizes)]
        total = batch * size if per_node else batch
        all_ranks = [
            share(position, rank=r, size=size, batch=total, length=length, budget=budget) for r in range(size)
        ]
        assert len({s.after for s in all_ranks}) == 1
        assert sum(s.size for s in all_ranks) == all_ranks[0].total <= total
        assert max(s.size for s in all_ranks) - min(s.size for s in all_ranks) <= 1
        used += [(position.epoch, i) for s in all_ranks for i in range(s.start, s.stop)]
        position = all_ranks[0].after
        assert position.step == step + 1
    assert used == [divmod(i, length) for i in range(len(used))]
    assert position.samples == len(used) == min(budget, len(used))


@given(st.integers(1, 300), st.integers(1, 9), st.integers(1, 40))
def test_micro_batches_are_small_enough_equally_many_and_cover_the_share(
    batch: int, size: int, at_most: int
) -> None:
    shares = [share(Position(), rank=r, size=size, batch=batch, length=1000) for r in range(size)]
    cuts = [micro_batches(s, size, at_most) for s in shares]
    for mine, cut in zip(shares, cuts, strict=True):
        assert [i for a, b in cut for i in range(a, b)] == list(range(mine.start, mine.stop))
        assert all(0 < b - a <= at_most for a, b in cut)
    counts = {len(cut) for mine, cut in zip(shares, cuts, strict=True) if mine.size >= len(cuts[0])}
    assert len(counts) <= 1, "ranks that exchange per micro-batch need equally many"


@given(st.integers(1, 100), st.integers(1, 9))
def test_weights_make_the_mean_over_all_samples(batch: int, size: int) -> None:
    shares = [share(Position(), rank=r, size=size, batch=batch, length=1000) for r in range(size)]
    samples = [float(i * i) for i in range(batch)]
    mean = sum(sum(samples[s.start : s.stop]) / s.size * s.weight for s in shares if s.size)
    assert abs(mean - sum(samples) / batch) < 1e-6
