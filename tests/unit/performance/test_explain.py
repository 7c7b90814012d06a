"""What users are shown of the sizes of a trainer."""

from __future__ import annotations

from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import Points
from bftrainer.performance import explain, observe
from tests.support.measured_speeds import FEW, amdahl, seen


def test_the_more_windows_the_surer_and_what_was_seen_is_surer_than_what_was_not() -> None:
    def errors(k: int) -> dict[int, float]:
        sizes = observe.sizes(seen({n: [amdahl(n, 0.01)] * k for n in FEW}))
        return {e.nodes: e.error or 0.0 for e in explain.size_estimates(sizes, (), 1, 64, 1.0)}

    once, often = errors(1), errors(9)
    assert set(once) == {1, 2, 4, 8, 16, 32, 64}
    assert all(often[n] < once[n] for n in once)
    assert often[16] < often[32] < often[64]


def test_estimates_say_where_they_come_from() -> None:
    def sources(rates: dict[int, list[float]], prior: Points) -> list[tuple[int, str, int]]:
        found = explain.size_estimates(observe.sizes(seen(rates)), prior, 1, 4, 7.0)
        return [(e.nodes, e.source, e.windows) for e in found]

    assert sources({}, ()) == [(1, "assumed", 0), (2, "assumed", 0), (4, "assumed", 0)]
    assert sources({}, ((3, 9.0),))[2] == (3, "given", 0)
    assert sources({2: [5.0, 5.0]}, ()) == [(1, "predicted", 0), (2, "observed", 2), (4, "predicted", 0)]


def test_users_are_shown_allowed_sizes_only() -> None:
    def shown(sizes: AllowedSizes, n_min: int, n_max: int) -> list[int]:
        found = explain.size_estimates((), ((1, 5.0), (4, 9.0)), n_min, n_max, 1.0, sizes)
        return [estimate.nodes for estimate in found]

    assert shown(AllowedSizes(listed=(2, 4, 6)), 2, 6) == [2, 4, 6]
    assert shown(AllowedSizes(multiple_of=4), 4, 24) == [4, 8, 16, 24]
