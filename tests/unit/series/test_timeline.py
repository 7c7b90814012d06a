"""Who had which node when, from events; against a run through the same changes second by second."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.series.timeline import Occupancy, Stretch, rescales, timeline
from bftrainer.series.timeline_svg import Chapter, svg

NODES = ("n1", "n2", "n3")


def event(time: float, kind: str = "WorkersReady", actions: Any = (), **data: Any) -> dict[str, Any]:
    own = (
        {"left": [], "joined": [], "vacated": [], "reason": "poll", **data}
        if kind == "NodesChanged"
        else data
    )
    return {"time": time, "kind": kind, "data": own, "actions": list(actions)}


def start(node: str, trainer: int = 1) -> dict[str, Any]:
    return {"kind": "StartWorker", "trainer": trainer, "data": {"node": node}}


def regroup(*members: str, leaving: tuple[str, ...] = (), trainer: int = 1) -> dict[str, Any]:
    return {"kind": "Regroup", "trainer": trainer, "data": {"members": members, "leaving": leaving}}


def row(node: str, state: str = "idle", role: str | None = None) -> dict[str, Any]:
    return {"node": node, "state": state, "role": role}


def test_a_node_goes_from_a_main_job_to_a_trainer_and_back() -> None:
    events = [
        event(1.0, "NodesChanged", joined=["n1"], actions=[start("n1")]),
        event(3.0, actions=[regroup("n1")]),
        event(8.0, "NodesChanged", left=["n1"], vacated=["n1"], actions=[regroup(leaving=("n1",))]),
    ]
    line = timeline(events, [], [row("n1", "busy")], 0.0, 10.0)
    assert line.nodes["n1"] == (
        Stretch(0.0, 1.0, Occupancy.BUSY),
        Stretch(1.0, 3.0, Occupancy.STARTING, 1),
        Stretch(3.0, 8.0, Occupancy.TRAINING, 1),
        Stretch(8.0, 10.0, Occupancy.BUSY),
    )


def test_a_node_whose_pilot_is_gone_is_not_a_main_jobs() -> None:
    events = [
        event(1.0, actions=[regroup("n1", "n2")]),
        event(4.0, "NodesChanged", left=["n2"], reason="its pilot is gone", actions=[regroup("n1")]),
    ]
    line = timeline(events, [], [], 0.0, 5.0)
    assert [s.use for s in line.nodes["n2"]] == [Occupancy.STARTING, Occupancy.TRAINING, Occupancy.OUT]
    assert line.nodes["n1"][-1] == Stretch(1.0, 5.0, Occupancy.TRAINING, 1)


def test_what_no_event_names_has_been_as_it_is() -> None:
    pool = [
        row("n1", "busy"),
        row("n2", role="member"),
        row("n3", role="joining"),
        row("n4", "unused"),
        row("n5"),
    ]
    line = timeline([], [], pool, 0.0, 5.0)
    assert [own[0].use.value for own in line.nodes.values()] == [
        *("main job", "training", "starting", "not usable", "idle")
    ]
    assert all(own == (Stretch(0.0, 5.0, own[0].use),) for own in line.nodes.values())


def test_what_happened_before_the_begin_counts() -> None:
    events = [event(-9.0, "NodesChanged", joined=["n1"]), event(-5.0, actions=[start("n1")])]
    assert timeline(events, [], [], 0.0, 5.0).nodes["n1"] == (Stretch(0.0, 5.0, Occupancy.STARTING, 1),)


def test_a_rescale_pauses_as_long_as_the_slowest_of_its_members() -> None:
    pause = {"trainer": 1, "generation": 2, "kind": "join", "size": 2, "lost_steps": 0}
    found = rescales([{**pause, "time": 1.0, "pause_s": 0.1}, {**pause, "time": 1.1, "pause_s": 0.3}])
    assert [(r.time, r.pause_s) for r in found] == [(1.0, 0.3)]


ACTIONS = st.one_of(
    st.builds(start, st.sampled_from(NODES), st.integers(1, 2)),
    st.builds(
        lambda members, trainer: regroup(*sorted(members), trainer=trainer),
        st.sets(st.sampled_from(NODES)),
        st.integers(1, 2),
    ),
)
EVENTS = st.lists(
    st.one_of(
        st.builds(lambda actions: event(0.0, actions=actions), st.lists(ACTIONS, max_size=2)),
        st.builds(
            lambda left, joined: event(0.0, "NodesChanged", left=sorted(left), joined=sorted(joined - left)),
            st.sets(st.sampled_from(NODES)),
            st.sets(st.sampled_from(NODES)),
        ),
    ),
    max_size=12,
)


@given(EVENTS, st.integers(0, 12), st.integers(1, 12))
def test_stretches_cover_the_time_without_gaps_and_neighbours_differ(
    events: list[dict[str, Any]], begin: int, length: int
) -> None:
    events = [{**e, "time": float(i)} for i, e in enumerate(events)]
    line = timeline(events, [], [row(node) for node in NODES], float(begin), float(begin + length))
    for own in line.nodes.values():
        assert own[0].begin == begin and own[-1].end == begin + length
        for one, other in pairwise(own):
            assert one.end == other.begin and (one.use, one.trainer) != (other.use, other.trainer)
    moments = [begin + 0.5 + i for i in range(length)]
    for at in moments:  # what is true at a moment follows from the events before it alone
        past = timeline(
            [e for e in events if e["time"] <= at], [], [row(n) for n in NODES], at - 0.1, at + 0.1
        )
        for node in NODES:
            if any(node in str(e) for e in events if e["time"] <= at):
                assert past.at(node, at) is not None
                found, expected = line.at(node, at), past.at(node, at)
                assert found and expected and (found.use, found.trainer) == (expected.use, expected.trainer)


def test_the_svg_is_well_formed_whatever_the_names() -> None:
    events = [
        event(1.0, "NodesChanged", joined=["<&>"], actions=[start("<&>")]),
        event(3.0, actions=[regroup("<&>")]),
    ]
    pause = {
        "time": 3.1,
        "trainer": 1,
        "generation": 2,
        "kind": "join",
        "size": 2,
        "pause_s": 0.1,
        "lost_steps": 0,
    }
    line = timeline(events, [pause], [row("n2")], 0.0, 5.0)
    chapters = [Chapter(2.0, "1. <grows>", "it & grows " * 40)]
    for film in (True, False):
        root = ElementTree.fromstring(svg(line, {1: '"<t>"'}, chapters, title="a < b", film=film))  # noqa: S314
        tags = Counter(element.tag.rpartition("}")[2] for element in root.iter())
        assert tags["style"] == film and tags["rect"] > 4 and tags["tspan"] == 4
        assert float(root.attrib["viewBox"].split()[3]) > 150
