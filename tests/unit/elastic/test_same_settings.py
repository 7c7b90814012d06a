"""A node that gives its run other settings than the others, or than at an earlier start, stops."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bftrainer import elastic
from bftrainer.elastic.checks.same_settings import PART, SameSettings
from bftrainer.elastic.loop.observers import ReplicasDiffer


def run_of(batch_size: int = 4, **options: Any) -> elastic.Run:
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return elastic.Run(model, optimizer, torch.ones(16, 1), batch_size=batch_size, **options)


def exchange(theirs: elastic.Run, mine: elastic.Run) -> None:
    mine._parts.state.restore(theirs._parts.state.snapshot())


@pytest.mark.parametrize(
    ("theirs", "mine", "words"),
    [
        ({"epochs": 14}, {"epochs": 3}, "epochs is 3 here, 14 there"),
        ({"seed": 1}, {"seed": 2}, "seed is 2 here, 1 there"),
        ({"batch_size": 4}, {"batch_size": 8}, "samples of a step on 1 nodes is 8 here, 4 there"),
        ({"clip_norm": 1.0}, {}, "clip_norm is None here, 1.0 there"),
    ],
)
def test_other_settings_are_named(theirs: dict[str, Any], mine: dict[str, Any], words: str) -> None:
    exchange(run_of(**theirs), run_of(**theirs))
    with pytest.raises(ReplicasDiffer, match=words):
        exchange(run_of(**theirs), run_of(**mine))


def test_a_node_may_compute_fewer_samples_at_once_where_a_policy_says_what_a_step_takes() -> None:
    policy = elastic.FixedGlobal(8)
    exchange(run_of(batch_size=8, policy=policy), run_of(batch_size=2, policy=policy))


def test_another_trainer_may_go_on_with_other_settings_and_an_old_checkpoint_has_none() -> None:
    SameSettings({"epochs": "20"}, 2).load_state_dict(SameSettings({"epochs": "10"}, 1).state_dict())
    old = run_of()._parts.state.snapshot()
    del old["parts"][PART]
    run_of(epochs=7)._parts.state.restore(old)
