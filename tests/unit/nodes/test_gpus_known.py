"""What polls and agents say of nodes' GPUs, and what of it the engine and admins are told."""

from __future__ import annotations

from bftrainer.model.machine import Node, NodeState
from bftrainer.nodes.gpus import REMEMBERED_S, GpusKnown


def nodes(**gpus: int) -> list[Node]:
    return [Node(name=name, state=NodeState.BUSY, gpus=count) for name, count in gpus.items()]


def test_a_poll_tells_what_changed_and_names_nodes_that_had_others() -> None:
    known = GpusKnown()
    first = known.poll(nodes(n1=4, n2=4, n3=0), {}, 1.0)
    assert first and first.nodes == {"n1": 4, "n2": 4} and first.reason == ""
    assert known.poll(nodes(n1=4, n2=4, n3=0), {}, 2.0) is None
    fell = known.poll(nodes(n1=4, n2=3, n3=0), {}, 3.0)
    assert fell and fell.nodes == {"n2": 3}
    assert fell.reason == "other numbers of GPUs than before: n2 has 3, and had 4"
    assert known.most["n2"] == 4
    assert known.poll(nodes(n1=4), {}, 4.0) is None, "a node that is not listed may come back as it was"


def test_single_gpus_count_for_their_node() -> None:
    known = GpusKnown()
    known.poll(nodes(**{"n1:0": 1, "n1:1": 1}), {}, 1.0)
    fell = known.poll(nodes(**{"n1:0": 1}), {}, 2.0)
    assert fell and fell.reason == "other numbers of GPUs than before: n1 has 1, and had 2"


def test_what_an_agent_says_counts_while_its_pilot_is_there_and_for_a_while_after() -> None:
    known = GpusKnown()
    known.poll(nodes(n1=4), {}, 1.0)
    assert known.says("n1", "ann", 4, 2.0) is None, "as the scheduler says"
    told = known.says("n1", "ann", 3, 3.0, "too few")
    assert told and told.told == {"ann": {"n1": 3}} and told.reason == "too few"
    assert known.poll(nodes(n1=4), {"n1": "ann"}, 10_000.0) is None
    assert known.poll(nodes(n1=4), {"n1": "bob"}, 10_000.0 + REMEMBERED_S / 2) is None
    over = known.poll(nodes(n1=4), {}, 10_000.0 + REMEMBERED_S)
    assert over and over.told == {"ann": {"n1": None}}


def test_the_engine_is_told_only_what_is_new() -> None:
    known = GpusKnown()
    assert known.says("n1", "ann", 2, 1.0)
    second = known.says("n2", "ann", 2, 1.0)
    assert second and second.told == {"ann": {"n2": 2}}
    assert known.says("n2", "ann", 2, 2.0) is None
    polled = known.poll(nodes(n1=2, n2=4), {"n1": "ann", "n2": "ann"}, 3.0)
    assert polled and polled.told == {"ann": {"n1": None}}, "both say the same now"


def test_an_agent_that_says_other_numbers_all_the_time_costs_no_plan_each_time() -> None:
    known = GpusKnown()
    known.poll(nodes(n1=4), {}, 0.0)
    told = [known.says("n1", "ann", count % 4, count / 20) for count in range(400)]
    assert len([change for change in told if change]) == 2, "one each ten seconds"
    polled = known.poll(nodes(n1=4), {"n1": "ann"}, 20.0)
    assert polled and polled.told == {"ann": {"n1": 3}}, "the poll tells the last one"
