"""Replays in which single GPUs are shared out, and of the same trainers on whole nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bftrainer.replay import scenario
from bftrainer.replay.evaluate import evaluate
from bftrainer.replay.inputs import chosen
from bftrainer.replay.workload import in_nodes
from bftrainer.spec.parse import parse_many

TRAINERS = """
- name: one
  command: [train]
  gpus: {max: 2}
  work: {samples: 1000000}
  curve: [[1, 10], [2, 20]]
  rescale: {up: {}, down: {}}
- name: two
  command: [train]
  gpus: {max: 8}
  work: {samples: 1000000}
  curve: {local: [[1, 5], [8, 40]], across: [[1, 4], [8, 32]]}
  scalability: given
  rescale: {up: {}, down: {}}
"""


def figures_of(folder: Path, log: str, **parameters: Any) -> dict[str, Any]:
    (folder / "log.csv").write_text("idle_start,idle_end,node\n" + log)
    (folder / "trainers.yaml").write_text(TRAINERS)
    what = {"log": folder / "log.csv", "workload": folder / "trainers.yaml", **parameters}
    return evaluate(scenario.of(what)).figures


def test_trainers_share_the_gpus_of_a_node(tmp_path: Path) -> None:
    """By hand: on 4 GPUs 2 * 10 + 2 * 5 samples/s, for 100 s."""
    figures = figures_of(tmp_path, "0,100,a\n", share="gpu", gpus_per_node=4)
    assert figures["samples"] == pytest.approx(3000)
    assert figures["node_hours"] == pytest.approx(400 / 3600), "of GPUs"


def test_dedicated_gpus_are_on_as_few_nodes_as_hold_them(tmp_path: Path) -> None:
    """On one node nothing is lost, neither by a trainer with two speeds nor by one of whole nodes."""
    figures = figures_of(tmp_path, "0,100,a\n", share="gpu", gpus_per_node=4)
    assert figures["efficiency_u"] == pytest.approx(1.0)
    whole = "- {name: whole, command: [train], nodes: 1, work: {samples: 1000000}, curve: [[1, 7]]}\n"
    (tmp_path / "whole.yaml").write_text(whole)
    what = {"log": tmp_path / "log.csv", "workload": tmp_path / "whole.yaml", "init_s": 0, "stall_up_s": 0}
    figures = evaluate(scenario.of({**what, "share": "gpu", "gpus_per_node": 4})).figures
    assert figures["efficiency_u"] == pytest.approx(1.0)


def test_dedicated_nodes_of_a_class_have_all_gpus_that_were_seen(tmp_path: Path) -> None:
    """Without `gpus_per_node`: the class has one node, and the log four GPUs of it."""
    log = "".join(f"0,100,a:{gpu}\n" for gpu in range(4))
    figures = figures_of(tmp_path, log, share="gpu", node_classes={"fat": "a"})
    assert (figures["efficiency_u"], figures["equivalent_nodes"]) == pytest.approx((1.0, 4.0))


def test_gpus_of_several_nodes_are_slower_if_the_curve_says_so(tmp_path: Path) -> None:
    """By hand: the first has 2 * 10 on any two GPUs, the second 2 * 4 on those of two nodes."""
    log = "0,100,a:0\n0,100,b:1\n0,100,c:0\n0,100,d:3\n"
    figures = figures_of(tmp_path, log, share="gpu", gpus_per_node=4)
    assert figures["samples"] == pytest.approx(100 * (20 + 2 * 4))


def test_who_is_slower_on_several_nodes_begins_on_one(tmp_path: Path) -> None:
    """By hand: the second has a, 2 * 5; the first, submitted before it, is as fast on b and c."""
    log = "0,100,a:0\n0,100,a:1\n0,100,b:0\n0,100,c:3\n"
    figures = figures_of(tmp_path, log, share="gpu", gpus_per_node=4)
    assert figures["samples"] == pytest.approx(100 * (20 + 2 * 5))


def test_the_same_trainers_on_whole_nodes(tmp_path: Path) -> None:
    """By hand: one node of 4 GPUs gives the first 20 samples/s on two of them, or the second 20 on all."""
    figures = figures_of(tmp_path, "0,100,a\n0,50,b:0\n0,50,b:1\n", gpus_per_node=4)
    assert figures["samples"] == pytest.approx(100 * 20 + 50 * 20), "b has but two GPUs, and counts as idle"
    (one, two) = (in_nodes(spec, 4) for spec in parse_many(TRAINERS, "trainers.yaml"))
    assert (one.n_min, one.n_max, one.curve) == (1, 1, ((1, 20.0),))
    assert (two.n_max, two.curve) == (2, ((1, 20.0), (2, 32.0)))


def test_nodes_are_chosen_with_all_their_gpus() -> None:
    names = [f"{node}:{i}" for node in "ab" for i in range(2)]
    assert chosen(names, 1, None) == {"a:0", "a:1"}


def test_impossible_words_are_refused() -> None:
    with pytest.raises(scenario.ScenarioError, match=r"share: 'gpus' cannot be used\. Give one of node, gpu"):
        scenario.of({"log": "l", "workload": "w", "share": "gpus"})
    with pytest.raises(
        scenario.ScenarioError, match=r"gpu_jobs: 'worst-fit' cannot be used. Give one of first-fit, best-fit"
    ):
        scenario.of({"log": "l", "workload": "w", "gpu_jobs": "worst-fit"})
