"""What several workers of a node say is said once, and what one says goes on as it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.agent.merged_reports import HUNG_S, MergedReports
from bftrainer.agent.seats import Seat

KINDS = ("ready", "attached", "joined", "progress", "metrics", "resumed", "finished", "left", "broken", "kv")


class _Worker:
    def __init__(self, rank: int) -> None:
        self.seat = Seat(rank, 4)


def joined(generation: int, **more: Any) -> dict[str, Any]:
    return {"type": "joined", "generation": generation, "survivor": True, "pause_s": 0.1, **more}


@given(st.sampled_from(KINDS), st.booleans())
def test_the_only_worker_of_a_node_is_heard_as_it_speaks(kind: str, gated: bool) -> None:
    message = {"type": kind, "generation": 3, "strange": [1]}
    once = MergedReports(1, gated=gated)
    assert once.for_daemon(0, message) == [message] and once.for_siblings(0, message, "n") == []


@given(st.permutations(range(4)), st.sampled_from(("ready", "finished", "left", "joined")))
def test_a_node_has_come_as_far_as_its_last_worker(order: list[int], kind: str) -> None:
    once = MergedReports(4, gated=False)
    said = [once.for_daemon(rank, {"type": kind, "generation": 2, "rank": rank}) for rank in order]
    assert said[:3] == [[], [], []]
    (told,) = said[3]
    assert (told["type"], told["rank"]) == (kind, 0), "the first speaks for all"


@given(st.data(), st.integers(2, 4))
def test_in_whatever_order_workers_speak_the_daemon_hears_one_story(data: st.DataObject, count: int) -> None:
    story = [{"type": "ready"}, joined(2), joined(3), joined(5), {"type": "finished"}]
    once, told = MergedReports(count, gated=False), []
    at = [0] * count
    while any(place < len(story) for place in at):
        rank = data.draw(st.sampled_from([i for i in range(count) if at[i] < len(story)]))
        told += once.for_daemon(rank, story[at[rank]])
        at[rank] += 1
    kinds = [message["type"] for message in told]
    assert kinds[0] == "ready" and kinds[-1] == "finished" and set(kinds[1:-1]) == {"joined"}
    generations = [message["generation"] for message in told[1:-1]]
    assert generations == sorted(set(generations)) and generations[-1] == 5


def test_a_pause_is_that_of_the_worker_that_stood_still_longest() -> None:
    once = MergedReports(2, gated=False)
    assert once.for_daemon(1, joined(4, pause_s=2.0)) == []
    (told,) = once.for_daemon(0, joined(4))
    assert (told["pause_s"], told["survivor"]) == (2.0, True)
    once.for_daemon(0, joined(5))
    (told,) = once.for_daemon(1, joined(5, survivor=False, pause_s="long"))
    assert (told["pause_s"], told["survivor"]) == (0.1, False)


def test_workers_that_join_different_memberships_have_joined_none() -> None:
    once = MergedReports(2, gated=False)
    assert once.for_daemon(0, joined(4)) == [] == once.for_daemon(1, joined(5))
    assert once.for_daemon(0, joined(4)) == [], "one that is overtaken"
    assert once.for_daemon(0, joined(5))[0]["generation"] == 5


@pytest.mark.parametrize("kind", ["progress", "metrics", "resumed"])
def test_the_first_alone_tells_of_progress(kind: str) -> None:
    once = MergedReports(2, gated=False)
    assert once.for_daemon(1, {"type": kind}) == [] and once.for_daemon(0, {"type": kind}) == [{"type": kind}]


def test_where_scripts_know_no_memberships_the_first_says_that_the_work_is_done() -> None:
    once = MergedReports(2, gated=True)
    assert once.for_daemon(0, {"type": "finished"}) == [{"type": "finished"}]
    assert once.for_daemon(1, {"type": "left"}) == []
    assert once.for_daemon(1, {"type": "attached"}) and not once.for_daemon(0, {"type": "attached"})


def test_an_entry_of_the_rendezvous_goes_to_the_siblings_and_on() -> None:
    once, entry = MergedReports(2, gated=False), {"type": "kv", "generation": 1, "key": "a", "value": "b"}
    assert once.for_siblings(1, entry, "n") == [entry] == once.for_daemon(1, entry)


def test_a_node_is_busy_for_as_long_as_any_of_its_workers() -> None:
    now = [100.0]
    once = MergedReports(2, gated=False, clock=lambda: now[0])

    def say(rank: int, seconds: float, generation: int = 1) -> list[float]:
        said = {"type": "busy", "seconds": seconds, "generation": generation}
        return [told["seconds"] for told in once.for_daemon(rank, said)]

    assert say(0, 60.0) == [60.0] and say(1, 60.5) == [], "as good as the same"
    assert say(1, 40.0, generation=2) == [60.0], "there may be other members"
    now[0] += 20.0
    assert say(1, 0, generation=2) == [], "the other still is"
    assert say(0, 50.0, generation=2) == [50.0] and say(0, 0, generation=2) == [0.0]
    (told,) = once.for_siblings(1, {"type": "busy", "seconds": 5.0}, "n")
    assert told == {"type": "busy", "node": "n", "seconds": 5.0}


@given(st.sampled_from((*KINDS, "busy")), st.integers(2, 3), st.booleans(), st.data())
def test_whatever_a_script_says_of_itself_the_agent_goes_on(
    kind: str, count: int, gated: bool, data: st.DataObject
) -> None:
    odd = st.one_of(
        st.none(), st.integers(), st.just(10**400), st.floats(), st.text(), st.lists(st.integers())
    )
    once = MergedReports(count, gated=gated)
    for _ in range(6):
        rank = data.draw(st.integers(0, count - 1))
        message = {
            "type": kind,
            "generation": data.draw(st.integers()),
            **{name: data.draw(odd) for name in ("pause_s", "seconds", "survivor", "key")},
        }
        for told in (*once.for_daemon(rank, message), *once.for_siblings(rank, message, "n")):
            assert told["type"] == kind
    assert isinstance(once.ended(0), list)


def test_a_worker_that_says_nothing_of_a_broken_group_for_long_hangs() -> None:
    now = [100.0]
    once, workers = MergedReports(2, gated=False, clock=lambda: now[0]), [_Worker(0), _Worker(1)]
    assert once.hung(workers) == []
    once.for_daemon(0, {"type": "broken", "generation": 3})
    assert once.hung(workers) == []
    assert once.hung(workers) == [], "two memberships in a row"
    now[0] += HUNG_S
    assert once.hung(workers) == [workers[1]]
    once.for_daemon(1, {"type": "broken", "generation": 3})
    assert once.hung(workers) == []


def test_one_that_has_ended_well_is_not_waited_for() -> None:
    once = MergedReports(3, gated=False)
    assert once.for_daemon(0, {"type": "finished", "rank": 0}) == [] == once.ended(2)
    assert once.for_daemon(1, {"type": "finished", "rank": 1}) == [{"type": "finished", "rank": 0}]
    once = MergedReports(2, gated=False)
    once.for_daemon(1, {"type": "left"})
    assert once.ended(0) == [{"type": "left"}] and once.ended(1) == []
