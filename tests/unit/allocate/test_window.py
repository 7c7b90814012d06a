"""The exact search for the best way to share out the GPUs of a few nodes."""

from __future__ import annotations

import random
from itertools import product

import pytest

from bftrainer.allocate.rules import Rules
from bftrainer.allocate.window import Outcome, Region, Way, best, boxes

EVERYBODY = Rules(avoid_interference=False, users_share=True)


def way(worth: float, *counts: int, wide: bool | None = None) -> Way:
    return Way(worth, counts, sum(counts), sum(n > 0 for n in counts) > 1 if wide is None else wide)


def search(
    parts: list[Region],
    free: tuple[int, ...],
    caps: tuple[int, ...] = (),
    rules: Rules = EVERYBODY,
    above: float = float("-inf"),
    tries: int = 10_000,
) -> Outcome:
    return best(parts, free, caps, rules, above=above, tries=tries)


def worths(outcome: Outcome) -> list[float]:
    assert outcome.chosen is not None
    return [own.worth for own in outcome.chosen]


def test_each_part_has_the_way_with_which_all_are_worth_most() -> None:
    parts = [
        Region("", [way(0.0, 0), way(5.0, 2)]),
        Region("", [way(0.0, 0), way(3.0, 1), way(4.0, 2)]),
    ]
    assert worths(search(parts, (3,))) == [5.0, 3.0]
    assert worths(search(parts, (2,))) == [5.0, 0.0]


def test_nothing_is_found_that_is_not_worth_more() -> None:
    parts = [Region("", [way(0.0, 0), way(5.0, 2)])]
    assert search(parts, (2,), above=4.9).chosen is not None
    assert search(parts, (2,), above=5.0) == Outcome(None, 0, proven=True)


def test_caps_bound_what_parts_have_together() -> None:
    parts = [
        Region("", [way(0.0, 0), way(5.0, 2)], caps=(0,)),
        Region("", [way(0.0, 0), way(4.0, 2)], caps=(0,)),
    ]
    assert worths(search(parts, (4,), caps=(3,))) == [5.0, 0.0]


def test_parts_that_meet_elsewhere_are_not_both_on_several_nodes() -> None:
    first = [way(1.0, 1, 0, wide=False), way(5.0, 1, 0, wide=True)]
    second = [way(1.0, 0, 1, wide=False), way(5.0, 0, 1, wide=True)]
    parts = [Region("", first, meets=frozenset({1})), Region("", second, meets=frozenset({0}))]
    apart = Rules(avoid_interference=True, users_share=True)
    assert sorted(worths(search(parts, (1, 1), rules=apart))) == [1.0, 5.0]
    assert worths(search(parts, (1, 1))) == [5.0, 5.0]


def test_a_search_that_is_cut_short_proves_nothing() -> None:
    parts = [Region("", [way(float(n), n) for n in range(5)]) for _ in range(4)]
    assert not search(parts, (8,), tries=3).proven
    assert search(parts, (8,)).proven


@pytest.mark.parametrize("seed", range(40))
def test_it_finds_what_trying_all_ways_finds(seed: int) -> None:
    rng = random.Random(seed)
    free = tuple(rng.randint(1, 3) for _ in range(rng.randint(1, 3)))
    rules = Rules(avoid_interference=rng.random() < 0.5, users_share=rng.random() < 0.5)
    caps = (rng.randint(1, 6),)
    parts = []
    for i in range(rng.randint(2, 4)):
        every = boxes((0,) * len(free), free)
        chosen = rng.sample(every, min(6, len(every)))
        ways = [way(0.0, *(0,) * len(free)), *(way(rng.uniform(0, 9), *own) for own, _, _ in chosen)]
        meets = frozenset({1 - i}) if i < 2 and rng.random() < 0.5 else frozenset[int]()
        parts.append(Region(rng.choice("ab"), ways, meets, (0,) if rng.random() < 0.5 else ()))
    if parts[0].meets != frozenset({1}) or parts[1].meets != frozenset({0}):
        parts[:2] = [Region(p.user, p.ways, frozenset(), p.caps) for p in parts[:2]]
    found = search(parts, free, caps, rules)
    every_way = product(*(part.ways for part in parts))
    most = max(sum(w.worth for w in ways) for ways in every_way if fits(parts, ways, free, caps, rules))
    assert sum(worths(found)) == pytest.approx(most)
    assert fits(parts, found.chosen or (), free, caps, rules)


def fits(
    parts: list[Region], ways: tuple[Way, ...], free: tuple[int, ...], caps: tuple[int, ...], rules: Rules
) -> bool:
    if sum(w.size for part, w in zip(parts, ways, strict=True) if part.caps) > caps[0]:
        return False
    wide = [i for i, w in enumerate(ways) if w.wide]
    if rules.avoid_interference and any(j in parts[i].meets for i in wide for j in wide):
        return False
    for k, size in enumerate(free):
        there = [i for i, w in enumerate(ways) if w.counts[k]]
        if sum(ways[i].counts[k] for i in there) > size:
            return False
        if not rules.users_share and len({parts[i].user for i in there}) > 1:
            return False
        if rules.avoid_interference and sum(ways[i].wide for i in there) > 1:
            return False
    return True
