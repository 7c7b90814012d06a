"""What `bftrainer show` says of the GPUs of a trainer's nodes."""

from __future__ import annotations

from dataclasses import replace

from bftrainer.daemon.answers.views.trainers import gpu_note, mixed
from bftrainer.model.machine import Node, NodeState
from bftrainer.schedulers.slurm.queue.gpus import kinds, types
from tests.support.engine_world import World


def node(name: str, *types: str) -> Node:
    return Node(name=name, state=NodeState.IDLE, types=types, gpus=2)


SEEN = [node("a", "a100"), node("b", "a100"), node("c", "v100"), node("d"), node("e", "a100", "v100")]


def test_a_trainer_whose_nodes_have_different_types_is_told_which() -> None:
    for alike in ("", "ab", "c", "abd", "dx"):
        assert mixed(SEEN, alike) == ""
    told = "its workers have GPUs of different types (a100 on a, b; v100 on c): an admin can keep them apart"
    assert mixed(SEEN, "abc") == f"{told} (node_classes)"
    assert "a100 on e; v100 on e" in mixed(SEEN, "e")
    many = [*(node(f"n{i}", "a100") for i in range(9)), node("z", "v100")]
    assert "a100 on n0, n1, n2 and 6 more; v100 on z" in mixed(many, [n.name for n in many])


def test_both_notes_are_told() -> None:
    world = World().running("ac", n_max=2)
    trainer = world.trainer(1)
    assert gpu_note(trainer, world.state, SEEN[:2]) == ""
    trainer = replace(trainer, spec=replace(trainer.spec, workers=4))
    state = replace(world.state, gpus=replace(world.state.gpus, nodes={"a": 2}))
    assert gpu_note(trainer, state, SEEN).count("; it asks for 4 workers a node") == 1


def test_types_are_those_that_slurm_names() -> None:
    assert types(kinds("gpu:a100:2,gpu:v100:1,gpu:3")) == ("a100", "v100")
