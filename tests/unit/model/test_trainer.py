"""What a trainer says of itself: its program, its status, and the workers that are no members yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.model.trainer import Trainer, TrainerSpec, TrainerStatus


def trainer(*command: str) -> Trainer:
    return Trainer(id=1, spec=TrainerSpec(name="t", command=command, n_min=1, n_max=4), submitted_at=0.0)


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (("python", "train.py", "--lr", "0.1"), ("python", "train.py")),
        (("python", "-m", "pkg.train", "--lr"), ("python", "-m", "pkg.train")),
        (("train", "--lr"), ("train", "--lr")),
        (("train",), ("train",)),
        ((), ()),
    ],
)
def test_a_program_is_a_command_without_its_options(
    command: tuple[str, ...], program: tuple[str, ...]
) -> None:
    assert trainer(*command).spec.program == ("", ".", *program)


def test_a_program_is_one_users() -> None:
    anns, bobs = (
        TrainerSpec(name="t", command=("a",), n_min=1, n_max=1, user=user) for user in ("ann", "bob")
    )
    assert anns.program != bobs.program


def test_the_status_follows_nodes_and_members() -> None:
    waiting = trainer()
    starting = replace(waiting, nodes=frozenset("ab"), started={"a": 3, "b": 3})
    running = replace(starting, members=("b",))
    found = [t.status for t in (waiting, starting, running)]
    assert found == [TrainerStatus.WAITING, TrainerStatus.STARTING, TrainerStatus.RUNNING]
    assert [status for status in TrainerStatus if status.final] == [
        TrainerStatus.COMPLETED,
        TrainerStatus.CANCELLED,
        TrainerStatus.FAILED,
    ]
    assert starting.joining == {"a": 3, "b": 3}
    assert running.joining == {"a": 3}
