"""What is left of a study that runs, and what its deadline needs."""

from __future__ import annotations

import random
from typing import Any

import pytest

from bftrainer.cli.studies.show import forecast, learnt
from bftrainer.model.trainer import TrainerStatus
from bftrainer.search.plan.ahead import TrialProgress, ahead, in_words, late, left, progress
from bftrainer.search.plan.of_study import experiments, profile
from tests.support.studies import Run, curved

STUDY = curved()


def stages(*trials: TrialProgress, **more: Any) -> list[tuple[int, float]]:
    """Trials and samples of the stages that are left."""
    found = left(curved(**more), trials)
    return [(s.trials, s.iterations) for s in found.experiment.stages] if found else []


def begun(*trials: TrialProgress, **more: Any) -> list[tuple[float, ...]]:
    """What trials that train have left, by bracket."""
    found = left(curved(**more), trials)
    return [bracket.begun for bracket in found.brackets] if found else []


def test_before_it_begins_all_of_its_stages_are_left() -> None:
    assert stages() == [(8, 10_000), (4, 10_000), (2, 20_000)]
    assert stages() == [(s.trials, s.iterations) for s in experiments(STUDY)[0].stages]


def test_what_trials_have_done_is_not_left() -> None:
    ended = [TrialProgress(n, 1, 10_000, False) for n in range(7)]
    assert stages(*ended, TrialProgress(7, 0, 6_000, True)) == [(1, 10_000), (4, 10_000), (2, 20_000)]
    assert begun(*ended, TrialProgress(7, 0, 6_000, True)) == [(4_000,)]
    assert stages(*ended, TrialProgress(7, 0, 6_000, False, lost=True)) == [(4, 10_000), (2, 20_000)]
    on = [TrialProgress(n, 1, 15_000, True) for n in range(3)]
    rest = [TrialProgress(n, 1, 10_000, False) for n in range(3, 8)]
    assert stages(*on, *rest) == [(4, 10_000), (2, 20_000)]
    assert begun(*on, *rest) == [(5_000,) * 3]
    done = [TrialProgress(n, 3, 40_000, False) for n in range(2)]
    half = [TrialProgress(n, 2, 20_000, False) for n in range(2, 4)]
    assert left(STUDY, [*done, *half, *rest]) is None


def test_trials_of_asha_that_train_at_a_later_rung_do_not_wait_for_the_others() -> None:
    trials = [TrialProgress(0, 1, 12_000, True), TrialProgress(1, 0, 3_000, True)]
    asha = {"stopping": {"asha": {"least": 10_000, "eta": 2}}}
    assert stages(*trials, **asha) == [(8, 10_000), (3, 10_000), (2, 20_000)]
    assert begun(*trials, **asha) == [(7_000, 8_000)]


def test_brackets_go_on_at_once() -> None:
    """Executed in 142.3 s by four nodes, of which 160 s were allowed; one bracket after the other is late."""
    study = curved(
        trials=9,
        budget=4320,
        stopping={"hyperband": {"least": 480, "eta": 3}},
        trainer={
            "nodes": {"min": 1, "max": 2},
            "curve": [[1, 39.27], [2, 77.81]],
            "rescale": {"up": {"stall_s": 0, "init_s": 0.75}, "down": {"stall_s": 0}},
        },
    )
    found = ahead(study, [], 4, 160.0)
    assert found is not None and found.seconds == pytest.approx(123, abs=3)
    assert in_words(found, 160.0).endswith("with 4 nodes as now: on time")
    slower = ahead(study, [], 3, 130.0)
    assert slower is not None and slower.nodes == 4
    assert in_words(slower, 130.0).endswith("too late; on time with 4 nodes")


def test_hyperband_has_an_experiment_for_each_bracket() -> None:
    own = curved(stopping={"hyperband": {"least": 10_000, "eta": 2}})
    found = experiments(own, iteration_samples=100)
    assert len(found) == 3 and sum(e.stages[0].trials for e in found) == 8
    assert [e.stages[0].iterations for e in found] == [100, 200, 400]


def test_the_trainer_says_how_fast_a_trial_is_and_what_it_costs_to_start() -> None:
    rescale = {"up": {"stall_s": 2, "init_s": 5}, "down": {"stall_s": 1}}
    found = profile(curved(trainer={"rescale": rescale}))
    assert (found.least, found.most, found.start.mean) == (1, 4, 7.0)
    assert found.curve == ((1, 1000), (2, 1900), (4, 3400))


def test_the_time_is_that_on_the_nodes_of_now() -> None:
    found = ahead(STUDY, [], 4, 3600.0)
    assert found is not None
    assert found.seconds == pytest.approx(2 * 10 + 10 + 20 / 1.9)
    assert found.nodes is not None and found.nodes >= 1
    for deadline_s in (25.0, 45.0, 60.0, 100.0):
        fewest = ahead(STUDY, [], 4, deadline_s)
        assert fewest is not None and fewest.nodes is not None
        for nodes, enough in ((fewest.nodes, True), (fewest.nodes - 1, False)):
            own = ahead(STUDY, [], nodes, None)
            assert own is not None and own.seconds is not None
            assert (not own.waits and own.seconds <= deadline_s) is enough
    hopeless = ahead(STUDY, [], 1, 5.0)
    assert hopeless is not None and hopeless.nodes is None


@pytest.mark.parametrize(
    ("deadline_s", "nodes", "said"),
    [
        (None, 4, "14 runs left, done in 39 s with 4 nodes as now"),
        (600, 4, "with 4 nodes as now: on time"),
        (None, 1, "with 1 node as now"),
        (35, 4, "too late; on time with "),
        (5, 4, "too late, and so with any number of nodes"),
        (
            86_400,
            0,
            "no nodes now, done in 3 min once it has 1 node: on time if it has them within 24 h",
        ),
        (None, 0, "no nodes now, done in 3 min once it has 1 node"),
        (60, 0, "no nodes now, done in 3 min once it has 1 node: on time only with "),
        (5, 0, "too late, and so with any number of nodes"),
    ],
)
def test_a_study_says_how_it_goes_on(deadline_s: float | None, nodes: int, said: str) -> None:
    found = ahead(STUDY, [TrialProgress(0, 0, 5_000, True)], nodes, deadline_s)
    assert found is not None
    assert said in in_words(found, deadline_s)


def test_a_study_without_nodes_is_not_late_while_some_number_of_them_would_do() -> None:
    """As where pilots have not joined yet, or all trials of a stage have just ended."""
    for before, on, seconds in ((0, 1, 155.0), (4, 4, 39.4)):
        found = ahead(STUDY, [TrialProgress(0, 0, 5_000, True)], 0, 60.0, before=before)
        assert found is not None and found.waits
        assert (found.on, found.seconds) == (on, pytest.approx(seconds, abs=0.1))
        assert not late(found, 60.0)
    hopeless = ahead(STUDY, [], 0, 5.0)
    assert hopeless is not None and late(hopeless, 5.0)
    assert "no GPUs now, done in 41 s once it has 4 GPUs" in in_words(
        ahead(STUDY, [], 0, None, before=4) or hopeless, None, "GPU"
    )


def test_no_forecast_is_made_up() -> None:
    assert ahead(curved(trainer={"curve": None}), [], 4, 600.0) is None
    assert ahead(curved(trainer={"nodes": {"min": 3, "max": 4}}), [], 2, 600.0, most=2) is None
    ended = {"ended_at": 1.0, "forecast": None}
    assert forecast(ended) == ""
    assert forecast({**ended, "ended_at": None}).startswith("no forecast yet; it needs a curve")
    known = {"learnt": {"curve": [[1, 9.876], [2, 19004.2]], "start_s": 1.26}}
    assert learnt(known) == "learnt of its trials: curve: [[1, 9.88], [2, 19004]]; a start takes 1.3 s"
    assert learnt({"learnt": {"curve": [], "start_s": None}}) == learnt({}) == ""
    latest = {"at": 0.0, "text": "3 runs left", "because": "a stage has ended"}
    line = forecast({"ended_at": None, "forecast": latest})
    assert line.startswith("forecast: 3 runs left (planned at ") and line.endswith(": a stage has ended)")


def test_of_thousands_of_trials_several_count_as_one() -> None:
    many = curved(trials=5_000, stopping="none", budget=10_000)
    found = ahead(many, [TrialProgress(0, 0, 5_000, True)], 4, None)
    assert found is not None and found.seconds == pytest.approx(4_999.5 * 10 / 4, rel=0.01)


def runs_left(run: Run) -> int:
    """How many trainers are still to reach a rung's end, those that run among them."""
    rest = left(run.study.spec, progress(run.study))
    return sum(s.trials for s in rest.experiment.stages) if rest else 0


@pytest.mark.parametrize("kind", ["halving", "hyperband", "asha"])
@pytest.mark.parametrize("seed", range(4))
def test_trials_that_were_lost_are_not_left_nor_those_that_they_would_have_become(
    kind: str, seed: int
) -> None:
    """Some fail, and users cancel some. From then on as many runs end as were left; with ASHA more may be
    promoted than in the end are among the best, but what runs is never left out."""
    rng = random.Random(seed)
    run = Run(curved(trials=11, stopping={kind: {"least": 5_000, "eta": 2}}, retries=0, parallelism=4))
    for _ in range(rng.randrange(4, 12)):
        number = rng.choice(sorted(run.running))
        lost = rng.choice([TrainerStatus.FAILED, TrainerStatus.CANCELLED, TrainerStatus.COMPLETED])
        run.end(number, lost)
        assert runs_left(run) >= len(run.running)
    while run.running:
        before = runs_left(run)
        assert before >= len(run.running)
        run.end(rng.choice(sorted(run.running)))
        if kind != "asha":
            assert runs_left(run) == before - 1
    assert runs_left(run) == 0


def test_what_the_median_has_stopped_is_not_left() -> None:
    run = Run(
        curved(trials=6, stopping={"median": {"warmup": 1_000, "startup": 2}}, parallelism=6),
        score=lambda number, samples: float(number),
    )
    for number in range(6):
        run.report(number, 2_000)
    assert run.stopped and runs_left(run) == len(run.running) == 6 - len(run.stopped)


def test_all_trials_of_asha_that_were_promoted_are_left() -> None:
    """Of nine trials, each better than the one before, more than a third are promoted."""
    run = Run(
        curved(trials=9, budget=9_000, stopping={"asha": {"least": 1_000, "eta": 3}}, parallelism=16),
        score=lambda number, samples: -number,
    )
    for number in range(9):
        run.end(number)
    assert len(run.running) > 3
    assert runs_left(run) >= len(run.running) + 1


def test_a_trial_that_has_told_of_its_last_sample_has_no_whole_rung_left() -> None:
    trial = TrialProgress(7, 0, 10_000, True)
    rest = [TrialProgress(n, 1, 10_000, False) for n in range(7)]
    assert begun(trial, *rest) == [(1,)]
