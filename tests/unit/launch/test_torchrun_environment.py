"""What torchrun gives the processes of nodes that run several each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.launch.torchrun.launcher import environment


@given(st.lists(st.integers(1, 8), min_size=1, max_size=10))
def test_ranks_follow_nodes_and_all_agree_on_the_sizes(counts: list[int]) -> None:
    nodes = [
        environment(name="a", run=3, group=group, counts=counts, address="10.0.0.1", port=7)
        for group in range(len(counts))
    ]
    ranks = [int(env["RANK"]) for node in nodes for env in node]
    assert ranks == list(range(sum(counts)))
    for group, (node, count) in enumerate(zip(nodes, counts, strict=True)):
        assert [env["LOCAL_RANK"] for env in node] == [str(i) for i in range(count)]
        for env in node:
            assert (env["GROUP_RANK"], env["LOCAL_WORLD_SIZE"]) == (str(group), str(count))
            assert env["WORLD_SIZE"] == env["ROLE_WORLD_SIZE"] == str(sum(counts))
            assert env["GROUP_WORLD_SIZE"] == str(len(counts)) and env["ROLE_RANK"] == env["RANK"]
