"""A batch that adapts goes through changes of nodes: all decide alike, and no sample is used twice."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from tests.support.stage import Stage, staged
from tests.support.stage_adaptive import INITIAL, MOST
from tests.support.stage_scripts import LENGTH
from tests.support.waiting import until


def until_larger(stage: Stage, initial: int = INITIAL) -> None:
    """Wait until a batch is larger than the initial one."""
    until(
        lambda: stage.figures().get("goodput.batch", 0) > initial,
        "the batch has grown",
        story=lambda: f"{stage.figures()}\n{stage.story()}",
    )


def used_once(folder: Path) -> set[int]:
    """Assert that no epoch used a sample twice, or left one out but for those that a lost worker has not
    noted; returns how many samples the steps had."""
    used: dict[int, list[int]] = defaultdict(list)
    sizes: dict[int, int] = defaultdict(int)
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            note = json.loads(line)
            used[note["epoch"]] += note["indices"]
            sizes[note["step"]] += len(note["indices"])
    missing = 0
    for epoch in range(max(used)):  # the last one is not over
        assert len(used[epoch]) == len(set(used[epoch])), f"a sample of epoch {epoch} was used twice"
        missing += LENGTH - len(used[epoch])
    assert missing <= MOST, "more is missing than the last note of the worker that was killed"
    return set(sizes.values())


@pytest.mark.parametrize("way", ["adapts", "adapts_ddp", "adapts_mixed", "adapts_by_hand", "adapts_large"])
def test_all_nodes_have_one_batch_through_changes(way: str, tmp_path: Path) -> None:
    with staged(way, tmp_path) as stage:
        stage.start("a", "b", "c")
        stage.publish("a", "b")
        until_larger(stage)
        stage.publish("a", "b", "c")
        stage.through_losses()
        if way == "adapts_large":
            assert {m["node"] for m in stage.heard("caught_up")} >= {"c", "d"}
        one, other = (torch.load(path) for path in tmp_path.glob("*.pt"))
        assert one["step"] == other["step"]
        assert one["progress"] == other["progress"] > one["step"], "steps of larger batches count more"
        for name, weights in one["model"].items():
            assert weights.isfinite().all()
            torch.testing.assert_close(weights, other["model"][name], rtol=1e-6, atol=1e-9)
        sizes = used_once(tmp_path)
        assert INITIAL in sizes
        assert INITIAL < max(sizes) <= MOST


def test_a_spec_says_between_which_batches_it_adapts(tmp_path: Path) -> None:
    with staged("adapts", tmp_path, batch={"initial": 4, "max": 12, "lr": "linear"}) as stage:
        stage.start("a", "b")
        stage.publish("a", "b")
        until_larger(stage, 4)
        (tmp_path / "stop").touch()
        stage.end("a", "b")
        sizes = used_once(tmp_path)
        assert min(stage.figures()[f"goodput.{name}"] for name in ("speed", "efficiency", "noise")) > 0
        assert 4 in sizes
        assert 4 < max(sizes) <= 12


def test_a_member_hands_its_state_over_before_it_leaves(tmp_path: Path) -> None:
    with staged("adapts_large", tmp_path) as stage:
        stage.start("a", "b")
        stage.publish("a")
        stage.until("progress")
        stage.publish("a", "b")
        stage.publish("b", leaving=("a",))
        stage.end("a")
        (tmp_path / "stop").touch()
        stage.end("b")
        (left,) = stage.heard("left")
        steps = [m["step"] for m in stage.heard("joined", node="b")]
        assert 0 < steps[0] <= left["step"] <= steps[-1], "b goes on where a has left"
