"""What a rehearsal says of runs: nothing of rounding and noise, and the cause of what is more."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model.trainer import TrainerSpec
from bftrainer.rehearsal.deviations import Aspect
from bftrainer.rehearsal.page import as_json, cells, lines
from bftrainer.rehearsal.records import FileFacts, RunRecord, StartFacts
from bftrainer.rehearsal.rehearse import Rehearsal, judge
from tests.support.made_runs import LENGTH, LR, prints, run

SPEC = TrainerSpec(name="made", command=("python", "a.py"), n_min=1, n_max=3)


def judged(*others: RunRecord, launcher: str = "native", **changed: Any) -> Rehearsal:
    rounding = np.random.default_rng(0)
    again = run(
        "again", gradient=lambda s, w: (w - 1.0) * (1 + 1e-15 * rounding.standard_normal(w.shape)), **changed
    )
    found = {each.name: each for each in (run(**changed), again, run("seed", **changed), *others)}
    spec = TrainerSpec(name="made", command=SPEC.command, n_min=1, n_max=3, launcher=launcher)
    return judge(spec, found, None, 1.0)


def causes(found: Rehearsal) -> str:
    return " | ".join(cause.title for cause in found.causes if cause.shown_by.is_fault)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3]))
def test_another_order_of_sums_is_no_difference(seed: int, nodes: int) -> None:
    rng = np.random.default_rng(seed)
    other = run(
        "several",
        nodes=nodes,
        gradient=lambda step, w: (w - 1.0) * (1 + 4e-16 * rng.standard_normal(w.shape)),
    )
    found = judged(other)
    assert found.is_same, causes(found)
    assert not found.causes


@given(st.integers(1, LENGTH), st.sampled_from([0, 1]), st.floats(1e-9, 1e3))
def test_a_gradient_that_differs_in_one_step_is_found_in_that_step(step: int, row: int, size: float) -> None:
    def gradient(at: int, w: np.ndarray) -> np.ndarray:
        off = np.zeros_like(w)
        off[row, 0] = size if at == step else 0.0
        return w - 1.0 + off

    found = judged(run("several", nodes=2, gradient=gradient))
    first = next(each for each in found.deviations if each.aspect == Aspect.WEIGHTS)
    assert (first.step, first.name, found.is_same) == (step, ("weight", "bias")[row], False)
    assert first.apart is not None and first.allowed is not None and first.apart > first.allowed


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_sum_over_the_batch_is_told_by_its_factor(nodes: int) -> None:
    found = judged(run("several", nodes=nodes, gradient=lambda step, w: (w - 1.0) / nodes))
    assert "the loss is a sum over the batch" in causes(found)


def test_gradients_that_are_added_up_are_told_by_their_factor() -> None:
    assert "2 times" in causes(judged(run("several", nodes=2, gradient=lambda step, w: (w - 1.0) * 2)))


def test_a_count_that_begins_anew_explains_a_gradient_that_is_off_by_a_factor_for_a_step() -> None:
    other = run(
        "resumed",
        gradient=lambda step, w: (w - 1.0) * (1.03 if step == 5 else 1.0),
        variables=lambda step: {"seen": float(step - (4 if step > 4 else 0))},
    )
    found = causes(judged(other, variables=lambda step: {"seen": float(step)}))
    assert "seen is 1, not 5" in found and "1.03" not in found


def test_a_loss_that_compares_samples_gives_another_gradient_from_the_beginning() -> None:
    found = judged(run("several", nodes=2, gradient=lambda step, w: w - 1.0 + 0.1 * w[::-1]))
    assert "the same samples give another gradient" in causes(found)


def test_twice_as_many_samples_in_half_of_the_steps() -> None:
    other = run("several", nodes=2, length=5, samples=lambda step: [f"s{step}.{i}" for i in range(8)])
    assert "every process takes a whole batch" in causes(judged(other, launcher="torchrun"))


@pytest.mark.parametrize("left", [1, 3])
def test_a_last_step_that_is_filled_up(left: int) -> None:
    def samples(step: int, have: int) -> list[str]:
        own = [f"s{step}.{i}" for i in range(left if step == LENGTH else 4)]
        return own + [f"s1.{i}" for i in range(have - len(own))]

    other = run("several", nodes=2, samples=lambda step: samples(step, 4))
    found = judged(other, launcher="torchrun", samples=lambda step: samples(step, 0))
    assert "the last step of an epoch is filled up with samples that the epoch has had" in causes(found)


def test_a_schedule_that_begins_anew_names_the_counter_that_did() -> None:
    def rate(step: int, since: int = 0) -> float:
        return LR * 0.9 ** (step - since)

    other = run(
        "resumed",
        rate=lambda step: rate(step, 4 if step > 4 else 0),
        variables=lambda step: {"turns": step - (4 if step > 4 else 0), "same": 1.0},
    )
    found = judged(other, rate=rate, variables=lambda step: {"turns": step, "same": 1.0})
    assert "lr begins anew in a process that joins or is resumed: turns is 1, not 5" in causes(found)
    assert any("run.position.step" in cause.remedy for cause in found.causes)


def test_processes_that_begin_from_nothing() -> None:
    begin = run().starts[0]
    other = run("resumed", starts=(begin, StartFacts(step=1, weights=begin.weights)), taken=15)
    found = judged(other, launcher="torchrun")
    assert "its processes begin from nothing" in causes(found)
    went_on = run("resumed", starts=(begin, StartFacts(step=5, weights=run().steps[0, 4].weights)))
    assert judged(went_on).is_same


def test_ranks_whose_weights_differ_are_a_fault_whatever_the_noise_is() -> None:
    assert "the processes' weights are not the same" in causes(judged(run("several", nodes=2, apart=1e-6)))


def noisy(name: str, seed: int, **more: Any) -> RunRecord:
    rng = np.random.default_rng(seed)
    return run(name, gradient=lambda step, w: (w - 1.0) * (1 + 0.3 * rng.standard_normal(w.shape)), **more)


def test_noise_of_dropout_is_no_mistake_and_a_sum_is_one_in_spite_of_it() -> None:
    def of(other: RunRecord) -> Rehearsal:
        alone = noisy("alone", 1)
        found = {"alone": alone, "again": noisy("again", 1), "seed": noisy("seed", 2), other.name: other}
        return judge(SPEC, found, None, 1.0)

    assert all(of(noisy("several", seed, nodes=2)).is_same for seed in range(3, 23))
    far = run("several", nodes=2, gradient=lambda step, w: (w - 1.0) * 30.0, rate=lambda step: LR)
    assert not of(far).is_same


def drawn(name: str, seed: int, what: str, **more: Any) -> RunRecord:
    """A run with noise that keeps an accuracy, alone or beside a large tensor, where `what` says."""
    rng = np.random.default_rng(1000 + seed)
    accuracy = round(0.9 + 0.01 * rng.standard_normal(), 2)
    entries = {"accuracy": accuracy, "epochs": 8, **{f"w{i}": [1 + 0.1 * rng.random()] for i in range(4)}}
    kept: dict[str, dict[str, Any]] = {
        "figure": {"reported": {"accuracy": {10: accuracy}}},
        "text": {"files": {"end.json": [json.dumps({"accuracy": accuracy})]}},
        "tensors": {"files": {"end.pt": FileFacts(entries=entries)}},
    }
    return noisy(name, seed, **{**kept[what], **more})


@pytest.mark.parametrize("what", ["figure", "text", "tensors"])
def test_one_number_that_comes_close_by_chance_with_another_seed_accuses_no_script(what: str) -> None:
    for first in range(1, 40):
        found = {"alone": drawn("alone", first, what), "again": drawn("again", first, what)}
        found |= {"seed": drawn("seed", first + 100, what), "resumed": drawn("resumed", first + 200, what)}
        assert judge(SPEC, found, None, 1.0).is_same, first


def test_what_no_random_number_changes_is_compared_to_the_digit_in_a_file_of_noisy_weights() -> None:
    found = {name: drawn(name, 1, "tensors") for name in ("alone", "again")}
    found["seed"] = drawn("seed", 2, "tensors")
    (facts,) = drawn("resumed", 3, "tensors").files.values()
    assert facts.entries is not None
    short = FileFacts(entries={**facts.entries, "epochs": 7})
    found["resumed"] = drawn("resumed", 3, "tensors", files={"end.pt": short})
    told = judge(SPEC, found, None, 1.0).deviations
    assert [each.text for each in told] == ["end.pt: epochs is 7; on one process 8"]


@pytest.mark.parametrize("lost", ["again", "seed"])
def test_a_run_in_peace_that_failed_is_told_and_no_other_run_is_measured_by_what_it_left(lost: str) -> None:
    found = {"alone": noisy("alone", 1), "again": noisy("again", 1), "seed": noisy("seed", 2)}
    found[lost] = run(lost, status="failed", reason="exit code 1", length=0)
    found["several"] = noisy("several", 3, nodes=2)
    judged_so = judge(SPEC, found, None, 1.0)
    assert [(each.run, each.aspect) for each in judged_so.deviations] == [(lost, Aspect.END)]


def test_a_step_after_the_cut_of_a_process_that_began_there_is_none_of_the_run() -> None:
    spec = TrainerSpec(name="made", command=("python", "a.py"), n_min=1, n_max=3, launcher="torchrun")
    found = {"alone": run(), "again": run("again"), "changes": run("changes", nodes=2, length=LENGTH + 1)}
    assert judge(spec, found, LENGTH, 1.0).is_same
    assert not judge(spec, found, None, 1.0).is_same


@pytest.mark.parametrize(("launcher", "steps"), [("native", LENGTH), ("torchrun", LENGTH - 1)])
def test_the_page_says_how_many_steps_a_run_has_that_was_ended(launcher: str, steps: int) -> None:
    spec = TrainerSpec(name="made", command=("python", "a.py"), n_min=1, n_max=3, launcher=launcher)
    found = {"alone": run(), "again": run("again"), "several": run("several", nodes=2)}
    said = lines(judge(spec, found, LENGTH - 1, 1.0))
    assert any(f"Each run ended after {steps} steps" in line for line in said)


def test_a_script_without_a_seed_is_told_so_and_its_other_differences_follow() -> None:
    alone, other = run(), run("again", samples=lambda step: [f"other{step}.{i}" for i in range(4)])
    found = judge(SPEC, {"alone": alone, "again": other, "several": run("several", nodes=2)}, None, 1.0)
    assert "random numbers without a seed" in causes(found)


@pytest.mark.parametrize(
    ("lines_there", "said"),
    [
        (["5,0.5", "6,0.6"], "is opened anew"),
        (["1,0.1", "2,0.2", "3,0.3", "4,0.4", "5,0.5", "6,0.65"], "holds something that begins anew"),
        ([f"{i},0.{i}" for i in (1, 2, 3, 1, 2, 3, 4, 5, 6)], "every process writes"),
    ],
)
def test_a_file_is_compared_line_by_line(lines_there: list[str], said: str) -> None:
    log = {"log.csv": [f"{i},0.{i}" for i in range(1, 7)]}
    other = run("several", nodes=2, files={"log.csv": lines_there})
    assert said in causes(judged(other, files=log))


def test_what_is_never_twice_the_same_in_a_file_is_left_out() -> None:
    def file(seconds: float, loss: float) -> dict[str, list[str]]:
        return {"log.txt": [f"took {seconds} s, loss {loss}"]}

    alone, again = run(files=file(1.25, 0.5)), run("again", files=file(1.75, 0.5))
    for loss, same in ((0.5, True), (0.62, False)):
        other = run("several", nodes=2, files=file(9.0, loss))
        found = judge(SPEC, {"alone": alone, "again": again, "several": other}, None, 1.0)
        assert found.is_same is same


def test_a_figure_of_one_ranks_share_is_told_and_that_of_a_step_only_noted() -> None:
    told = {"reported": {"mean": {10: 0.5}}, "figures": {"loss": {1: [0.5]}}}
    other = run("several", nodes=2, reported={"mean": {10: 0.4}}, figures={"loss": {1: [0.4, 0.6]}})
    found = judged(other, **told)
    assert causes(found) == "mean is the figure of one rank's share"
    assert any("rank 0's share" in each.text and not each.is_fault for each in found.deviations)


def test_operations_that_follow_from_padding_are_no_ranks_share() -> None:
    figures = [{"loss": {10: 0.5}, "total_flos": {10: flos}} for flos in (2.17e8, 2.06e8)]
    found = judged(run("several", nodes=2, reported=figures[1]), reported=figures[0])
    assert found.is_same, causes(found)


def test_a_figure_that_is_never_twice_the_same_is_nobodys_share() -> None:
    """As the time of an evaluation, which Hugging Face's Trainer logs."""
    alone, again = run(figures={"took": {1: [0.5]}}), run("again", figures={"took": {1: [0.6]}})
    other = run("several", nodes=2, figures={"took": {1: [0.4, 0.6]}})
    found = judge(SPEC, {"alone": alone, "again": again, "several": other}, None, 1.0)
    assert not found.deviations


def test_the_page_says_what_is_the_same_and_what_to_do() -> None:
    good = run("several", nodes=2)
    bad = run("changes", nodes=2, gradient=lambda step, w: (w - 1.0) / (2 if step > 4 else 1))
    found = judged(good, bad)
    table = {row[0]: row[1:] for row in cells(found)}
    assert table["weights"][0].startswith("same")
    assert table["weights"][1] == "differs, step 5"
    text = "\n".join(lines(found))
    assert all(part in text for part in ("1. ", "seen: changes: bias after step 5", "do: "))
    plain = as_json(found)
    assert plain["same"] is False
    assert plain["causes"][0]["run"] == "changes"
    assert "All is the same" in "\n".join(lines(judged(good)))


def test_fingerprints_of_equal_tensors_are_equal() -> None:
    assert np.array_equal(prints(np.ones((2, 3))), prints(np.ones((2, 3))))


@pytest.mark.parametrize(("off", "is_fault"), [(1e-17, False), (1e-5, True)])
def test_a_momentum_of_a_gradient_that_would_be_zero_consists_of_rounding(off: float, is_fault: bool) -> None:
    """Such as that of a last layer's bias where a loss compares samples: its gradients cancel each other."""

    def final(bias: float) -> dict[str, np.ndarray]:
        of_bias = {"optimizer/1/momentum_buffer": np.array([bias, -bias])}
        return {"optimizer/0/momentum_buffer": np.array([0.5, -0.2]), **of_bias}

    found = judged(run("several", nodes=2, final=final(off)), final=final(1e-18))
    assert [each.text for each in found.deviations if each.aspect == Aspect.STATE] == (
        ["in the end, momentum_buffer of bias: [0] is 1e-05; on one process 1e-18"] if is_fault else []
    )


@pytest.mark.parametrize(("off", "is_fault"), [(1e-17, False), (1e-5, True)])
def test_weights_whose_gradients_would_be_zero_consist_of_rounding(off: float, is_fault: bool) -> None:
    """Such as the bias of attention's keys, which begins at zero."""

    def final(bias: float) -> dict[str, np.ndarray]:
        return {"weights/0": np.array([0.5, -0.2]), "weights/1": np.array([bias, -bias])}

    found = judged(run("several", nodes=2, final=final(off)), final=final(1e-18))
    assert any("in the end, bias" in each.text for each in found.deviations) == is_fault


def test_with_few_digits_rounding_is_no_missing_seed_and_a_factor_is_found() -> None:
    def rounded(step: int, w: np.ndarray) -> np.ndarray:
        return (w - 1.0) * (1 + 0.01 * np.cos(step + np.arange(w.size).reshape(w.shape)))

    few = {"eps": 2.0**-7}
    alone, again = run(**few), run("again", gradient=rounded, **few)
    same, double = (
        judge(SPEC, {"alone": alone, "again": again, "several": other}, None, 1.0)
        for other in (
            run("several", nodes=2, gradient=rounded, **few),
            run("several", nodes=2, gradient=lambda _, w: 2 * (w - 1.0), **few),
        )
    )
    assert same.is_same, causes(same)
    assert "gradients are 2 times those on one process" in causes(double)
