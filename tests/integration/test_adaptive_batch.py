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


def figures(stage: Stage) -> dict[str, float]:
    """The figures that were reported last."""
    said = stage.heard("progress")
    return said[-1]["metrics"] if said else {}


def until_larger(stage: Stage, initial: int = INITIAL) -> None:
    """Wait until a batch is larger than the initial one."""
    until(
        lambda: figures(stage).get("goodput.batch", 0) > initial,
        "the batch has grown",
        story=lambda: f"{figures(stage)}\n{stage.story()}",
    )


def stop_soon(stage: Stage, folder: Path) -> None:
    """Have all members stop at one step that none of them has reached."""
    now = max(m["step"] for kind in ("joined", "progress") for m in stage.heard(kind))
    (folder / "half").write_text(str(now + 300))
    (folder / "half").rename(folder / "stop")


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
        stage.kill("a")
        stage.publish("b", "c")
        stage.start("d")
        stage.publish("b", "c", "d")
        stage.publish("c", "d", leaving=("b",))
        stage.end("b")
        stop_soon(stage, tmp_path)
        stage.end("c", "d")
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
        stop_soon(stage, tmp_path)
        stage.end("a", "b")
        sizes = used_once(tmp_path)
        assert min(figures(stage)[f"goodput.{name}"] for name in ("speed", "efficiency", "noise")) > 0
        assert 4 in sizes
        assert 4 < max(sizes) <= 12
