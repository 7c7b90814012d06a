"""Who gets a place, whose connection makes room, and who sends too many requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.api.transport.admission import (
    BURST_S,
    Admission,
    BusyError,
    ConnectionPlace,
    HttpLimits,
    Owner,
)
from tests.support.serving import PLENTY, Places

ALICE: Owner = ("user", 1001)
BOB: Owner = ("user", 1002)
LOGIN: Owner = ("address", "10.0.0.1")


class Now:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


def evicted(*places: ConnectionPlace) -> list[int]:
    return [n for n, place in enumerate(places) if place.evicted]


def test_the_longest_idle_connection_of_the_user_makes_room() -> None:
    places = Places(replace(PLENTY, each=3))
    first, second, third = (places.enter(ALICE) for _ in range(3))
    first.works()
    places.enter(ALICE)
    assert evicted(first, second, third) == [1]
    assert places.taken == 3
    assert places.hits == [("max_connections_per_user", "uid 1001")]


def test_a_client_whose_connection_makes_room_is_told_which_bound_and_what_to_do() -> None:
    places = Places(HttpLimits(total=3, each=2, per_second=None, timeout_s=1.0, total_is="max_agents"))
    first, second, _ = (places.enter(ALICE) for _ in range(3))
    places.enter(BOB)
    places.enter(LOGIN)
    said = [place.evicted for place in (first, second)]
    assert said[0] is not None and said[0].status == 429
    assert str(said[0]) == (
        "2 connections of yours are open at once, and another needs the place of "
        "this one, which was idle; try again in a moment (bftrainer explain BFT-450)"
    )
    assert said[1] is not None and said[1].status == 503
    assert str(said[1]) == (
        "the daemon serves 3 connections at once (max_agents), and another needs the place of this one, "
        "which was idle; try again in a moment (bftrainer explain BFT-450)"
    )


def test_the_user_with_the_most_makes_room_for_others() -> None:
    places = Places(HttpLimits(total=6, each=5, per_second=None, timeout_s=1.0))
    bobs = [places.enter(BOB)]
    alices = [places.enter(ALICE) for _ in range(5)]
    bobs += [places.enter(BOB) for _ in range(2)]
    assert evicted(*alices) == [0, 1] and not evicted(*bobs)
    for place in (*alices[2:], *bobs):
        place.works()
    with pytest.raises(BusyError, match="6 connections at once") as refused:
        places.enter(LOGIN)
    assert refused.value.status == 503
    assert ("max_connections", "10.0.0.1") in places.hits and places.failures


def test_a_place_is_free_when_connection_and_work_are_over() -> None:
    places = Places(replace(PLENTY, each=1))
    place = places.enter(ALICE)
    place.works()
    place.lost()
    with pytest.raises(BusyError, match="1 requests of yours are in work"):
        places.enter(ALICE)
    place.rests()
    assert places.taken == 0
    places.enter(ALICE).lost()
    assert places.taken == 0


def test_a_user_that_munge_has_told_has_one_share_from_all_addresses() -> None:
    places = Places(replace(PLENTY, each=2))
    for n in range(2):
        place = places.enter(("address", f"10.0.0.{n}"))
        place.works()
        place.belongs_to(1001)
    third = places.enter(("address", "10.0.0.9"))
    third.works()
    with pytest.raises(BusyError, match="requests of yours are in work") as refused:
        third.belongs_to(1001)
    assert refused.value.status == 429
    assert places.taken == 3  # it keeps the address's place until it has its answer
    third.belongs_to(1002)


def test_agents_are_nobodys_share() -> None:
    places = Places(replace(PLENTY, total=3, each=1))
    agent = places.enter(LOGIN)
    agent.proven()
    newcomer = places.enter(LOGIN)
    assert not agent.evicted
    agent.lost()
    newcomer.lost()
    assert places.taken == 0
    late = places.enter(LOGIN)
    late.lost()
    late.proven()
    assert places.taken == 0


def test_a_rate_is_for_each_owner_and_comes_back() -> None:
    now = Now()
    places = Admission(replace(PLENTY, per_second=2.0), lambda *_: None, lambda _: None, now)

    def takes(owner: Owner) -> int:
        """How many connections an owner may make now."""
        for n in range(100):
            try:
                places.enter(owner).lost()
            except BusyError as error:
                assert error.status == 429
                return n
        return 100

    assert takes(ALICE) == takes(BOB) == 2 * BURST_S
    now.s += 1.0
    assert takes(ALICE) == 2
    now.s += 1e6
    assert takes(ALICE) == 2 * BURST_S


def test_rates_of_those_that_are_quiet_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = Now()
    monkeypatch.setattr("bftrainer.api.transport.admission.MAX_QUIET", 10)
    places = Admission(replace(PLENTY, per_second=1.0), lambda *_: None, lambda _: None, now)
    for n in range(1000):
        now.s += 1.0
        places.enter(("user", n)).lost()
    assert len(places._buckets) <= 12


def told_with_numbers() -> tuple[Now, list[tuple[str, str, int]], Admission]:
    """Places of which each user has one, their clock, and what they tell of hits."""
    now, told = Now(), list[tuple[str, str, int]]()
    places = Admission(
        replace(PLENTY, each=1), lambda bound, by, times: told.append((bound, by, times)), lambda _: None, now
    )
    return now, told, places


def test_hits_of_a_flood_are_told_once_a_second_with_their_number() -> None:
    now, told, places = told_with_numbers()
    for _ in range(1001):
        places.enter(ALICE)
    now.s += 1.0
    places.enter(ALICE)
    hit = ("max_connections_per_user", "uid 1001")
    assert told == [(*hit, 1), (*hit, 1000)]


def test_a_flood_that_ends_is_told_in_full_and_then_forgotten() -> None:
    now, told, places = told_with_numbers()
    for _ in range(295):
        places.enter(ALICE)
    places.tell_rest()
    assert sum(times for _, _, times in told) == 1, "no more often than once a second"
    now.s += 1.0
    places.tell_rest()
    assert told == [("max_connections_per_user", "uid 1001", times) for times in (1, 293)]
    now.s += 1.0
    places.tell_rest()
    assert len(told) == 2 and not places._hits


def test_other_bounds_hold_at_once_and_what_is_there_stays() -> None:
    places = Places(HttpLimits(total=9, each=5, per_second=1.0, timeout_s=1.0))
    places.now = Now()
    first = [places.enter(ALICE) for _ in range(4)]
    for place in first:
        place.works()
    with pytest.raises(BusyError, match="more than 1 requests in a second"):
        places.enter(ALICE)
    places.change(HttpLimits(total=9, each=5, per_second=100.0, timeout_s=1.0))
    places.enter(ALICE).works()
    places.change(HttpLimits(total=9, each=2, per_second=100.0, timeout_s=1.0))
    with pytest.raises(BusyError, match="2 requests of yours are in work already"):
        places.enter(ALICE)
    assert places.taken == 5 and not evicted(*first)
