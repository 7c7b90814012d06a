"""How much later main jobs are, and what of it is noise."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.testbeds.impact import tables
from benchmarks.testbeds.impact.differences import FIGURES, MODES, compare, difference, over_pairs, waits_of
from benchmarks.testbeds.impact.tables import Runs
from slurm.testbed import TestbedError
from slurm.testbed.mix import gpus_of
from tests.support.main_runs import SUBMITTED, main_run, three, waited

SECONDS = st.floats(0, 100).map(lambda value: round(value, 3))
ROWS = st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=30)


@settings(max_examples=30)
@given(ROWS)
def test_two_runs_without_in_another_order_are_the_same(rows: list[tuple[float, float, float]]) -> None:
    one, other = waited(rows), waited([(b, a, w) for a, b, w in rows])
    for name in FIGURES:
        first, second = difference(one, name), difference(other, name)
        for part in ("later", "noise", "beyond"):
            assert getattr(first, part).value == pytest.approx(getattr(second, part).value)


@settings(max_examples=30)
@given(ROWS, st.just(0.0) | st.floats(0.01, 50))
def test_what_all_jobs_are_later_by_is_found_and_runs_alike_are_noise(
    rows: list[tuple[float, float, float]], later: float
) -> None:
    """`with` is a copy of the first run, shifted."""
    alike = waited([(a, a, a + later) for a, _, _ in rows])
    for name in FIGURES:
        found = difference(alike, name)
        assert found.later.value == pytest.approx(later)
        assert found.beyond.value == pytest.approx(later)
        assert found.noise.value == 0
        assert found.is_noise == (later == 0)
    third = waited([(a, b, b) for a, b, _ in rows])
    for name in ("median", "mean"):
        assert difference(third, name).later.value <= difference(third, name).noise.value + 1e-9
        assert difference(third, name).is_noise


@settings(max_examples=20)
@given(st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=3, max_size=30))
def test_intervals_have_a_lower_and_an_upper_end(rows: list[tuple[float, float, float]]) -> None:
    for name in FIGURES:
        found = difference(waited(rows), name)
        for part in (found.later, found.noise, found.beyond):
            assert part.low is not None
            assert part.high is not None
            assert part.low <= part.high or part.low == pytest.approx(part.high)  # one in the last digit
        assert found.noise.value >= -1e-9


@settings(max_examples=20)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.sampled_from([0.0, 1.0]))
def test_where_slurm_is_in_its_interval_when_a_load_begins_counts_for_little(
    first: float, second: float, third: float, later: float
) -> None:
    submitted = [number * 0.618034 % 1 for number in range(120)]
    rows = [((first - at) % 1, (second - at) % 1, (third - at) % 1 + later) for at in submitted]
    for name in ("median", "mean"):
        found = difference(waited(rows), name)
        assert found.later.value == pytest.approx(later, abs=0.05)
        assert found.noise.value == pytest.approx(0, abs=0.05)


def test_few_jobs_have_no_interval() -> None:
    found = difference(waited([(1, 2, 5), (1, 1, 1)]), "mean")
    assert (found.later.value, found.later.low) == (1.75, None)


def test_one_job_of_many_that_waits_two_minutes_shows_in_mean_and_p99_but_not_in_the_median() -> None:
    rows = [(0.6, 0.7, 0.65)] * 39 + [(1.0, 1.0, 121.0)]
    found = {name: difference(waited(rows), name) for name in FIGURES}
    assert found["median"].beyond.value < 0
    assert found["mean"].beyond.value > 2
    assert found["p99"].beyond.value > 50


def test_jobs_are_matched_and_those_that_did_not_start_are_told() -> None:
    runs = three([(1, 2, 5), (1, 1, 1), (1, 1, None), (None, 1, 1)])
    runs["with"].append(main_run(9, 1.0))
    jobs, missing = waits_of(runs)
    assert [(job.number, job.later, job.beyond) for job in jobs] == [(1, 3.5, 3.0), (2, 0, 0)]
    assert missing == ((3, 0), (4, 0), (9, 0))
    pair = compare(7, runs)
    assert [job.number for job in pair.late()] == [1]
    assert pair.kinds["nodes"][0] == 2


def test_runs_without_a_job_in_common_are_refused() -> None:
    with pytest.raises(TestbedError, match="seed 3: no main job has started in all three runs"):
        compare(3, three([(1, 1, None)]))


def test_the_worst_pair_is_named() -> None:
    pairs = [compare(seed, three([(0, 0, later)] * 4)) for seed, later in ((1, 0.1), (2, 3.0), (3, 0.2))]
    found = over_pairs(pairs, "mean", "beyond")
    assert (found.median, found.worst, found.seed) == (pytest.approx(0.2), 3.0, 2)
    lines = tables.differences_table(pairs)
    assert lines[2] == "| median | +0.20 s | +0.00 s | +0.20 s | +3.00 s (seed 2) | 3 of 3 |"
    kept = tables.goals(pairs, failed=0, requeued=1)
    assert list(kept.values()) == [False, True, True, True, False]
    assert list(tables.goals(pairs[:1], 0, 0).values()) == [True] * 5


def test_tables_have_as_many_cells_as_their_head() -> None:
    runs = three([(0.5, 0.6, 2.0), (1, 1, 1), (3, 4, 5)])
    outcome = {"main": 0.3, "trained": 0.2, "held": 0.25}
    every = [Runs(dict.fromkeys(MODES, outcome), runs)]
    pairs = [compare(1, runs)]
    for found in (
        tables.waits_table(every),
        tables.differences_table(pairs),
        tables.kinds_table(pairs),
        tables.utilisation_table(every),
    ):
        assert len({line.count("|") for line in found}) == 1, found
    assert "| most | 3.00 s | 4.00 s | 5.00 s |" in tables.waits_table(every)
    assert "| used in all | 50.0% | 50.0% |" in tables.utilisation_table(every)
    assert tables.states(every) == "3 completed"


def test_gpus_count_for_the_jobs_that_have_some() -> None:
    """Of four GPUs a node, as `slurm.testbed.mix` asks for them."""
    asked = [
        (("--gres=gpu:2", "--cpus-per-task=2"),),
        (("--cpus-per-task=4",),),
        (("--nodes=2", "--exclusive", "--gres=gpu:a100:4"),),
    ]
    assert [gpus_of(components) for components in asked] == [2, 0, 8]
    runs = {mode: [main_run(1, 0.0), main_run(2, 0.0)] for mode in MODES}
    outcome = {"main": 0.3, "trained": 0.2, "held": 0.25, "nodes": 2, "begin": SUBMITTED}
    outcome["end"] = SUBMITTED + 10.0
    found = tables.utilisation_table([Runs(dict.fromkeys(MODES, outcome), runs)], [{1: 0.5, 2: 0.0}])
    assert found[-2:] == [
        "| GPUs that main jobs had | 10.0% | 10.0% |",
        "| GPUs in use in all | 30.0% | 30.0% |",
    ]
