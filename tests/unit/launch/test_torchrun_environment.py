"""What torchrun gives the processes of nodes that run several each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.launch.job import WorkerView
from bftrainer.launch.messages import go
from bftrainer.launch.torchrun.launcher import environment


@given(st.lists(st.integers(1, 8), min_size=1, max_size=10))
def test_ranks_follow_nodes_and_all_agree_on_the_sizes(counts: list[int]) -> None:
    both = [
        environment(name="a", run=3, group=group, counts=counts, address="10.0.0.1", port=7)
        for group in range(len(counts))
    ]
    nodes = [[{**common, **own} for own in each] for common, each in both]
    ranks = [int(env["RANK"]) for node in nodes for env in node]
    assert ranks == list(range(sum(counts)))
    for group, (node, count) in enumerate(zip(nodes, counts, strict=True)):
        assert [env["LOCAL_RANK"] for env in node] == [str(i) for i in range(count)]
        for env in node:
            assert (env["GROUP_RANK"], env["LOCAL_WORLD_SIZE"]) == (str(group), str(count))
            assert env["WORLD_SIZE"] == env["ROLE_WORLD_SIZE"] == str(sum(counts))
            assert env["GROUP_WORLD_SIZE"] == str(len(counts)) and env["ROLE_RANK"] == env["RANK"]


def test_what_all_processes_of_a_node_have_in_common_is_made_and_told_once() -> None:
    common, each = environment(name="a", run=3, group=0, counts=[1024], address="10.0.0.1", port=7)
    assert {name for own in each for name in own} == {"RANK", "ROLE_RANK", "LOCAL_RANK"}
    several = go(1, WorkerView(1), common, each)
    assert several["env"] == common and several["each"] == each
    alone = go(1, WorkerView(1), common, each[:1])
    assert alone["env"] == {**common, **each[0]} and "each" not in alone
    assert "each" not in go(1, WorkerView(1, workers=1024), {"HOROVOD_ELASTIC": "1"})
