"""Hugging Face's Trainer while nodes join, leave and die, beside the same training left alone."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import framework_story as story
from tests.support.site import running_at_will

SCRIPT = "train_huggingface.py"
LENGTH, BATCH, EPOCHS = 60, 12, 12

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed"),
]


def test_hugging_face_trains_the_same_weights_while_nodes_come_and_go(tmp_path: Path) -> None:
    alone, churned = tmp_path / "alone", tmp_path / "churned"
    alone.mkdir()
    churned.mkdir()
    story.undisturbed(SCRIPT, alone)
    with running_at_will("a", "b", "c", t_fwd_s=60) as site:
        ended = story.disturbed(site, SCRIPT, churned)
        assert (ended["status"], ended["samples"]) == ("completed", EPOCHS * LENGTH), site.story()
    taken, sizes = story.used(churned)
    steps = list(taken.values())
    assert sizes == {1, 2, 3}
    assert len(steps) == EPOCHS * LENGTH // BATCH
    per_epoch = LENGTH // BATCH
    for first in range(0, len(steps), per_epoch):
        samples = [sample for step in steps[first : first + per_epoch] for sample in step]
        assert sorted(samples) == list(range(LENGTH)), "every sample of an epoch once"
    assert ended["metrics"]["epoch"] == EPOCHS
    assert story.difference(alone, churned) < 1e-4
