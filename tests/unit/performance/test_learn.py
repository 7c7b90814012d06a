"""What is learnt of trainers: robust to what disturbs windows, always a usable curve, bounded exploration."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.model.events import Measured
from bftrainer.model.trainer import Cost, Observations, Observed, Points, RescaleCosts, Trainer, TrainerSpec
from bftrainer.performance import costs as costing
from bftrainer.performance import curve, estimate, explain, observe, profiling
from bftrainer.performance import fit as fitting

ASSUMED = RescaleCosts(up=Cost(stall_s=1.0, init_s=2.0), down=Cost(stall_s=3.0))
FEW = (1, 2, 4, 8, 16)


def amdahl(n: int, c1: float, one: float = 100.0) -> float:
    return one * n / (1 + c1 * (n - 1))


def seen(rates: dict[int, list[float]]) -> Observations:
    found = Observations()
    for n, windows in rates.items():
        for rate in windows:
            found = observe.with_speed(found, None, n, rate)
    return found


def levels(rates: dict[int, list[float]]) -> fitting.Levels:
    return fitting.levels(observe.sizes(seen(rates)))


def at(fit: fitting.Fit, n: int, *, hopeful: bool = False) -> float:
    return float(fit.rate(np.array([float(n)]), hopeful=hopeful)[0])


OBSERVED = st.dictionaries(
    st.integers(1, 200), st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=4), min_size=1, max_size=8
)
PRIORS = st.dictionaries(st.integers(1, 300), st.floats(1e-2, 1e7), max_size=4).map(
    lambda points: tuple(sorted(points.items()))
)


@settings(deadline=None)
@given(st.floats(0.0, 0.05), st.integers(0, 10_000))
def test_amdahls_law_is_recovered_from_noisy_windows(c1: float, seed: int) -> None:
    noise = random.Random(seed)
    windows = {n: [amdahl(n, c1) * math.exp(noise.gauss(0.0, 0.05)) for _ in range(9)] for n in FEW}
    fit = fitting.fit(levels(windows), (), 64)
    for n in (3, 12, 32):
        assert at(fit, n) == pytest.approx(amdahl(n, c1), rel=0.15)


@settings(deadline=None)
@given(st.sampled_from(FEW), st.floats(0.0, 0.9))
def test_disturbed_windows_hardly_move_a_size(size: int, share: float) -> None:
    windows = {n: [amdahl(n, 0.02)] * 9 for n in FEW}
    windows[size][:4] = [max(1e-6, share * windows[size][0])] * 4  # stalls, checkpoints
    assert at(fitting.fit(levels(windows), (), 64), size) == pytest.approx(amdahl(size, 0.02))


@settings(deadline=None)
@given(st.sampled_from(FEW), st.floats(0.1, 0.6))
def test_one_size_that_is_far_off_hardly_moves_the_others(size: int, share: float) -> None:
    windows = {n: [amdahl(n, 0.02)] * 5 for n in (*FEW, 32)}
    windows[size] = [share * rate for rate in windows[size]]
    fit = fitting.fit(levels(windows), (), 64)
    assert float(fit.model(np.array([48.0]))[0]) == pytest.approx(amdahl(48, 0.02), rel=0.2)


@settings(deadline=None)
@given(OBSERVED, PRIORS, st.integers(1, 50), st.integers(0, 400))
def test_every_belief_is_a_curve_and_asks_for_twice_the_largest_size_at_most(
    rates: dict[int, list[float]], prior: Points, n_min: int, more: int
) -> None:
    n_max = n_min + more
    estimate = fitting.estimated(levels(rates), prior, n_min, n_max, 1.0)
    assert curve.make(estimate.points) == estimate.points
    covered = prior[-1][0] if prior else 0
    assert n_min <= estimate.n_max <= min(n_max, max(2 * n_min, 2 * max(rates), covered))
    known = dict(estimate.points)
    for n, rate, _ in levels(rates):
        if n <= estimate.n_max:
            assert known[n] == pytest.approx(rate)


@settings(deadline=None)
@given(OBSERVED)
def test_without_a_curve_more_nodes_are_never_slower_by_the_model(rates: dict[int, list[float]]) -> None:
    nodes = np.arange(1.0, 400.0)
    for hopeful in (False, True):
        model = fitting.fit(levels(rates), (), 400).model(nodes, hopeful=hopeful)
        assert np.all(np.isfinite(model))
        assert np.all(model > 0)
        assert np.all(np.diff(model) >= -1e-9 * model[1:])


@settings(deadline=None)
@given(OBSERVED, PRIORS)
def test_what_was_not_seen_is_hoped_for(rates: dict[int, list[float]], prior: Points) -> None:
    fit = fitting.fit(levels(rates), prior, 400)
    largest = max(rates)
    for n in (largest + 1, 2 * largest):
        assert at(fit, n, hopeful=True) >= at(fit, n) * (1 - 1e-9)
        assert math.isfinite(float(fit.error(np.array([float(n)]))[0]))


def test_one_size_says_nothing_against_scaling_linearly() -> None:
    assert dict(fitting.estimated(levels({4: [40.0]}), (), 1, 64, 1.0).points)[8] == pytest.approx(80.0)


def test_a_trainer_that_does_not_scale_is_not_hoped_for_once_that_is_known() -> None:
    flat = {n: [100.0] * 9 for n in (1, 2, 4)}
    assert dict(fitting.estimated(levels(flat), (), 1, 64, 1.0).points)[8] < 130.0


def test_the_shape_of_a_given_curve_is_kept_until_it_is_refuted() -> None:
    given_ = ((1, 100.0), (8, 400.0), (32, 800.0))
    half = dict(fitting.estimated(levels({8: [200.0]}), given_, 1, 32, 1.0).points)
    assert half[32] == pytest.approx(400.0)
    refuted = {n: [n * 100.0] * 5 for n in (1, 8, 16, 24)}  # it scales linearly
    assert dict(fitting.estimated(levels(refuted), given_, 1, 32, 1.0).points)[32] == pytest.approx(
        3200, rel=0.2
    )


def test_sizes_beyond_a_trainers_own_limit_do_no_harm() -> None:
    """Others of its program were on more nodes than it may be given."""
    rates = {1: [1.0, 1.0], 3: [4.0], 4: [1.0]}
    fit = fitting.fit(levels(rates), ((1, 1.0),), 1)
    assert np.all(fit.model(np.arange(1.0, 5.0)) > 0)
    assert at(fit, 4) == pytest.approx(1.0)


def test_what_is_no_measurement_is_left_out() -> None:
    for rate in (math.nan, math.inf, -1.0, 0.0):
        assert observe.with_speed(Observations(), None, 1, rate) == Observations()
    assert observe.with_speed(Observations(), None, 0, 1.0) == Observations()
    assert observe.added(Observed(), math.nan) == Observed()


def test_all_windows_are_counted_and_the_latest_kept() -> None:
    ((_, windows),) = observe.sizes(seen({1: [float(i) for i in range(1, 101)]}))
    assert (windows.count, len(windows.recent), windows.recent[-1]) == (100, observe.KEPT, 100.0)


def test_the_more_windows_the_surer_and_what_was_seen_is_surer_than_what_was_not() -> None:
    def errors(k: int) -> dict[int, float]:
        sizes = observe.sizes(seen({n: [amdahl(n, 0.01)] * k for n in FEW}))
        return {e.nodes: e.error or 0.0 for e in explain.size_estimates(sizes, (), 1, 64, 1.0)}

    once, often = errors(1), errors(9)
    assert set(once) == {1, 2, 4, 8, 16, 32, 64}
    assert all(often[n] < once[n] for n in once)
    assert often[16] < often[32] < often[64]


def test_estimates_say_where_they_come_from() -> None:
    def sources(rates: dict[int, list[float]], prior: Points) -> list[tuple[int, str, int]]:
        found = explain.size_estimates(observe.sizes(seen(rates)), prior, 1, 4, 7.0)
        return [(e.nodes, e.source, e.windows) for e in found]

    assert sources({}, ()) == [(1, "assumed", 0), (2, "assumed", 0), (4, "assumed", 0)]
    assert sources({}, ((3, 9.0),))[2] == (3, "given", 0)
    assert sources({2: [5.0, 5.0]}, ()) == [(1, "predicted", 0), (2, "observed", 2), (4, "predicted", 0)]


def test_a_new_trainer_is_profiled_by_doublings_until_they_gain_little() -> None:
    assert profiling.next_profiling_size((), 3, 64, 2) == 3
    assert profiling.next_profiling_size(levels({3: [3.0]}), 3, 64, 2) == 6
    assert profiling.next_profiling_size(levels({3: [3.0], 6: [6.0]}), 3, 64, 2) is None
    assert profiling.next_profiling_size(levels({3: [3.0], 6: [6.0]}), 3, 10, 9) is None
    assert profiling.next_profiling_size(levels({1: [3.0], 2: [3.3]}), 1, 64, 9) is None
    assert profiling.next_profiling_size(levels({1: [3.0], 2: [6.0]}), 1, 64, 9) == 4


def test_costs_are_medians_and_given_ones_count_once() -> None:
    found = Observations()
    assert costing.costs(found, None, ASSUMED) == ASSUMED
    for stall in (4.0, 5.0, 600.0):  # somebody held everything up once
        found = observe.with_costs(found, Cost(stall_s=stall, init_s=9.0), None)
    known = costing.costs(found, None, ASSUMED)
    assert known == RescaleCosts(up=Cost(stall_s=5.0, init_s=9.0), down=ASSUMED.down)
    assert costing.costs(found, RescaleCosts(), ASSUMED).up.stall_s == 4.5
    assert costing.typical_costs([found, Observations()], ASSUMED) == known


# --- one program, several trainers ---------------------------------------------------------------


def trainer(id_: int, *command: str) -> Trainer:
    spec = TrainerSpec(name=f"t{id_}", command=command, n_min=1, n_max=64)
    return Trainer(id=id_, spec=spec, submitted_at=0.0)


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
    assert trainer(1, *command).spec.program == (".", *program)


def test_trials_of_one_program_begin_with_what_the_others_have_shown() -> None:
    first, second, other = trainer(1, "python", "a.py", "1"), trainer(2, "python", "a.py"), trainer(3, "b")
    programs: estimate.SharedObservations = {}
    for n in (1, 2, 4):
        event = Measured(time=0.0, trainer=1, generation=0, point=(n, 10.0 * n), up=Cost(stall_s=7.0))
        first, programs = estimate.with_measurement(first, programs, event, "")
    trainers = (first, second, other)
    found = [estimate[None] for estimate in estimate.estimates_of(trainers, programs)]
    assert [estimate.n_max for estimate in found] == [8, 8, 2]
    assert found[1].points == found[0].points
    assert [costs.up.stall_s for costs in estimate.costs_of(trainers, programs)] == [7.0, 7.0, 7.0]
    slow = Measured(time=0.0, trainer=2, generation=0, point=(4, 8.0))
    second, programs = estimate.with_measurement(second, programs, slow, "")
    estimated = estimate.estimates_of((second,), programs)[0][None]
    assert dict(estimated.points)[4] == pytest.approx(8.0)  # its own observations count first
    assert dict(estimated.points)[8] < 30.0


def test_programs_are_remembered_from_what_trainers_were_observed_to_do() -> None:
    first, programs = trainer(1, "a"), dict[tuple[str, ...], Observations]()
    event = Measured(time=0.0, trainer=1, generation=0, point=(2, 5.0), up=Cost(init_s=1.0), down=Cost())
    first, learnt = estimate.with_measurement(first, programs, event, "")
    assert estimate.observations_by_program([first, trainer(2, "a"), trainer(3, "b")]) == {
        **learnt,
        (".", "b"): Observations(),
    }
    assert replace(first, observed=Observations()) == trainer(1, "a")
