"""What is left of a study that runs, and what its deadline needs."""

from __future__ import annotations

import pytest

from bftrainer.cli.shared.study_forecast import forecast, learnt
from bftrainer.search.plan.ahead import Progress, ahead, in_words, late, left
from bftrainer.search.plan.of_study import experiments, profile
from tests.support.studies import curved

STUDY = curved()


def stages(*trials: Progress) -> list[tuple[int, float]]:
    """Trials and samples of what is left."""
    found = left(STUDY, trials)
    return [(s.trials, s.iterations) for s in found.stages] if found else []


def test_before_it_begins_all_of_its_stages_are_left() -> None:
    assert stages() == [(8, 10_000), (4, 10_000), (2, 20_000)]
    assert stages() == [(s.trials, s.iterations) for s in experiments(STUDY)[0].stages]


def test_what_trials_have_done_is_not_left() -> None:
    ended = [Progress(n, 1, 10_000, True) for n in range(7)]
    assert stages(*ended, Progress(7, 0, 6_000, True)) == [(1, 4_000), (4, 10_000), (2, 20_000)]
    assert stages(*ended, Progress(7, 0, 6_000, False, failed=True)) == [(4, 10_000), (2, 20_000)]
    on = [Progress(n, 1, 15_000, True) for n in range(4)]
    rest = [Progress(n, 1, 10_000, False) for n in range(4, 8)]
    assert stages(*on, *rest) == [(4, 5_000), (2, 20_000)]
    done = [Progress(n, 3, 40_000, False) for n in range(2)]
    half = [Progress(n, 2, 20_000, False) for n in range(2, 4)]
    assert left(STUDY, [*done, *half, *rest]) is None


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
    assert found.nodes is not None and min(found.nodes) >= 1
    hopeless = ahead(STUDY, [], 1, 5.0)
    assert hopeless is not None and hopeless.nodes is None


@pytest.mark.parametrize(
    ("deadline_s", "nodes", "said"),
    [
        (None, 4, "14 runs left, done in 00:39 with 4 nodes as now"),
        (600, 4, "with 4 nodes as now: on time"),
        (None, 1, "with 1 node as now"),
        (35, 4, "too late; on time with "),
        (5, 4, "too late, and so with any number of nodes"),
        (
            86_400,
            0,
            "no nodes now, done in 02:35 once it has 1 node: on time if it has them within 23:57:25",
        ),
        (None, 0, "no nodes now, done in 02:35 once it has 1 node"),
        (60, 0, "no nodes now, done in 02:35 once it has 1 node: on time only with "),
        (5, 0, "too late, and so with any number of nodes"),
    ],
)
def test_a_study_says_how_it_goes_on(deadline_s: float | None, nodes: int, said: str) -> None:
    found = ahead(STUDY, [Progress(0, 0, 5_000, True)], nodes, deadline_s)
    assert found is not None
    assert said in in_words(found, deadline_s)


def test_a_study_without_nodes_is_not_late_while_some_number_of_them_would_do() -> None:
    """As where pilots have not joined yet, or all trials of a stage have just ended."""
    for before, on, seconds in ((0, 1, 155.0), (4, 4, 39.3)):
        found = ahead(STUDY, [Progress(0, 0, 5_000, True)], 0, 60.0, before=before)
        assert found is not None and found.waits
        assert (found.on, found.seconds) == (on, pytest.approx(seconds, abs=0.1))
        assert not late(found, 60.0)
    hopeless = ahead(STUDY, [], 0, 5.0)
    assert hopeless is not None and late(hopeless, 5.0)
    assert "no GPUs now, done in 00:41 once it has 4 GPUs" in in_words(
        ahead(STUDY, [], 0, None, before=4) or hopeless, None, "GPU"
    )


def test_no_forecast_is_made_up() -> None:
    assert ahead(curved(trainer={"curve": None}), [], 4, 600.0) is None
    ended = {"ended_at": 1.0, "forecast": None}
    assert forecast(ended) == ""
    assert forecast({**ended, "ended_at": None}).startswith("no forecast yet; it needs a curve")
    known = {"learnt": {"curve": [[1, 9.876], [2, 19004.2]], "start_s": 1.26}}
    assert learnt(known) == "learnt of its trials: curve: [[1, 9.88], [2, 19004]]; a start takes 1.3 s"
    assert learnt({"learnt": {"curve": [], "start_s": None}}) == learnt({}) == ""
    latest = {"at": 0.0, "text": "3 runs left", "because": "a stage has ended"}
    line = forecast({"ended_at": None, "forecast": latest})
    assert line.startswith("forecast: 3 runs left (planned at ") and line.endswith(": a stage has ended)")
