"""`elastic.Run` with a batch that adapts, by hand in this process; and the choice of a batch."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bftrainer import elastic
from bftrainer.elastic.adaptive import adapting as adapting_module
from bftrainer.elastic.adaptive.batch import NUMBERS, Agreed, LiveBatch, Timed, TimedSize, merged
from bftrainer.elastic.adaptive.choice import GROWTH, chosen, modelled
from bftrainer.elastic.adaptive.noise import NoiseAverage
from bftrainer.elastic.loop import assembly
from bftrainer.elastic.process.channel import Orders
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.train.batches import MicroBatch
from bftrainer.elastic.train.policy import GAINS, MOST_SAMPLES, Adaptive, overridden
from bftrainer.elastic.train.sampler import RankShare
from bftrainer.model import trainer
from bftrainer.performance.goodput import BatchLimits, GoodputError, SystemModel
from bftrainer.spec.located_yaml import SpecError
from bftrainer.spec.parse import parse

LIMITS = BatchLimits(initial=32, most=4096, local_most=256)
LONG_STEPS = SystemModel(alpha_grad=0.1, beta_grad=1e-5, alpha_node=0.1)
SHORT_STEPS = SystemModel(alpha_grad=1e-6, beta_grad=1e-3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Adaptive(initial=0, max=8), "initial batch of 0"),
        (lambda: Adaptive(initial=64, max=32), "max=32 .* at least 64, .*BFT-163"),
        (lambda: Adaptive(initial=64, max=2**30), "at most 16,777,216"),
        (lambda: Adaptive(initial=1, max=8, max_per_worker=0), "max_per_worker of 0"),
        (lambda: Adaptive(initial=1, max=8, lr="none"), "adascale, linear, sqrt"),
        (
            lambda: Adaptive(initial=1, max=8, lr=lambda a, b: math.nan).factor_of(2, 1.5),
            "nan for a batch of 2",
        ),
    ],
)
def test_limits_that_contradict_each_other_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("rule", "factor"),
    [("adascale", 2.5), ("linear", 4.0), ("sqrt", 2.0), (lambda initial, batch: batch / initial / 2, 2.0)],
)
def test_the_learning_rate_follows_the_batch(rule: Any, factor: float) -> None:
    live = LiveBatch(Adaptive(initial=32, max=4096, lr=rule), 256)
    live.phi = 160 / 3  # so that a step of 128 is worth 2.5 steps of 32
    live.batch = 128
    live.begins(128)
    assert live.gain == pytest.approx(128 / 32 * (160 / 3 + 32) / (160 / 3 + 128))
    assert live.factor(1) == pytest.approx(live.gain if rule == "adascale" else factor)
    live.begins(5)
    assert (live.gain, live.factor(1) if rule != live.policy.lr else 1.0) == (1.0, 1.0), (
        "an epoch's last step"
    )


@given(st.floats(1, 1e6), st.integers(1, 8), st.integers(32, 4096))
def test_a_batch_is_within_its_limits_and_fits_the_memory(phi: float, workers: int, present: int) -> None:
    at = TimedSize(workers, workers, 32, 0)
    found = chosen(LONG_STEPS, LIMITS, phi, at, present, 256)
    assert LIMITS.initial <= found.batch <= max(present, min(LIMITS.most, GROWTH * present))
    assert 1 <= found.at_once <= LIMITS.local_most
    assert 0 < found.efficiency <= 1 + 1e-9


def test_noise_and_long_steps_make_a_batch_grow_and_neither_alone_does() -> None:
    at = TimedSize(2, 2, 16, 0)
    assert chosen(LONG_STEPS, LIMITS, 1e4, at, 64, 256).batch > 64
    assert chosen(LONG_STEPS, LIMITS, 0.0, at, 32, 256).batch == 32, "further samples are worth nothing"
    assert chosen(SHORT_STEPS, LIMITS, 10.0, at, 64, 256).batch == 32, "as fast, and worth less"


def test_a_batch_that_is_hardly_better_is_not_worth_a_change() -> None:
    at = TimedSize(1, 1, 32, 0)
    best = 32
    for _ in range(6):
        best = chosen(LONG_STEPS, LIMITS, 1e4, at, best, 256).batch
    near = int(best * 0.98)
    assert chosen(LONG_STEPS, LIMITS, 1e4, at, near, 256).batch == near


def test_more_workers_than_the_largest_batch_can_have_keep_what_there_is() -> None:
    limits = BatchLimits(initial=4, most=8, local_least=4, local_most=8)
    assert chosen(LONG_STEPS, limits, 1e3, TimedSize(3, 3, 4, 0), 8, 8).batch == 8


def test_times_with_accumulation_tell_of_one_pass() -> None:
    """Passes of 10 ms each, and 5 ms of exchange after the last."""
    times = {
        TimedSize(2, 2, 10, 0): Timed(0.015, 0.010, 5),
        TimedSize(2, 2, 10, 3): Timed(0.045, 0.010, 5),
        TimedSize(1, 1, 10, 1): Timed(0.020, 0.0, 5),
    }
    system = modelled(times)
    assert system is not None
    assert float(system.gradient_time(10)) == pytest.approx(0.010, rel=0.05)
    assert float(system.iteration_time(2, 2, 10, 3)) == pytest.approx(0.045, rel=0.05)
    assert modelled({}) is None


def test_what_one_rank_says_the_others_hear() -> None:
    said = Agreed(
        noise=NoiseAverage(1.5, 2.5, 0.5),
        phi=None,
        batch=MOST_SAMPLES,
        at_once=16,
        size=TimedSize(1, 2, 3, 4),
        timed=Timed(0.5, 0.25, 16),
    )
    numbers = torch.tensor(said.numbers())
    assert len(numbers) == NUMBERS
    assert Agreed.of(numbers.tolist()) == said
    assert Agreed.of([0.0] * NUMBERS) is None


def test_times_of_a_size_are_the_mean_of_the_last_steps() -> None:
    first = merged(None, Timed(1.0, 0.5, 10), 1000)
    assert merged(first, Timed(2.0, 0.0, 10), 1000) == Timed(1.5, 0.5, 20)
    assert merged(Timed(1.0, 0.5, 5000), Timed(2.0, 0.5, 1000), 1000).iteration_s == pytest.approx(1.5)


def test_a_state_is_taken_over_within_the_limits_that_hold_now() -> None:
    live = LiveBatch(Adaptive(initial=8, max=1024), 64)
    live.batch, live.at_once, live.phi = 512, 64, 99.0
    live.times[TimedSize(1, 2, 3, 0)] = Timed(0.5, 0.25, 16)
    live.noise = NoiseAverage(1.0, 99.0, 0.5)
    same, less = LiveBatch(live.policy, 64), LiveBatch(Adaptive(initial=8, max=100), 32)
    for other in (same, less):
        other.load_state_dict(live.state_dict())
    assert same.state_dict() == live.state_dict()
    assert (less.batch, less.at_once) == (100, 32)


class Numbers(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Noisy targets, and each sample's index."""

    def __len__(self) -> int:
        return 203

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        x = torch.tensor([i / 203, 1.0])
        return x, x[:1] + 6 * (i * 31 % 203) / 203 - 3, i


def run(**options: Any) -> elastic.Run:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    options = {"policy": Adaptive(initial=4, max=64, max_per_worker=16, lr="sqrt"), "epochs": 3, **options}
    if options.pop("scheduled", False):
        options["scheduler"] = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    return elastic.Run(model, optimizer, options.pop("data", Numbers()), **options)


def grown(found: elastic.Run, phi: float = 1e3) -> LiveBatch:
    """Have a run's batch be 32, in pieces of 16, as after a while."""
    adapting = found._parts.adapting
    assert adapting is not None
    live = adapting.live
    live.batch, live.at_once, live.phi = 32, 16, phi
    adapting._due = math.inf  # and it stays so
    return live


def train(found: elastic.Run) -> Counter[tuple[int, int]]:
    """How often each sample of each epoch was used."""
    used: Counter[tuple[int, int]] = Counter()
    for x, y, indices in found:
        epoch = found.position.epoch
        used.update((epoch, int(i)) for i in indices)
        found.backward((found.model(x) - y).square().mean())
        found.step()
    return used


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_every_sample_is_used_once_while_the_batch_changes(workers: int | None) -> None:
    """Also by worker processes, which fetch ahead."""
    data: Any = Numbers()
    if workers is not None:
        data = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, num_workers=workers)
    found = run(data=data)
    adapting = found._parts.adapting
    assert adapting is not None
    decided, sizes = adapting._decided, iter([8, 64, 12, 40] * 100)

    def decide() -> Agreed:
        agreed = decided()
        batch = next(sizes)
        return Agreed(
            noise=agreed.noise,
            phi=10.0,
            batch=batch,
            at_once=batch // 2,
            size=agreed.size,
            timed=agreed.timed,
        )

    adapting._decided = decide  # type: ignore[method-assign]
    used = train(found)
    assert used == Counter({(epoch, i): 1 for epoch in range(3) for i in range(203)})


def test_progress_counts_steps_by_what_they_are_worth_and_so_does_the_schedule() -> None:
    found = run(scheduled=True)
    found.start()
    live = grown(found)
    worth = 32 / 4 * (1e3 + 4) / (1e3 + 32)
    each = iter(found)
    for _ in range(2):  # one step, of two micro-batches
        x, y, _ = next(each)
        found.backward((found.model(x) - y).square().mean())
        found.step()
    assert found.position.step == 1
    assert found.position.progress == pytest.approx(worth)
    assert found._parts.trained.schedulers[""].last_epoch == int(worth)
    assert live.factor(1) == pytest.approx(math.sqrt(8))
    each.close()


def test_work_by_progress_is_done_once_steps_are_worth_it() -> None:
    found = run(epochs=None)
    found.start()
    grown(found)
    batches = found._parts.batches
    batches._goal = 30.0
    whole, steps = batches.whole(found.position), 0
    assert whole == 203  # of one epoch: nothing is known yet of what steps are worth
    for x, y, _ in found:
        found.backward((found.model(x) - y).square().mean())
        steps += found.step()
        whole = batches.whole(found.position) or 0
    worth = 32 / 4 * (1e3 + 4) / (1e3 + 32)
    assert steps == math.ceil(30 / worth)
    assert found.position.progress >= 30 > found.position.progress - worth
    assert whole == math.ceil(32 * 30 / worth)


@pytest.mark.parametrize(
    ("work", "policy", "expected"),
    [
        ({"samples": 100}, Adaptive(initial=8, max=64), (100, None)),
        ({"progress": 100}, Adaptive(initial=8, max=64), (None, 12.5)),
        ({"progress": 100}, elastic.FixedGlobal(8), (100, None)),
        ({}, Adaptive(initial=8, max=64), (None, None)),
    ],
)
def test_samples_are_worth_less_only_where_a_batch_adapts(work: Any, policy: Any, expected: Any) -> None:
    orders = {"fd": 0, "trainer": 1, "node": "a", "generation": 1, "address": "", "samples": None}
    orders |= {"checkpoint_dir": "", "checkpoint_every_s": 5.0, **work}
    assert assembly._work(Orders(**orders), policy) == expected
    assert assembly._work(None, policy) == (None, None)


def test_progress_is_the_number_of_steps_where_nothing_adapts() -> None:
    found = run(policy=elastic.FixedGlobal(4), batch_size=4)
    train(found)
    assert found.position.progress == found.position.step > 0
    assert found._parts.adapting is None
    assert found._parts.averaging.sums is None


def test_a_run_goes_on_from_a_checkpoint_with_the_batch_that_it_had() -> None:
    first, second = run(), run()
    live = grown(first)
    second._parts.state.restore(first._parts.state.snapshot())
    adapting = second._parts.adapting
    assert adapting is not None
    assert adapting.live.state_dict() == live.state_dict()
    assert second._parts.batches.total == 32
    without = run(policy=elastic.FixedGlobal(4), batch_size=4)
    without._parts.state.restore(first._parts.state.snapshot())
    assert without._parts.batches.total == 4


def test_times_that_make_no_model_leave_the_batch_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> SystemModel:
        raise GoodputError("no model")

    found = run()
    live = grown(found)
    adapting = found._parts.adapting
    assert adapting is not None
    adapting._due = 0.0
    monkeypatch.setattr(adapting_module, "modelled", fails)
    agreed = adapting._decided()
    assert (agreed.batch, agreed.at_once) == (live.batch, live.at_once)


def test_only_steps_of_the_whole_batch_are_timed() -> None:
    """An epoch's last step has fewer samples."""
    adapting = run()._parts.adapting
    assert adapting is not None
    measured = adapting.measured
    for total in (4, 3, 4, 4):
        measured.step_begins(RankShare(0, total, total, Position(step=1), 1))
        measured.before_average("", MicroBatch(0, total, 1.0, first=True, last=True))
    _, times = measured.read()
    assert times is not None
    assert times.steps == 2, "of the last one the end is not known yet"
    assert measured.read() == ([], None)


def test_what_cannot_adapt_is_refused() -> None:
    models = {"G": torch.nn.Linear(2, 1), "D": torch.nn.Linear(2, 1)}
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=1e-3) for name, model in models.items()}
    with pytest.raises(ValueError, match="several optimizers"):
        elastic.Run(models, optimizers, Numbers(), batch_size=4, policy=Adaptive(initial=4, max=8))
    with pytest.raises(ValueError, match="BFT-156"):
        run(policy=Adaptive(initial=4, max=8))
    with pytest.raises(ValueError, match=r"least_per_worker=32 .*Give 1 to 16 .*BFT-147"):
        run(least_per_worker=32)
    with pytest.raises(ValueError, match="with a policy"):
        run(accumulate=2)


def spec(batch: str) -> dict[str, int | str]:
    text = f"{{name: a, command: [x], nodes: {{max: 2}}, batch: {batch}}}"
    return dict(parse(text, "spec", Path()).batch)


def test_a_spec_goes_before_the_script() -> None:
    script = Adaptive(initial=8, max=64, max_per_worker=4, lr="linear")
    assert overridden(script, spec("{initial: 16, max: 128}")) == Adaptive(
        initial=16, max=128, max_per_worker=4, lr="linear"
    )
    said = spec("{initial: 16, max: 128, max_per_worker: 32, lr: sqrt}")
    for before in (script, elastic.FixedGlobal(8), elastic.FixedPerNode(8)):
        assert overridden(before, said) == Adaptive(initial=16, max=128, max_per_worker=32, lr="sqrt")
    assert overridden(script, {"global": 64}) == elastic.FixedGlobal(64)
    assert trainer.MOST_SAMPLES == MOST_SAMPLES
    assert {spec(f"{{initial: 1, max: 2, lr: {rule}}}")["lr"] for rule in GAINS} == {*GAINS}


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ("{initial: 128, max: 64}", "max is 64"),
        ("{initial: 128}", "max is missing"),
        ("{max: 64}", "global, or per_node, or adapts"),
        ("{initial: 8, max: 64, global: 8}", "Give one of them"),
        ("{initial: 8, max: 64, lr: none}", "adascale, linear or sqrt"),
        ("{initial: 8, max: 64, warmup_steps: 3}", "no warmup_steps"),
        ("{per_node: 8, lr: adascale}", "adascale is for a batch that adapts"),
        ("{global: 8, max_per_worker: 4}", "Give initial with them"),
        ("{initial: 8, max: 16777217}", "16777216"),
        ("{initial: 0, max: 8}", "greater than or equal to 1"),
        ("{initial: 1.5, max: 8}", "initial"),
    ],
)
def test_a_spec_that_contradicts_itself_is_refused(batch: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        spec(batch)
