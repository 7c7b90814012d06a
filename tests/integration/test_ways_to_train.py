"""However a script trains and whatever becomes of its nodes, the weights are those of one process.

With a fixed global batch the mathematics does not depend on the nodes: a run that grows, shrinks and
loses members has to arrive where a plain PyTorch loop does.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bftrainer.elastic.train.source import Source
from tests.support import stage_parts, stage_scripts
from tests.support.stage import Stage, staged
from tests.support.stage_scripts import BATCH, FROZEN_AT, LENGTH, Points, network, own_rate, sgd
from tests.support.waiting import until

WAYS = ["plain", "ddp", "accumulate", "ddp_accumulate", "workers", "by_hand"]


def batches(steps: int, batch: int = BATCH) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The global batches of so many steps, from the first on."""
    points = Points()
    source = Source(points, batch, None, 0)
    epoch = cursor = 0
    for _ in range(steps):
        indices = source.indices(epoch, cursor, min(cursor + batch, LENGTH))
        x, y = (torch.stack([points[i][k] for i in indices]) for k in (0, 1))
        yield x, y
        cursor += len(indices)
        epoch, cursor = (epoch + 1, 0) if cursor == LENGTH else (epoch, cursor)


def reference_course(
    model: torch.nn.Module, steps: int, batch: int = BATCH, *, own: bool = False
) -> Iterator[torch.nn.Module]:
    """`model`, after every one of so many steps of one process that has never heard of bftrainer."""
    optimizer = sgd(model)
    for step, (x, y) in enumerate(batches(steps, batch)):
        if own:
            own_rate(optimizer, step)
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
        yield model


def reference(steps: int, batch: int = BATCH, *, own: bool = False) -> dict[str, torch.Tensor]:
    """The weights after so many steps of such a process; `own`: with a learning rate that it sets."""
    *_, model = reference_course(network(), steps, batch, own=own)
    return model.state_dict()


def used_once(folder: Path, steps: int, batch: int = BATCH) -> set[int]:
    """Assert that the steps used every sample of each epoch once; returns the sizes that were seen.

    A worker that was killed has taken its last steps with it, so only what others noted is complete.
    """
    used: dict[int, list[int]] = defaultdict(list)
    sizes = set()
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            note = json.loads(line)
            used[note["step"]] += note["indices"]
            sizes.add(note["size"])
    per_epoch = -(-LENGTH // batch)
    missing = 0
    for epoch in range(steps // per_epoch):
        seen = [i for step in range(epoch * per_epoch, (epoch + 1) * per_epoch) for i in used[step]]
        assert len(seen) == len(set(seen)), f"a sample of epoch {epoch} was used twice"
        missing += LENGTH - len(seen)
    assert missing <= batch, "more is missing than the last note of the worker that was killed"
    return sizes


def through_changes(stage: Stage) -> int:
    """Two nodes, a third that comes, rank 0 killed, one that leaves; returns how many steps were taken."""
    stage.start("a", "b", "c")
    stage.publish("a", "b")
    stage.publish("a", "b", "c")
    stage.through_losses()
    (steps,) = {torch.load(path)["steps"] for path in stage.folder.glob("*.pt")}
    assert isinstance(steps, int)
    return steps


@pytest.mark.parametrize("way", WAYS)
def test_rescales_and_losses_do_not_change_what_is_learnt(way: str, tmp_path: Path) -> None:
    with staged(way, tmp_path) as stage:
        steps = through_changes(stage)
        found = [torch.load(path) for path in tmp_path.glob("*.pt")]
        assert len(found) == 2
        for weights in found:
            for name, expected in reference(steps).items():
                torch.testing.assert_close(weights["model"][name], expected, rtol=1e-6, atol=1e-9)
        assert used_once(tmp_path, steps) == {2, 3}


@pytest.mark.parametrize("way", ["few", "few_flat", "few_by_hand"])
def test_ranks_without_a_sample_take_part(way: str, tmp_path: Path) -> None:
    with staged(way, tmp_path) as stage:
        steps = through_changes(stage)
        for path in tmp_path.glob("*.pt"):
            for name, expected in reference(steps, 2, own=way != "few_by_hand").items():
                torch.testing.assert_close(torch.load(path)["model"][name], expected, rtol=1e-6, atol=1e-9)
        used_once(tmp_path, steps, 2)


def test_ranks_without_a_sample_have_the_passes_of_the_others(tmp_path: Path) -> None:
    with staged("few_passes", tmp_path) as stage:
        through_changes(stage)
        one, other = (torch.load(path) for path in tmp_path.glob("*.pt"))
        torch.testing.assert_close(dict(one["model"]), dict(other["model"]), rtol=1e-9, atol=1e-12)
        assert one["model"]["0.count"] == one["steps"]


def test_newcomers_have_layers_in_the_mode_that_the_members_gave_them(tmp_path: Path) -> None:
    with staged("frozen_norm", tmp_path) as stage:
        through_changes(stage)
        found = [torch.load(path) for path in tmp_path.glob("*.pt")]
        assert [each["trains"] for each in found] == [False, False]
        joined = [m for m in stage.heard("joined") if m["node"] == "d"]
        assert min(m["step"] for m in joined) > FROZEN_AT, "d came when it was frozen"


def test_mixed_precision_decides_alike_on_all_ranks(tmp_path: Path) -> None:
    with staged("mixed", tmp_path) as stage:
        steps = through_changes(stage)
        one, other = (torch.load(path) for path in tmp_path.glob("*.pt"))
        assert one["scaler"] == other["scaler"]
        for name, weights in one["model"].items():
            assert weights.equal(other["model"][name])
            assert weights.isfinite().all()
        used_once(tmp_path, steps)
        (path,) = [max((tmp_path / "ckpt").glob("*.pt"))]
        assert torch.load(path, weights_only=True)["parts"]["scaler"] == one["scaler"]


def test_what_a_script_keeps_counts_every_step(tmp_path: Path) -> None:
    """Both by a hook and by the loop's body, on nodes that joined and after members were lost."""
    with staged("keeps", tmp_path) as stage:
        steps = through_changes(stage)
        model = network()
        average = stage_parts.Average(model)
        for weights in reference_course(model, steps):
            average.update()
            assert weights is model
        for path in tmp_path.glob("*.pt"):
            found = torch.load(path)
            assert found["average"]["updates"] == steps
            assert found["kept"] == steps
            for mine, other in zip(average.weights, found["average"]["weights"], strict=True):
                torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-9)


def test_several_optimisers_learn_what_they_do_in_one_process(tmp_path: Path) -> None:
    with staged("two", tmp_path) as stage:
        steps = through_changes(stage)
        models = {"G": network(), "D": network()}
        optimizers = {name: sgd(model) for name, model in models.items()}
        for step, (x, y) in enumerate(batches(steps)):
            for which in ("D", "G") if step % 2 else ("D",):
                optimizers[which].zero_grad()
                stage_parts.losses(models["G"], models["D"], x, y, which).backward()
                optimizers[which].step()
            if step % 2:
                optimizers["G"].param_groups[0]["lr"] *= 0.999
        for path in tmp_path.glob("*.pt"):
            found = torch.load(path)
            assert found["lr"] == pytest.approx(optimizers["G"].param_groups[0]["lr"])
            for mine, other in ((models["G"], found["model"]), (models["D"], found["critic"])):
                torch.testing.assert_close(dict(mine.state_dict()), dict(other), rtol=1e-5, atol=1e-8)
        used_once(tmp_path, steps)


def test_weights_are_perturbed_by_the_average_of_all_nodes_gradients(tmp_path: Path) -> None:
    """Sharpness-aware minimisation learns on two and three nodes what it does on one."""
    with staged("ascends", tmp_path) as stage:
        steps = through_changes(stage)
        model = network()
        ascent, descent = stage_parts.Ascent(model.parameters()), sgd(model)
        for x, y in batches(steps):
            for optimizer in (ascent, descent):
                model.zero_grad()
                (model(x) - y).square().mean().backward()
                if optimizer is descent:
                    ascent.undo()
                optimizer.step()
        for path in tmp_path.glob("*.pt"):
            found = dict(torch.load(path)["model"])
            torch.testing.assert_close(found, dict(model.state_dict()), rtol=1e-6, atol=1e-9)
        used_once(tmp_path, steps)


def test_a_stream_is_used_once_whatever_becomes_of_its_nodes(tmp_path: Path) -> None:
    with staged("streams", tmp_path) as stage:
        steps = through_changes(stage)
        assert used_once(tmp_path, steps) == {2, 3}
        one, other = (torch.load(path)["model"] for path in tmp_path.glob("*.pt"))
        assert all(weights.equal(other[name]) for name, weights in one.items())


def test_all_members_stop_after_the_same_step_when_one_has_had_enough(tmp_path: Path) -> None:
    with staged("stops", tmp_path) as stage:
        stage.start("a", "b", "c")
        stage.publish("a", "b")
        stage.publish("a", "b", "c")
        stage.end("a", "b", "c")
        steps = {torch.load(path)["steps"] for path in tmp_path.glob("*.pt")}
        assert len(steps) == 1 and steps <= {100, 101, 102}, "at once where step 100 ends an epoch"
        assert len(stage.heard("finished")) == 3


def test_an_evaluation_is_shared_and_members_wait_for_a_long_one(tmp_path: Path) -> None:
    with staged("evaluates", tmp_path) as stage:
        steps = through_changes(stage)
        model, expected = network(), {}
        everything = next(batches(1, LENGTH))
        for step, _ in enumerate(reference_course(model, steps)):
            if (step + 1) % -(-LENGTH // BATCH) == 0:
                with torch.no_grad():
                    loss = (model(everything[0]) - everything[1]).square().mean().item()
                expected[(step + 1) // -(-LENGTH // BATCH)] = loss
        found = [torch.load(path) for path in tmp_path.glob("*.pt")]
        assert len(found) == 2
        for one in found:
            assert one["found"].keys() <= expected.keys()
            for epoch, loss in one["found"].items():
                assert loss == pytest.approx(expected[epoch], rel=1e-9)
        both = found[0]["found"].keys() & found[1]["found"].keys()
        assert all(found[0]["found"][epoch] == found[1]["found"][epoch] for epoch in both), "to the bit"
        assert min(one["seen"] / len(one["found"]) for one in found) < LENGTH * 0.7, "each evaluates a part"
        said = [m["reason"] for m in stage.heard("broken")]
        assert not any("said nothing" in reason for reason in said), said
        pauses = [m["pause_s"] for m in stage.heard("joined", survivor=True)]
        assert max(pauses) < 2.0, "the evaluation is no cost of a rescale"
        used_once(tmp_path, steps)


@pytest.mark.parametrize(
    ("way", "entry"),
    [
        ("own_scheduler", "lr is"),
        ("other_optimizer", "parameter 0 of SGD no. 1 outside of the run"),
        ("rank_0_only", "kept.steps is"),
    ],
)
def test_states_that_differ_end_the_run_with_what_differs(way: str, entry: str, tmp_path: Path) -> None:
    with staged(way, tmp_path) as stage:
        stage.start("a", "b")
        stage.publish("a")
        until(lambda: any(note for path in tmp_path.glob("*.jsonl") for note in path.open()), "a few steps")
        stage.publish("a", "b")
        for node in ("a", "b"):
            stage.workers[node].join(60)
            assert stage.workers[node].exitcode == 1, stage.story()
        assert {m["node"] for m in stage.heard("failed") if entry in m["reason"]} == {"a", "b"}
        for log in tmp_path.glob("*.log"):
            assert entry in log.read_text() and "BFT-188" in log.read_text()


def test_what_the_scripts_share_is_what_they_say() -> None:
    assert all(hasattr(stage_scripts, way) for way in WAYS)
