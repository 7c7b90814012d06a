"""Partial back-propagation goes through changes of nodes: every step has all parts, and replicas agree."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
import torch

from tests.support.stage import staged
from tests.support.waiting import until

PARAMETERS = 8


@pytest.mark.parametrize("way", ["partial", pytest.param("partial_mixed", marks=pytest.mark.nightly)])
def test_no_step_is_lost_and_replicas_agree_through_changes(way: str, tmp_path: Path) -> None:
    with staged(way, tmp_path) as stage:
        stage.start("a", "b", "c")
        stage.publish("a", "b")
        until(lambda: "partial.bytes" in stage.figures(), "parts are computed", story=stage.story)
        stage.publish("a", "b", "c")
        until(lambda: len(stage.heard("progress", size=3)) > 1, "three take steps", story=stage.story)
        stage.through_losses()
        one, other = (torch.load(path) for path in tmp_path.glob("*.pt"))
        for name, weights in one["model"].items():
            assert weights.isfinite().all()
            assert torch.equal(weights, other["model"][name])
        said = stage.figures()
        assert 0 < said["partial.bytes"] < said["partial.bytes_full"]
        roles = defaultdict(set)
        for done in (one, other):
            for step, (size, count) in done["computed"].items():
                roles[size].add(count)
                assert 0 < count <= PARAMETERS, step
        assert roles[2] == {4, 8}, "the last half, and all of it, in turn"
        assert roles[3] >= {2, 4, 8}, "thirds of the modules"
