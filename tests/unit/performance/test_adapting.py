"""Goodput of trainers whose batch adapts, from what their runs report."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.daemon.answers.views.trainers import scalability_view
from bftrainer.model.events import Measured
from bftrainer.model.trainer import AdaptingBatch, Observations, Points, Trainer, TrainerSpec, batch_of
from bftrainer.performance import adapting, estimate, observe
from bftrainer.performance.goodput import SystemModel, efficiency
from bftrainer.performance.goodput_fit import IterationTime, fit

SYSTEM = SystemModel(alpha_grad=0.02, beta_grad=0.0005, alpha_node=0.01, beta_node=0.001, gamma=1.5)
BATCH = AdaptingBatch(batch=64, at_once=64, initial=64, most=2048, most_at_once=256, workers=1, noise=500.0)
FIGURES = {
    "goodput.batch": 64.0,
    "goodput.at_once": 64.0,
    "goodput.initial": 64.0,
    "goodput.max": 2048.0,
    "goodput.max_per_worker": 256.0,
    "goodput.workers": 1.0,
    "goodput.noise": 500.0,
}


NOTHING = Observations()


def rate_of(n: int, batch: AdaptingBatch, slower: float = 1.0, system: SystemModel = SYSTEM) -> float:
    """Samples/s of a trainer of this system."""
    return batch.batch / (slower * float(system.iteration_time(n, n, batch.batch / n)))


def seen(
    slower: float = 1.0,
    sizes: tuple[int, ...] = (1, 2, 4),
    before: Observations = NOTHING,
    system: SystemModel = SYSTEM,
) -> Observations:
    for n in sizes:
        for total in (64, 128, 256):
            batch = replace(BATCH, batch=total, at_once=256)
            before = observe.with_step(before, None, n, batch, rate_of(n, batch, slower, system))
    return before


def times(seen: Observations) -> adapting.Times:
    return adapting.times_of(seen, None)


def goodputs_of(batch: AdaptingBatch, version: adapting.VersionTimes, nodes: tuple[int, ...]) -> Points:
    (found,) = adapting.goodputs([adapting.AskedGoodput(batch, version, nodes)])
    return found


def goodputs(batch: AdaptingBatch, seen: Observations, nodes: tuple[int, ...]) -> Points:
    """Of a trainer whose program is its own."""
    return goodputs_of(batch, adapting.VersionTimes(times(seen)), nodes)


def test_what_a_run_reports_of_its_batch_is_taken_over() -> None:
    assert batch_of(FIGURES) == BATCH
    assert batch_of({"loss": 1.0}) is None


@pytest.mark.parametrize("noise", [math.nan, -1.0, math.inf, 1e31])
def test_what_is_no_noise_counts_as_unknown(noise: float) -> None:
    found = batch_of({**FIGURES, "goodput.noise": noise})
    assert found == replace(BATCH, noise=None)
    assert goodputs(found, seen(), (1, 2)) == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max", 63.0),
        ("batch", 4096.0),
        ("at_once", 300.0),
        ("workers", 0.0),
        ("initial", math.nan),
        ("max", 1e300),
    ],
)
def test_limits_that_contradict_each_other_are_no_batch(name: str, value: float) -> None:
    assert batch_of({**FIGURES, f"goodput.{name}": value}) is None


@given(st.dictionaries(st.sampled_from(sorted(FIGURES)), st.floats()))
def test_whatever_is_reported_has_a_goodput_or_none(wrong: dict[str, float]) -> None:
    found = batch_of({**FIGURES, **wrong})
    if found is None:
        return
    own = observe.with_step(Observations(), None, 2, found, 100.0)
    points = goodputs(found, own, (1, 2, 5))
    assert all(0 <= rate < math.inf for _, rate in points)
    assert not points or points[0][1] > 0


def test_goodput_is_that_of_the_best_batch_on_each_number_of_nodes() -> None:
    nodes = (1, 2, 3, 4, 8)
    found = goodputs(BATCH, seen(), nodes)
    for n, rate in found:
        shown = min(n, 4)  # more were not seen: they are believed to slow nothing down
        best = max(
            total
            / float(SYSTEM.iteration_time(n, shown, total / n / passes, passes - 1))
            * float(efficiency(500.0, 64, total))
            for total in range(64, 2049, 8)
            for passes in range(1, 9)
            if total / n / passes <= 256 and (n > 1 or total == 64 or passes > 1)
        )
        assert rate == pytest.approx(best, rel=0.05)


def test_goodput_follows_times_that_no_seven_parameters_have() -> None:
    """A program that is slowed down on two nodes, and no more on four."""
    own = NOTHING
    for n, slower in ((1, 1.0), (2, 1.6), (4, 1.0)):
        own = seen(slower, (n,), own)
    found, plain = (dict(goodputs(BATCH, known, (1, 2, 4))) for known in (own, seen()))
    assert [found[n] / plain[n] for n in (1, 2, 4)] == pytest.approx([1, 1 / 1.6, 1], rel=0.05)


def test_more_noise_is_worth_more_nodes() -> None:
    low, high = (dict(goodputs(replace(BATCH, noise=n), seen(), (1, 8))) for n in (10.0, 1e5))
    assert high[8] / high[1] > 2 * low[8] / low[1]


def test_times_of_others_of_the_program_are_brought_to_the_trainers_own_speed() -> None:
    """As if it had measured them all itself: its own follow exactly, and also beyond what others have."""
    nodes = (1, 2, 4, 8)
    alike = dict(goodputs(BATCH, seen(slower=2.0), nodes))
    for every in (seen(), seen(sizes=(2, 4))):
        version = adapting.version_of(times(every), times(seen(slower=2.0, sizes=(1,))))
        assert not version.alone
        assert dict(goodputs_of(BATCH, version, nodes)) == pytest.approx(alike, rel=0.02)
    assert adapting.version_of(times(seen()), ()) == adapting.VersionTimes(times(seen()))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from([(), (1,), (2, 4), (1, 2, 4)]), min_size=2, max_size=6), st.randoms())
def test_trainers_that_are_looked_at_together_have_the_goodputs_that_each_has_alone(
    own: list[tuple[int, ...]], rng: random.Random
) -> None:
    every = times(seen(sizes=(1, 2, 4, 8)))
    asked = []
    for sizes in own:
        measured = times(seen(slower=rng.uniform(0.8, 1.25), sizes=sizes))
        batch = replace(BATCH, noise=rng.choice((None, 0.0, 500.0, 1e30)), workers=rng.choice((1, 2)))
        nodes = tuple(sorted(rng.sample(range(1, 40), rng.randint(0, 8))))
        asked.append(adapting.AskedGoodput(batch, adapting.version_of(every, measured), nodes))
    together = adapting.goodputs(asked)
    for one, found in zip(asked, together, strict=True):
        (alone,) = adapting.goodputs([one])
        assert [n for n, _ in found] == [n for n, _ in alone] == list(one.nodes if alone else ())
        assert [rate for _, rate in found] == pytest.approx([rate for _, rate in alone], rel=1e-12)


def test_one_model_is_fitted_for_all_trainers_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = []

    def counted(steps: Sequence[IterationTime]) -> SystemModel:
        fits.append(steps)
        return fit(steps)

    monkeypatch.setattr(adapting, "fit", counted)
    spec = TrainerSpec(name="t", command=("python", "one.py"), n_min=1, n_max=4)
    programs = {spec.program: seen(slower=1.017)}  # no other test has fitted these
    trainers = tuple(
        Trainer(id=i, spec=spec, submitted_at=0.0, observed=seen(slower, (1, 2)), batch=BATCH)
        for i, slower in enumerate((0.9, 1.0, 1.1))
    )
    found = [own[None].goodput for own in estimate.estimates_of(trainers, programs)]
    assert len(fits) == 1
    assert [found[0][0][1] / points[0][1] for points in found] == pytest.approx(
        [1, 1 / 0.9, 1.1 / 0.9], rel=0.05
    )


def test_where_a_trainer_is_off_its_program_its_own_times_are_followed() -> None:
    own = seen(slower=1.25, sizes=(2,), before=seen(sizes=(1, 4)))
    version = adapting.version_of(times(seen()), times(own))
    assert version == adapting.VersionTimes(times(seen()), times(own))
    plain, found = (
        dict(goodputs_of(BATCH, these, (1, 2, 4)))
        for these in (adapting.VersionTimes(times(seen())), version)
    )
    assert [found[n] / plain[n] for n in (1, 2, 4)] == pytest.approx([1, 1 / 1.25, 1], rel=0.05)


def test_times_that_no_model_fits_tell_nothing() -> None:
    """As where a program changes its model while it trains."""
    mixed = seen(slower=50.0, sizes=(1,), before=seen(sizes=(2, 4)))
    odd = Observations(steps=tuple(s for i, s in enumerate((*mixed.steps, *seen(sizes=(1,)).steps)) if i % 2))
    assert goodputs(BATCH, odd, (1, 2)) == ()
    assert goodputs(BATCH, NOTHING, (1, 2)) == ()


OTHER = SystemModel(alpha_grad=0.02, beta_grad=0.0005, alpha_node=0.3, beta_node=0.03, gamma=1.5)
"""Another version of the program: its model is larger to exchange."""


@pytest.mark.parametrize(
    ("slower", "system"), [(30.0, SYSTEM), (1.0, OTHER)], ids=["slower and mixed", "more to exchange"]
)
def test_a_version_of_a_program_with_another_model_counts_by_its_own_steps(
    slower: float, system: SystemModel
) -> None:
    """Its first windows fall into the same record as those of the earlier version, which has run for long."""
    own, shared = NOTHING, seen()
    for n in (1, 2):
        for total in (64, 128):
            batch = replace(BATCH, batch=total, at_once=256)
            rate = rate_of(n, batch, slower, system)
            own, shared = (observe.with_step(before, None, n, batch, rate) for before in (own, shared))
    version = adapting.version_of(times(shared), times(own))
    spec = TrainerSpec(name="t", command=("python", "a.py"), n_min=1, n_max=4)
    trainer = Trainer(id=1, spec=spec, submitted_at=0.0, observed=own, batch=BATCH)
    view = scalability_view(trainer, [], {spec.program: shared})
    assert view["counts"] == "goodput, by its own steps: others of its program take other times"
    assert view["goodput"]
    assert version == adapting.VersionTimes(times(own), alone=True)
    known = seen(slower, before=NOTHING, system=system)
    ratio, expected = (
        found[2] / found[1] for found in (dict(goodputs(BATCH, these, (1, 2))) for these in (own, known))
    )
    assert ratio == pytest.approx(expected, rel=0.1)


def test_one_version_of_a_program_counts_by_the_steps_of_all() -> None:
    own = seen(slower=1.2, sizes=(1,))
    for every in (seen(before=own), own):
        assert not adapting.version_of(times(every), times(own)).alone
    spec = TrainerSpec(name="t", command=("python", "a.py"), n_min=1, n_max=4)
    trainer = Trainer(id=1, spec=spec, submitted_at=0.0, observed=own, batch=BATCH)
    assert scalability_view(trainer, [], {spec.program: seen(before=own)})["counts"] == "goodput"


def test_kinds_of_steps_that_were_not_measured_for_long_make_room() -> None:
    own = Observations()
    for total in range(64, 64 + 2 * observe.MOST_STEPS):
        own = observe.with_step(own, None, 1, replace(BATCH, batch=total, at_once=256), 100.0)
    assert len(own.steps) == observe.MOST_STEPS
    assert own.steps[-1][3] == 63 + 2 * observe.MOST_STEPS


def test_who_has_no_noise_yet_begins_with_the_speed_that_others_of_its_program_have_shown() -> None:
    spec = TrainerSpec(name="t", command=("python", "a.py"), n_min=1, n_max=16)
    first, second = (Trainer(id=i, spec=spec, submitted_at=0.0) for i in (1, 2))
    programs: estimate.SharedObservations = {}
    for n in (1, 2, 4):
        event = Measured(time=0.0, trainer=1, generation=0, point=(n, rate_of(n, BATCH)), batch=BATCH)
        first, programs = estimate.with_measurement(first, programs, event, "")
    one, other = (found[None] for found in estimate.estimates_of((first, second), programs))
    assert [n for n, _ in one.goodput] == [n for n, _ in one.points] == list(range(1, 9))
    assert not other.goodput
    assert dict(other.points) == pytest.approx(dict(one.points))
    assert dict(other.progress) == pytest.approx(dict(one.points))
