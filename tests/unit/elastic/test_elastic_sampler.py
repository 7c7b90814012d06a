"""Whatever the ranks and the batches, every sample of an epoch is used once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.elastic.state.position import Position
from bftrainer.elastic.train.sampler import micro_batches, share

COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


LEAST = st.integers(1, 4)


@given(st.integers(1, 60), COUNTS, st.integers(1, 40), st.booleans(), st.integers(1, 200), LEAST)
def test_each_sample_is_used_once_however_the_ranks_change(
    length: int, sizes: list[int], batch: int, per_node: bool, budget: int, least: int
) -> None:
    position, used = Position(), []
    for step in range(400):
        if position.samples >= budget:
            break
        size = sizes[step % len(sizes)]
        total = batch * size if per_node else batch
        all_ranks = [
            share(position, rank=r, size=size, batch=total, length=length, budget=budget, least=least)
            for r in range(size)
        ]
        assert len({s.after for s in all_ranks}) == 1
        assert sum(s.size for s in all_ranks) == all_ranks[0].total <= total
        working = [s.size for s in all_ranks if s.size]
        assert {s.ranks for s in all_ranks} == {len(working)}
        assert [s.size for s in all_ranks] == working + [0] * (size - len(working))
        assert max(working) - min(working) <= 1
        assert min(working) >= min(least, all_ranks[0].total)
        assert len(working) == size or all_ranks[0].total < least * (len(working) + 1), "none is idle in vain"
        used += [(position.epoch, i) for s in all_ranks for i in range(s.start, s.stop)]
        position = all_ranks[0].after
        assert position.step == step + 1
    assert used == [divmod(i, length) for i in range(len(used))]
    assert position.samples == len(used) == min(budget, len(used))


@given(st.integers(1, 300), st.integers(1, 9), st.integers(1, 40), LEAST)
def test_micro_batches_are_small_enough_equally_many_and_cover_the_share(
    batch: int, size: int, at_most: int, least: int
) -> None:
    least = min(least, at_most)
    shares = [
        share(Position(), rank=r, size=size, batch=batch, length=1000, least=least) for r in range(size)
    ]
    cuts = [micro_batches(s, at_most, least) for s in shares]
    for mine, cut in zip(shares, cuts, strict=True):
        assert [i for a, b in cut for i in range(a, b)] == list(range(mine.start, mine.stop))
        assert all(min(least, batch) <= b - a < at_most + least for a, b in cut)
        assert at_most < 2 * least - 1 or all(b - a <= at_most for a, b in cut)
    counts = {len(cut) for mine, cut in zip(shares, cuts, strict=True) if mine.size >= least * len(cuts[0])}
    assert len(counts) <= 1, "ranks that exchange per micro-batch need equally many"


@given(st.integers(1, 100), st.integers(1, 9))
def test_weights_make_the_mean_over_all_samples(batch: int, size: int) -> None:
    shares = [share(Position(), rank=r, size=size, batch=batch, length=1000) for r in range(size)]
    samples = [float(i * i) for i in range(batch)]
    mean = sum(sum(samples[s.start : s.stop]) / s.size * s.weight for s in shares if s.size)
    assert abs(mean - sum(samples) / batch) < 1e-6
