"""The pool: nodes join after the debounce, leave at once, and can be lost between polls."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model.events import NodesChanged
from bftrainer.model.machine import Claim, Node, NodeInfo, NodeState, Snapshot
from bftrainer.nodes import lifecycle
from bftrainer.nodes.lifecycle import Records
from bftrainer.nodes.pool import Terms, polled


def observe(
    records: Records, snapshot: Snapshot, debounce_s: float = 0.0, **terms: Any
) -> tuple[Records, NodesChanged | None]:
    """One poll: the records after it, and its event, None if there is none."""
    after, effects = polled(records, snapshot, Terms(debounce_s=debounce_s, **terms))
    return after, next((effect for effect in effects if isinstance(effect, NodesChanged)), None)


def having(nodes: str) -> Records:
    """Records with these nodes in the pool."""
    return lifecycle.begun(Records(), nodes, 0.0)


def snapshot(time: float, idle: str, busy: str = "") -> Snapshot:
    """Nodes are single letters."""
    nodes = [Node(name=n, state=NodeState.IDLE) for n in idle] + [
        Node(name=n, state=NodeState.BUSY) for n in busy
    ]
    return Snapshot(time=time, nodes=tuple(nodes))


def test_without_debounce_idle_nodes_join_at_once() -> None:
    pool, event = observe(Records(), snapshot(7.0, "ab", "c"))
    assert pool.pool == frozenset("ab")
    assert event == NodesChanged(time=7.0, joined=frozenset("ab"), reason="poll")


def test_no_change_is_no_event() -> None:
    pool, _ = observe(Records(), snapshot(0.0, "ab"))
    assert observe(pool, snapshot(1.0, "ab", "c")) == (pool, None)


def test_a_node_joins_once_it_has_been_idle_for_the_debounce() -> None:
    pool, event = observe(Records(), snapshot(10.0, "a"), 5.0)
    assert event is None
    pool, event = observe(pool, snapshot(14.0, "ab"), 5.0)
    assert event is None
    pool, event = observe(pool, snapshot(15.0, "ab"), 5.0)
    assert event is not None
    assert event.joined == {"a"}
    pool, event = observe(pool, snapshot(19.0, "ab"), 5.0)
    assert event is not None
    assert event.joined == {"b"}
    assert pool.pool == frozenset("ab")


def test_a_moment_of_work_starts_the_debounce_anew() -> None:
    pool, _ = observe(Records(), snapshot(0.0, "a"), 5.0)
    pool, _ = observe(pool, snapshot(4.0, "", "a"), 5.0)
    pool, event = observe(pool, snapshot(6.0, "a"), 5.0)
    assert event is None
    pool, event = observe(pool, snapshot(10.9, "a"), 5.0)
    assert event is None
    _, event = observe(pool, snapshot(11.0, "a"), 5.0)
    assert event is not None


def test_busy_and_vanished_nodes_leave_at_once_whatever_the_debounce() -> None:
    pool, event = observe(having("abc"), snapshot(3.0, "ad", "b"), 60.0)
    assert pool.pool == {"a"}
    assert pool.nodes["d"].idle_since == 3.0 and pool.nodes.keys() == {"a", "d"}
    assert event == NodesChanged(time=3.0, left=frozenset("bc"), reason="poll")


def test_leaves_and_joins_of_one_poll_are_one_event() -> None:
    _, event = observe(having("ab"), snapshot(3.0, "bc", "a"))
    assert event == NodesChanged(time=3.0, left=frozenset("a"), joined=frozenset("c"), reason="poll")


def test_a_lost_node_is_out_at_once_and_joins_again_like_any_other() -> None:
    pool, lost = lifecycle.left(having("ab"), ["a"], 4.0)
    assert pool.pool == {"b"} and lost == {"a"}
    assert lifecycle.left(pool, ["a"], 5.0) == (pool, frozenset())
    pool, event = observe(pool, snapshot(6.0, "ab"), 2.0)
    assert event is None
    _, event = observe(pool, snapshot(8.0, "ab"), 2.0)
    assert event is not None
    assert event.joined == {"a"}


# --- when nodes are expected to leave ------------------------------------------------------------


def expecting(time: float, **until: float | None) -> Snapshot:
    """Idle nodes, and until when."""
    return Snapshot(
        time=time, nodes=tuple(Node(name=n, state=NodeState.IDLE, until=u) for n, u in until.items())
    )


def test_a_node_that_joins_brings_its_expected_end() -> None:
    pool, event = observe(Records(), expecting(1.0, a=90.0, b=None))
    assert event == NodesChanged(
        time=1.0, joined=frozenset("ab"), reason="poll", facts={"a": NodeInfo(until=90.0)}
    )
    assert observe(pool, expecting(2.0, a=90.0, b=None)) == (pool, None)


def test_expected_ends_that_change_are_told_and_so_are_those_that_are_withdrawn() -> None:
    pool, _ = observe(Records(), expecting(1.0, a=90.0, b=None, c=50.0))
    pool, event = observe(pool, expecting(2.0, a=80.0, b=70.0, c=50.0))
    assert event == NodesChanged(
        time=2.0, reason="poll", facts={"a": NodeInfo(until=80.0), "b": NodeInfo(until=70.0)}
    )
    pool, event = observe(pool, expecting(3.0, a=None, b=70.0, c=50.0))
    assert event == NodesChanged(time=3.0, reason="poll", facts={"a": NodeInfo()})
    pool, event = observe(pool, expecting(4.0, a=None, b=None))
    assert event == NodesChanged(time=4.0, left=frozenset("c"), reason="poll", facts={"b": NodeInfo()})
    assert pool.pool == frozenset("ab")


def test_nothing_is_told_of_nodes_that_are_not_ours_yet() -> None:
    pool, event = observe(Records(), expecting(0.0, a=90.0), 5.0)
    assert event is None
    pool, event = observe(pool, expecting(4.0, a=70.0), 5.0)
    assert event is None
    _, event = observe(pool, expecting(5.0, a=60.0), 5.0)
    assert event is not None
    assert event.facts == {"a": NodeInfo(until=60.0)}


def test_a_lost_node_that_joins_again_brings_its_expected_end_anew() -> None:
    pool, _ = observe(Records(), expecting(0.0, a=90.0))
    pool, _ = lifecycle.left(pool, ["a"], 1.0)
    pool, event = observe(pool, expecting(2.0, a=90.0))
    assert event is not None
    assert event.joined == {"a"}
    assert event.facts == {"a": NodeInfo(until=90.0)}
    _, event = observe(pool, expecting(3.0, a=90.0))
    assert event is None


POLLS = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.none() | st.sampled_from([10.0, 20.0])), max_size=20
)


def test_what_is_given_up_leaves_and_does_not_join_though_it_is_idle() -> None:
    pool, _ = observe(Records(), snapshot(0.0, "abc"))
    pool, event = observe(pool, snapshot(1.0, "abd"), given_up=frozenset("bd"))
    assert event is not None
    assert (event.left, event.vacated, event.joined) == (frozenset("bc"), frozenset("b"), frozenset())
    assert pool.pool == {"a"}


def test_nobody_joins_a_closed_pool_and_it_loses_nodes_like_any_other() -> None:
    pool, _ = observe(Records(), snapshot(0.0, "ab"))
    pool, event = observe(pool, snapshot(1.0, "bc"), closed=True)
    assert event is not None
    assert (event.left, event.joined) == (frozenset("a"), frozenset())


def test_a_hole_that_ends_soon_is_left_alone_until_it_is_longer() -> None:
    def seen(time: float, until: float | None) -> Snapshot:
        return Snapshot(time=time, nodes=(Node(name="a", state=NodeState.IDLE, until=until),))

    pool, event = observe(Records(), seen(100.0, 129.0), min_hole_s=30.0)
    assert event is None
    pool, event = observe(pool, seen(101.0, 131.0), min_hole_s=30.0)
    assert event is not None and event.joined == {"a"}
    pool, event = observe(pool, seen(120.0, 131.0), min_hole_s=30.0)
    assert event is None and pool.pool == {"a"}


@given(POLLS, st.integers(0, 2))
def test_facts_kept_from_events_alone_are_what_the_last_poll_said(
    polls: list[dict[str, float | None]], debounce_s: int
) -> None:
    pool, told = Records(), dict[str, float | None]()
    for now, idle in enumerate(polls):
        pool, event = observe(pool, expecting(float(now), **idle), float(debounce_s))
        if event is not None:
            told = {n: u for n, u in told.items() if n not in event.left} | dict.fromkeys(event.joined)
            assert all(told[n] != fact.until for n, fact in event.facts.items()), "no news"
            told |= {n: fact.until for n, fact in event.facts.items()}
        assert told == {n: idle[n] for n in pool.pool}


@given(st.lists(st.sets(st.sampled_from("abcd")), max_size=20), st.integers(0, 4))
def test_events_tell_the_whole_story_of_the_pool(polls: list[set[str]], debounce_s: int) -> None:
    """A pool kept from events alone is the pool; a node is in it iff it has been idle long enough."""
    pool, told, idle_for = Records(), set[str](), dict.fromkeys("abcd", -1)
    for now, idle in enumerate(polls):
        pool, event = observe(pool, snapshot(float(now), "".join(idle)), float(debounce_s))
        if event is not None:
            assert event.left <= told
            assert not event.joined & told
            told = (told - event.left) | event.joined
        idle_for = {n: idle_for[n] + 1 if n in idle else -1 for n in idle_for}
        assert pool.pool == told == {n for n, polls_ in idle_for.items() if polls_ >= debounce_s}


def test_nodes_that_leave_are_told_with_the_main_jobs_that_get_them() -> None:
    """One took its node, two are to get what they ask for, and nobody knows why the last node is gone."""
    idle = [Node(name=name, state=NodeState.IDLE) for name in "bcdz"]
    took = Node(name="a", state=NodeState.BUSY, why="allocated", job="7", ends=99.0)
    claims = (
        Claim(job="8", nodes=frozenset("bcd"), count=2),
        Claim(job="9", nodes=frozenset("bcd"), count=1),
    )
    poll = Snapshot(time=3.0, nodes=(took, *idle), claims=claims)
    claimed = frozenset("bcd")
    _, event = observe(having("abcdxz"), poll, given_up=claimed | {"z"}, claimed=claimed)
    assert event is not None and event.left == frozenset("abcdxz")
    assert event.jobs == {"7": frozenset("a"), "8": frozenset("bc"), "9": frozenset("d")}


def test_of_thousands_of_claims_the_first_are_told() -> None:
    names = [f"n{i}" for i in range(40)]
    poll = Snapshot(
        time=3.0,
        nodes=tuple(Node(name=name, state=NodeState.IDLE) for name in names),
        claims=tuple(Claim(job=str(i), nodes=frozenset(names), count=1) for i in range(40)),
    )
    pool = lifecycle.begun(Records(), names, 0.0)
    _, event = observe(pool, poll, given_up=frozenset(names), claimed=frozenset(names))
    assert event is not None and [*event.jobs] == [str(i) for i in range(16)]
