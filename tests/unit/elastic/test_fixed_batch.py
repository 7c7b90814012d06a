"""How a global batch that stays the same is cut."""

from __future__ import annotations

import pytest

from bftrainer.elastic.frameworks.fixed_batch import check_even, cut


@pytest.mark.parametrize(
    ("total", "size", "at_most", "samples", "parts"),
    [(48, 1, None, 48, 1), (48, 3, None, 16, 1), (48, 1, 16, 16, 3), (48, 2, 16, 12, 2), (14, 2, 4, 1, 7)],
)
def test_every_rank_has_an_even_share_in_even_micro_batches(
    total: int, size: int, at_most: int | None, samples: int, parts: int
) -> None:
    assert cut(total, size, at_most) == (samples, parts)
    assert samples * parts * size == total and samples <= (at_most or total)


def test_a_batch_that_cannot_be_cut_is_refused_with_one_that_can() -> None:
    check_even(48, range(1, 5))
    check_even(50, (2,))
    with pytest.raises(
        ValueError, match=r"of 32 .* between 3 nodes.* spec allows 1 to 4\. .*or take 36 .*BFT"
    ):
        check_even(32, range(1, 5))
    with pytest.raises(ValueError, match=r"the spec allows 1 to 64\. Set nodes in .*batch \(bft"):
        check_even(32, range(1, 65))
    with pytest.raises(ValueError, match="between 2 nodes"):
        cut(5, 2)
    with pytest.raises(ValueError, match="between 3 nodes"):
        check_even(2, range(1, 1_000_001))


def test_only_the_sizes_that_the_spec_allows_have_to_cut_a_batch() -> None:
    check_even(32, (1, 2, 4, 8))
    check_even(24, range(2, 7, 2))
    with pytest.raises(
        ValueError, match=r"between 3 nodes, and the spec allows 1, 3, 4\. .*or take 36 .*BFT"
    ):
        check_even(32, (1, 3, 4))
    with pytest.raises(ValueError, match=r"spec allows 2, 4 and so on to 64\. Set nodes"):
        check_even(32, range(2, 65, 2))
    with pytest.raises(ValueError, match=r"allows 1, 2, 3, 4, 5, 6, 7, 8 and others up to 11\. Set nodes"):
        check_even(32, (1, 2, 3, 4, 5, 6, 7, 8, 10, 11))
