"""A node's life: one test for each row of the table, and any sequence of polls, orders and ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bftrainer.model.events import NodesChanged
from bftrainer.model.machine import Node, NodeState, Pilot, Snapshot
from bftrainer.nodes import lifecycle
from bftrainer.nodes.lifecycle import (
    HELD,
    NEXT,
    CancelPilots,
    Effect,
    ExitAgents,
    NodePhase,
    Records,
    SubmitPilots,
    VacateNodes,
)
from bftrainer.nodes.pool import BEING_CLEARED, LISTED_S, Terms, landed, lost, polled, reconciled

PILOT = Pilot(tag="t", node="n", user="ann")


def poll(time: float, *pilots: Pilot, why: str = "", nodes: str = "n") -> Snapshot:
    state = NodeState.BUSY if why else NodeState.IDLE
    return Snapshot(time=time, nodes=tuple(Node(name=n, state=state, why=why) for n in nodes), pilots=pilots)


def after(records: Records, snapshot: Snapshot, **terms: Any) -> tuple[Records, tuple[Effect, ...]]:
    """The records after a whole poll, and all effects."""
    records, first = reconciled(landed(records, snapshot), snapshot)
    records, then = polled(records, snapshot, Terms(**terms))
    return records, (*first, *then)


def ways() -> Iterator[tuple[NodePhase | None, Records]]:
    """A node on its way through all phases, at 10."""
    yield None, Records()
    yield NodePhase.QUARANTINED, after(Records(), poll(10.0), given_up=frozenset("n"), barred={"n": "bad"})[0]
    records = lifecycle.begun(Records(), "n", 10.0)
    yield NodePhase.FREE, records
    records = lifecycle.answered(lifecycle.ordered(records, [PILOT], 10.0)[0], PILOT, 10.0)
    yield NodePhase.ORDERED, records
    records = reconciled(records, poll(10.0, PILOT))[0]
    yield NodePhase.STARTING, records
    records = lifecycle.reported(records, "n", 10.0)
    yield NodePhase.UP, records
    records = lifecycle.released(lifecycle.left(records, "n", 10.0)[0], "n", 10.0, claimed=True)
    yield NodePhase.RELEASING, records
    records, _ = lifecycle.ended(records, "n", 10.0)
    yield NodePhase.CLEARING, records
    yield NodePhase.RESTING, reconciled(records, poll(10.0))[0]


def in_phase(phase: NodePhase | None) -> Records:
    """A node that has come into a phase at 10."""
    return dict(ways())[phase]


def phase_of(records: Records, name: str = "n") -> NodePhase | None:
    one = records.nodes.get(name)
    return one.phase if one else None


@pytest.mark.parametrize("phase", [None, *NodePhase])
def test_the_way_into_each_phase(phase: NodePhase | None) -> None:
    records = in_phase(phase)
    assert phase_of(records) == phase
    if phase is not None:
        one = records.nodes["n"]
        assert one.since == 10.0 and (
            one.user == "ann" or phase in (NodePhase.FREE, NodePhase.QUARANTINED, NodePhase.RESTING)
        )


def barred(records: Records) -> Records:
    return after(records, poll(20.0), given_up=frozenset("n"), barred={"n": "bad"})[0]


def test_a_quarantined_node_says_until_when() -> None:
    records = after(Records(), poll(10.0), barred={"n": "bad"}, retried={"n": 15.0})[0]
    records = after(records, poll(11.0), barred={"n": "bad"}, retried={"n": 21.0})[0]
    one = records.nodes["n"]
    assert (one.phase, one.since, one.until, one.reason) == (NodePhase.QUARANTINED, 10.0, 21.0, "bad")


def drop(records: Records) -> Records:
    return lifecycle.dropped(records, "n", 20.0)[0]


TRANSITIONS = [
    (None, lambda r: after(r, poll(20.0))[0], "free"),
    (None, lambda r: after(r, poll(20.0), debounce_s=2.0)[0], "resting"),
    (None, barred, "quarantined"),
    (None, lambda r: after(r, poll(20.0), closed=True)[0], "none"),
    (None, lambda r: lifecycle.adopted(r, PILOT, 20.0), "starting"),
    ("free", lambda r: lifecycle.ordered(r, [PILOT], 20.0)[0], "ordered"),
    ("free", lambda r: after(r, poll(20.0, why="job 7"))[0], "none"),
    ("free", barred, "quarantined"),
    ("free", lambda r: lifecycle.left(r, "n", 20.0)[0], "none"),
    ("ordered", lambda r: lifecycle.refused(r, PILOT, 20.0), "free"),
    ("ordered", lambda r: reconciled(r, poll(20.0, PILOT))[0], "starting"),
    ("ordered", lambda r: lifecycle.reported(r, "n", 20.0), "up"),
    ("ordered", lambda r: lifecycle.released(r, "n", 20.0, claimed=True), "releasing"),
    ("ordered", lambda r: after(r, poll(20.0, why="job 7"))[0], "clearing"),
    ("ordered", lambda r: after(r, poll(20.0))[0], "ordered"),  # no poll has listed it yet: it may be late
    ("starting", lambda r: lifecycle.reported(r, "n", 20.0), "up"),
    ("starting", lambda r: lifecycle.released(r, "n", 20.0, claimed=False), "releasing"),
    ("starting", drop, "free"),
    ("up", lambda r: after(r, poll(20.0, PILOT))[0], "up"),
    ("up", lambda r: after(r, poll(20.0))[0], "up"),  # of a pilot that is not listed see `lost`
    ("up", lambda r: after(r, poll(20.0, PILOT), given_up=frozenset("n"))[0], "releasing"),
    ("up", lambda r: after(r, poll(20.0, PILOT, why="job 7"))[0], "clearing"),
    ("up", lambda r: after(r, poll(20.0, PILOT, nodes=""))[0], "clearing"),
    ("up", drop, "free"),
    ("up", lambda r: lifecycle.ended(lifecycle.left(r, "n", 20.0)[0], "n", 20.0, by_us=False)[0], "clearing"),
    ("releasing", lambda r: lifecycle.ended(r, "n", 20.0)[0], "clearing"),
    ("releasing", lambda r: lifecycle.spared(r, "n", 20.0), "up"),
    ("releasing", lambda r: after(r, poll(20.0, PILOT))[0], "releasing"),
    ("clearing", lambda r: after(r, poll(20.0, PILOT))[0], "clearing"),
    ("clearing", lambda r: after(r, poll(20.0, why=f"{BEING_CLEARED}+x"))[0], "clearing"),
    ("clearing", lambda r: reconciled(r, poll(20.0))[0], "resting"),
    ("clearing", lambda r: reconciled(r, poll(200.0, PILOT))[0], "resting"),  # waited for no longer
    ("clearing", lambda r: lifecycle.adopted(r, PILOT, 20.0), "starting"),
    ("resting", lambda r: after(r, poll(14.9), rejoin_s=5.0)[0], "resting"),
    ("resting", lambda r: after(r, poll(14.9, why="job 7"), rejoin_s=5.0)[0], "resting"),
    ("resting", lambda r: after(r, poll(15.0), rejoin_s=5.0)[0], "free"),
    ("resting", lambda r: after(r, poll(15.0), rejoin_s=5.0, debounce_s=2.0)[0], "resting"),
    ("resting", lambda r: after(r, poll(15.0, why="job 7"), rejoin_s=5.0)[0], "none"),
    ("resting", barred, "quarantined"),
    (
        "quarantined",
        barred,
        "quarantined",
    ),
    ("quarantined", lambda r: after(r, poll(20.0))[0], "free"),
    ("quarantined", lambda r: after(r, poll(20.0), debounce_s=1.0)[0], "resting"),
    ("quarantined", lambda r: after(r, poll(20.0, why="job 7"))[0], "none"),
]


@pytest.mark.parametrize(("before", "event", "then"), TRANSITIONS)
def test_each_row_of_the_table(before: str | None, event: Any, then: str) -> None:
    phase = NodePhase(before) if before else None
    found = event(in_phase(phase))
    assert (phase_of(found) or "none") == then
    assert phase_of(found) is phase or then in NEXT[phase].split()
    if phase_of(found) is phase and phase is not None:
        assert found.nodes["n"].since == 10.0, "a phase that goes on began when it began"


def test_the_table_of_what_may_follow_names_phases() -> None:
    assert {None, *NodePhase} == set(NEXT)
    assert {name for names in NEXT.values() for name in names.split()} <= {"none", *NodePhase}


def test_the_docstring_has_a_row_for_each_phase() -> None:
    table = re.findall(r"^    \S.*$", lifecycle.__doc__ or "", re.MULTILINE)
    assert {phase for phase in NodePhase if any(phase.name in row for row in table)} == set(NodePhase)


def test_what_is_ordered_twice_or_where_nothing_is_free_is_not_submitted() -> None:
    records, submit = lifecycle.ordered(in_phase(NodePhase.FREE), [PILOT], 11.0)
    assert submit == SubmitPilots((PILOT,))
    for there in (records, *map(in_phase, (None, *(p for p in NodePhase if p is not NodePhase.FREE)))):
        assert lifecycle.ordered(there, [Pilot(tag="u", node="n")], 12.0) == (there, SubmitPilots(()))


def test_a_node_that_leaves_is_vacated_if_it_is_given_up_and_dropped_if_it_is_gone() -> None:
    up = in_phase(NodePhase.UP)
    _, effects = after(up, poll(20.0, PILOT), given_up=frozenset("n"))
    assert VacateNodes(frozenset("n")) in effects and not any(
        isinstance(e, CancelPilots) and e.pilots for e in effects
    )
    _, effects = after(up, poll(20.0, PILOT, why="job 7"))
    for effect in (ExitAgents(frozenset("n")), CancelPilots((PILOT,)), VacateNodes(frozenset())):
        assert effect in effects


def test_a_node_that_was_spared_and_is_wanted_after_all_is_given_back() -> None:
    """It has not joined the pool again. Else the main job would wait until nobody has needed the pilot for a
    while."""
    outside = lifecycle.spared(in_phase(NodePhase.RELEASING), "n", 11.0)
    assert phase_of(outside) is NodePhase.UP and not outside.pool
    records, effects = after(outside, poll(12.0, PILOT), given_up=frozenset("n"))
    assert effects == (VacateNodes(frozenset("n")), ExitAgents(frozenset()), CancelPilots(()))
    assert phase_of(records) is NodePhase.RELEASING
    assert after(records, poll(13.0, PILOT), given_up=frozenset("n")) == (records, ()), "once"


def test_an_agent_that_has_been_there_may_come_back_however_old_its_pilot_is() -> None:
    """Only its connection broke, as a poll lists its pilot: `reconnect_s` is what it has."""
    old = poll(1000.0, PILOT)
    assert lost(in_phase(NodePhase.UP), old, lambda node: False, 60.0) == {}
    assert "did not start" in lost(in_phase(NodePhase.STARTING), old, lambda node: False, 60.0)["n"]
    assert lost(in_phase(NodePhase.UP), poll(11.0), lambda node: False, 60.0) == {"n": "its pilot is gone"}
    assert lost(in_phase(NodePhase.UP), poll(11.0), lambda node: True, 60.0) == {}


def test_a_pilot_that_no_poll_has_listed_is_waited_for_a_while_from_its_answer() -> None:
    asked, _ = lifecycle.ordered(in_phase(NodePhase.FREE), [PILOT], 10.0)
    assert lost(asked, poll(1000.0), lambda node: False, 60.0) == {}
    told = lifecycle.answered(asked, PILOT, 1000.0)
    assert lost(told, poll(1000.0 + LISTED_S), lambda node: False, 60.0) == {}
    assert lost(told, poll(1000.1 + LISTED_S), lambda node: False, 60.0) == {
        "n": "its pilot was lost on its way"
    }


NAMES = ("a", "b", "c")
SOME = st.sampled_from(NAMES)


class Lives(RuleBasedStateMachine):
    """A machine of three nodes, its pilots and main jobs, and what the daemon knows of it."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.number = 100.0, 0
        self.records = Records()
        self.told: set[str] = set()  # the pool as events tell it
        self.main: set[str] = set()  # nodes with main jobs
        self.hidden: set[str] = set()  # nodes that the scheduler does not show
        self.epilogs: set[str] = set()  # nodes that are being cleared
        self.there: list[Pilot] = []  # what the scheduler has
        self.on_its_way: list[Pilot] = []  # submissions without an answer
        self.vacating: dict[str, Pilot] = {}
        self.submitted: set[str] = set()  # tags
        self.to_end: set[Pilot] = set()
        self.seen = self.snapshot()
        self.works = True

    def snapshot(self) -> Snapshot:
        nodes = tuple(
            Node(name=n, state=NodeState.BUSY, why="job" if n in self.main else BEING_CLEARED)
            if n in self.main | self.epilogs
            else Node(name=n, state=NodeState.IDLE)
            for n in NAMES
            if n not in self.hidden
        )
        return Snapshot(time=self.now, nodes=nodes, pilots=tuple(self.there))

    def moves(self, records: Records) -> None:
        """Take new records in: every change of a phase is one of the table."""
        for name in NAMES:
            before, then = phase_of(self.records, name), phase_of(records, name)
            assert then is before or (then or "none") in NEXT[before].split(), (name, before, then)
        self.records = records

    def perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SubmitPilots):
                for pilot in effect.pilots:
                    assert pilot.tag not in self.submitted, "nothing is submitted twice"
                    self.submitted.add(pilot.tag)
                    self.on_its_way.append(pilot)
            elif isinstance(effect, CancelPilots):
                assert not set(effect.pilots) & set(self.records.pilots.values()), "what is ours stays"
                self.cancel(effect.pilots)
            elif isinstance(effect, VacateNodes):
                self.vacating |= {n: p for n, p in self.records.pilots.items() if n in effect.nodes}
            elif isinstance(effect, NodesChanged):
                assert effect.left <= self.told and not effect.joined & self.told
                self.told = (self.told - effect.left) | effect.joined

    def cancel(self, pilots: Iterable[Pilot]) -> None:
        pilots = tuple(pilots)
        self.records = lifecycle.cancelled(self.records, pilots, self.now)
        self.to_end.update(pilots)
        if self.works:
            self.epilogs |= {pilot.node for pilot in self.there if pilot in pilots}
            self.there = [pilot for pilot in self.there if pilot not in pilots]

    @rule(main=st.sets(SOME), hidden=st.sets(SOME, max_size=1), by=st.sampled_from([0.1, 1.0, 10.0]))
    def time_goes_on(self, main: set[str], hidden: set[str], by: float) -> None:
        """Main jobs come and go; those that come end the pilots that are there. Epilogs take a moment."""
        self.now += by
        self.main, self.hidden = main, hidden
        self.epilogs = self.epilogs - main if by < 1 else set()
        self.there = [pilot for pilot in self.there if pilot.node not in main]

    @rule()
    def scheduler_is_asked(self) -> None:
        self.seen = self.snapshot()

    @rule(given_up=st.sets(SOME, max_size=1), barred=st.sets(SOME, max_size=1), closed=st.booleans())
    def poll_is_taken_in(self, given_up: set[str], barred: set[str], closed: bool) -> None:
        """It may be older than what is known."""
        seen = self.seen
        self.moves(landed(self.records, seen))
        records, effects = reconciled(self.records, seen)
        self.moves(records)
        self.perform(effects)
        terms = Terms(
            debounce_s=1.0,
            rejoin_s=2.0,
            closed=closed,
            given_up=frozenset(given_up | barred) | self.records.releasing,
            barred=dict.fromkeys(barred, "bad"),
        )
        records, effects = polled(self.records, seen, terms)
        self.moves(records)
        self.perform(effects)
        busy = {node.name for node in seen.nodes if node.state is NodeState.BUSY} | self.hidden_in(seen)
        for node in seen.nodes:
            one = self.records.nodes.get(node.name)
            assert node.why != BEING_CLEARED or one is None or one.phase is not NodePhase.RESTING
        assert not self.records.pool & busy, "no node is ours and a main job's"
        assert not self.records.pool & terms.given_up
        gone = list(lost(self.records, seen, lambda node: False, 60.0))
        self.loses(gone)
        self.moves(lifecycle.taken(self.records, gone, self.now))
        self.drops(gone)

    def hidden_in(self, seen: Snapshot) -> set[str]:
        return set(NAMES) - {node.name for node in seen.nodes}

    def loses(self, nodes: Iterable[str]) -> None:
        records, left = lifecycle.left(self.records, nodes, self.now)
        self.moves(records)
        self.told -= left

    @rule(nodes=st.sets(SOME, min_size=1), user=st.sampled_from(["ann", "bob"]))
    def pilots_are_ordered(self, nodes: set[str], user: str) -> None:
        wanted = []
        for node in sorted(nodes):
            self.number += 1
            wanted.append(Pilot(tag=str(self.number), node=node, user=user))
        records, submit = lifecycle.ordered(self.records, wanted, self.now)
        for pilot in submit.pilots:
            assert pilot.node in self.records.pool and pilot.node not in self.records.pilots
        self.moves(records)
        self.perform([submit])

    @precondition(lambda self: self.on_its_way)
    @rule(refused=st.booleans(), elsewhere=st.sampled_from([None, *NAMES]))
    def submission_is_answered(self, refused: bool, elsewhere: str | None) -> None:
        pilot = self.on_its_way.pop(0)
        if refused:
            self.moves(lifecycle.refused(self.records, pilot, self.now))
            return
        where = pilot if elsewhere is None else Pilot(tag=pilot.tag, node=elsewhere, user=pilot.user)
        self.there.append(where)
        self.moves(lifecycle.answered(self.records, pilot, self.now))
        if self.records.pilots.get(pilot.node) != pilot and not self.records.awaits(pilot.tag):
            self.cancel([where])  # by its tag

    @rule(node=SOME)
    def agent_comes(self, node: str) -> None:
        pilot = self.records.pilots.get(node)
        if pilot in self.there and node not in self.records.releasing:
            self.moves(lifecycle.reported(self.records, node, self.now))

    @rule(node=SOME)
    def agent_is_told_to_end(self, node: str) -> None:
        if node in self.records.pilots:
            self.loses([node])
            self.moves(lifecycle.taken(self.records, [node], self.now))
            self.moves(lifecycle.ended(self.records, [node], self.now, by_us=False)[0])

    @rule(node=SOME)
    def drops_one(self, node: str) -> None:
        self.drops([node])

    def drops(self, nodes: Iterable[str]) -> None:
        records, effects = lifecycle.dropped(self.records, nodes, self.now)
        self.moves(records)
        self.perform(effects)

    @precondition(lambda self: self.vacating)
    @rule(spare=st.booleans())
    def workers_have_left(self, spare: bool) -> None:
        name, pilot = self.vacating.popitem()
        if spare:
            self.moves(lifecycle.spared(self.records, [name], self.now))
        elif self.records.pilots.get(name) == pilot:
            records, cancel = lifecycle.ended(self.records, [name], self.now)
            self.moves(records)
            self.perform([cancel])

    @rule(works=st.booleans())
    def scheduler_ends_pilots(self, works: bool) -> None:
        self.works = works

    @invariant()
    def records_are_sound(self) -> None:
        tags = [pilot.tag for pilot in self.records.pilots.values()]
        assert len(tags) == len(set(tags)), "a pilot is on one node"
        assert self.records.pool == self.told
        for name, one in self.records.nodes.items():
            assert (one.pilot is not None) == (one.phase in HELD or one.phase is NodePhase.RELEASING)
            assert one.pilot is None or one.pilot.node == name
            assert one.pooled <= (one.phase in HELD or one.phase is NodePhase.FREE)
            assert one.phase is not NodePhase.FREE or one.pooled
            assert one.phase is not NodePhase.CLEARING or one.end is not None

    def teardown(self) -> None:
        """What was ordered to end ends, and so does what nobody knows, once the scheduler does as told."""
        self.works, self.hidden = True, set()
        while self.on_its_way:
            self.submission_is_answered(False, None)
        while self.vacating:
            self.workers_have_left(False)
        for _ in range(30):
            self.now, self.epilogs = self.now + 60.0, set()
            self.seen = self.snapshot()
            self.poll_is_taken_in(set(), set(), False)
            while self.vacating:
                self.workers_have_left(False)
        assert not self.to_end & set(self.there)
        assert set(self.there) <= set(self.records.pilots.values())
        assert all(one.phase in HELD or one.phase is NodePhase.FREE for one in self.records.nodes.values())
        assert self.records.pool == set(NAMES) - self.main, "what is idle is ours again"


Lives.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestAnySequence = Lives.TestCase
