"""What a study decides on its trials, event by event."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf, nan

import pytest
import yaml

from bftrainer.model.trainer import TrainerStatus
from bftrainer.search import events, stopping
from bftrainer.search.brackets import brackets
from bftrainer.search.decide import step
from bftrainer.search.rows import loaded, stored_study, stored_trial
from bftrainer.search.stopping import unmeasured
from bftrainer.search.trial import Study, StudyFile, StudyStatus, TrialStatus
from tests.support.studies import TEXT, Run, spec_of

HALVING = {"halving": {"least": 100, "eta": 2}}


def statuses(run: Run) -> Counter[str]:
    return Counter(t.status.value for t in run.study.trials.values())


def test_every_trial_has_the_whole_budget_where_none_is_stopped() -> None:
    run = Run(spec_of(parallelism=3))
    assert sorted(run.running) == [0, 1, 2]
    run.finish()
    assert run.study.status is StudyStatus.COMPLETED
    assert [samples for _, samples in run.started] == [800] * 8
    assert run.study.ended_at == 1.0
    best = run.study.best()
    assert best is not None and best.trial.number == 0


def test_successive_halving_keeps_the_best_half_at_each_rung() -> None:
    run = Run(spec_of(parallelism=8, stopping=HALVING), lambda n, samples: -float(n))
    run.finish()
    assert Counter(samples for _, samples in run.started) == {100: 8, 200: 4, 400: 2, 800: 1}
    assert [n for n, samples in run.started if samples == 400] == [6, 7]
    assert statuses(run) == {"stopped": 7, "completed": 1}
    assert run.study.trials[3].reason == "not among the best 4 of 8 at rung 0"


def test_a_rung_waits_for_all_trials_of_its_bracket() -> None:
    run = Run(spec_of(parallelism=8, stopping=HALVING))
    for number in range(7):
        run.end(number)
    assert list(run.running) == [7]
    assert statuses(run) == {"paused": 7, "running": 1}
    run.end(7)
    assert sorted(run.running) == [0, 1, 2, 3]


def test_a_trial_that_failed_is_not_waited_for() -> None:
    run = Run(spec_of(parallelism=8, stopping=HALVING, retries=0))
    for number in range(7):
        run.end(number)
    run.end(7, TrainerStatus.FAILED)
    assert sorted(run.running) == [0, 1, 2, 3]
    assert run.study.trials[7].reason == "why"


def test_asha_promotes_without_waiting_and_gives_one_the_whole_budget() -> None:
    run = Run(spec_of(parallelism=2, stopping={"asha": {"least": 100, "eta": 2}}))
    run.end(0)
    run.end(1)
    assert run.study.trials[0].status is TrialStatus.RUNNING
    assert run.study.trials[0].rung == 1
    run.finish()
    assert run.study.status is StudyStatus.COMPLETED
    assert run.study.trials[0].status is TrialStatus.COMPLETED
    assert statuses(run)["completed"] >= 1
    assert max(samples for _, samples in run.started) == 800


def test_asha_sends_no_trial_on_while_one_that_it_has_just_sent_on_may_be_better() -> None:
    scores = {0: 2.0, 1: 4.0, 2: 3.0, 3: 1.0}
    run = Run(
        spec_of(trials=4, parallelism=1, stopping={"asha": {"least": 100, "eta": 2}}),
        lambda number, samples: scores[number],
    )
    for number in (0, 1, 0, 2, 3):
        run.end(number)
    assert list(run.running) == [3] and run.study.trials[3].rung == 1
    run.end(3)
    assert list(run.running) == [3] and run.study.trials[0].status is not TrialStatus.WAITING


def test_hyperband_has_brackets_that_begin_later() -> None:
    run = Run(
        spec_of(trials=14, budget=400, stopping={"hyperband": {"least": 100, "eta": 2}}, parallelism=14)
    )
    first = Counter(samples for _, samples in run.started[:14])
    assert first == {100: 5, 200: 5, 400: 4} or sum(first.values()) == 14
    assert set(first) == {100, 200, 400}
    run.finish()
    assert run.study.status is StudyStatus.COMPLETED


def test_each_of_hyperbands_brackets_has_a_trial_as_far_as_they_go() -> None:
    for trials, each in ((4, [2, 1, 1]), (2, [1, 1]), (25, [16, 6, 3])):
        spec = spec_of(trials=trials, budget=1600, stopping={"hyperband": {"least": 100, "eta": 4}})
        assert [one.trials for one in brackets(spec)] == each


@pytest.mark.parametrize("order", [events.Cancel(), events.PauseStudy()])
def test_a_trial_that_is_to_stop_and_whose_trainer_is_refused_has_stopped(order: events.Event) -> None:
    study = Study.new(1, spec_of(trials=1, sampler="random"), "ann", 0.0)
    study, _ = step(study, events.Begun(), 1.0)
    study, actions = step(study, events.Asked(number=0, params=(("lr", 0.1),), known=None), 1.0)
    assert [type(action) for action in actions] == [events.StartTrial]
    study, _ = step(study, order, 2.0)
    refused = events.Refused(number=0, run=1, reason="busy", again=True)
    study, actions = step(study, refused, 3.0)
    is_cancelled = isinstance(order, events.Cancel)
    assert study.trials[0].status is (TrialStatus.CANCELLED if is_cancelled else TrialStatus.WAITING)
    assert study.trials[0].stopping is None and actions == ()


def test_the_median_rule_stops_a_trial_that_is_worse_than_the_others() -> None:
    rule = {"median": {"warmup": 100, "startup": 2}}
    run = Run(spec_of(trials=3, parallelism=3, stopping=rule))
    for number in (0, 1, 2):
        run.report(number, 50)
    run.report(0, 200)
    run.report(1, 200)
    assert run.stopped == []
    run.report(2, 200)
    assert run.stopped == [2]
    assert run.study.trials[2].status is TrialStatus.STOPPED
    assert "median" in run.study.trials[2].reason


def test_a_crashed_trial_is_tried_again_and_then_fails() -> None:
    run = Run(spec_of(trials=1, retries=2))
    for _ in range(3):
        assert run.study.trials[0].status is TrialStatus.RUNNING
        run.end(0, TrainerStatus.FAILED)
    trial = run.study.trials[0]
    assert (trial.status, trial.failures, trial.run, trial.reason) == (TrialStatus.FAILED, 3, 3, "why")
    assert (run.study.status, run.study.reason) == (
        StudyStatus.COMPLETED,
        "no trial has come to a rung's end",
    )


def test_a_study_whose_first_trials_fail_ends_and_says_why() -> None:
    run = Run(spec_of(parallelism=2, retries=1))
    for number in (0, 1, 0, 1, 2, 2):
        assert run.study.status is StudyStatus.RUNNING
        run.end(number, TrainerStatus.FAILED, says=False)
    assert sorted(run.running) == [3], "the third one has failed: no other begins"
    run.end(3, TrainerStatus.FAILED, says=False)
    run.end(3, TrainerStatus.FAILED, says=False)
    assert (run.study.status, run.study.ended_at, len(run.started)) == (StudyStatus.ENDED, 1.0, 8)
    reason = "4 trials ended without a report of 'loss' (give_up_after: 3); trial 0: why"
    assert run.study.reason == reason


def test_a_study_goes_on_once_a_trial_shows_something() -> None:
    run = Run(spec_of(parallelism=2, retries=0))
    for number in (0, 1, 2):
        run.end(number, TrainerStatus.FAILED, says=False)
    assert sorted(run.running) == [3]
    run.report(3, 10)
    run.tell(events.TrialSlots(trials=2))
    assert sorted(run.running) == [3, 4]
    run.finish()
    assert statuses(run) == {"failed": 3, "completed": 5}


def test_a_study_that_never_gives_up_tries_all_its_trials() -> None:
    run = Run(spec_of(parallelism=2, retries=0, give_up_after="never"))
    while run.running:
        run.end(next(iter(run.running)), TrainerStatus.FAILED, says=False)
    assert (run.study.status, len(run.study.trials)) == (StudyStatus.COMPLETED, 8)


def test_another_priority_is_that_of_all_trainers_to_come_and_is_stored() -> None:
    run = Run(spec_of(parallelism=1, priority=2.0))
    run.tell(events.Prioritise(to=5.0))
    assert run.study.spec.trainer.priority == 5.0
    text = yaml.safe_dump({**TEXT, "priority": 2.0}, sort_keys=False)
    study = replace(run.study, source=StudyFile(text=text, file="s.yaml", base="/work"))
    again = loaded(stored_study(study), [stored_trial(t) for t in study.trials.values()])
    assert again.spec.trainer.priority == 5.0


def test_a_trial_that_does_not_report_the_metric_fails_and_says_what_it_reported() -> None:
    run = Run(spec_of(trials=1))
    run.end(0, says=False)
    assert run.study.trials[0].status is TrialStatus.FAILED
    assert "'loss'" in run.study.trials[0].reason


def test_a_trainer_that_its_user_ends_ends_its_trial() -> None:
    run = Run(spec_of(trials=1))
    run.end(0, TrainerStatus.CANCELLED)
    assert run.study.trials[0].status is TrialStatus.CANCELLED
    assert run.study.status is StudyStatus.COMPLETED


def test_a_paused_study_goes_on_with_the_same_trials() -> None:
    run = Run(spec_of(parallelism=2))
    run.tell(events.PauseStudy())
    assert sorted(run.stopped) == [0, 1]
    assert not run.running
    assert run.study.ended_at is None
    run.tell(events.ResumeStudy())
    assert run.running == {0: 2, 1: 2}
    run.finish()
    assert run.study.status is StudyStatus.COMPLETED
    assert len(run.study.trials) == 8


@pytest.mark.parametrize("event", [events.Cancel(), events.Over(reason="its deadline has come")])
def test_a_study_that_ends_leaves_no_trial_behind(event: events.Event) -> None:
    run = Run(spec_of(parallelism=4, stopping=HALVING))
    run.end(0)
    run.tell(event)
    assert not run.running
    assert set(statuses(run)) == {"cancelled"}
    assert run.study.ended_at == 1.0
    best = run.study.best()
    assert best is not None and best.trial.number == 0, "what it has shown stays"


def test_what_comes_twice_or_late_changes_nothing() -> None:
    run = Run(spec_of(trials=2, parallelism=1))
    run.end(0)
    before = run.study
    late = events.TrialEnded(number=0, run=1, status=TrainerStatus.FAILED, reason="", samples=1, value=9.0)
    run.tell(late)
    run.tell(events.Started(number=0, run=1, trainer=99))
    run.tell(events.Reported(number=0, run=1, samples=900, value=0.0))
    assert run.study == before


def test_room_in_the_pool_says_how_many_run_where_the_user_does_not() -> None:
    run = Run(spec_of(parallelism="auto"))
    assert len(run.running) == 1
    run.tell(events.TrialSlots(trials=5))
    assert len(run.running) == 5
    run.tell(events.TrialSlots(trials=2))
    run.end(0)
    assert len(run.running) == 4, "none is stopped for it, and none begins"


def test_a_trial_stopped_while_it_is_submitted_is_stopped_when_it_is_there() -> None:
    study, _ = step(Run(spec_of(trials=2, parallelism=1)).study, events.TrialSlots(trials=1), 1.0)
    trial = replace(study.trials[0], trainer=None)
    study, actions = step(study.put(trial), events.PauseStudy(), 1.0)
    assert actions == ()
    study, actions = step(study, events.Started(number=0, run=1, trainer=5), 1.0)
    assert actions == (events.StopTrial(number=0, run=1, trainer=5),)


def test_the_same_seed_and_number_give_the_same_random_parameters() -> None:
    one, other = Run(spec_of(sampler="random")), Run(spec_of(sampler="random", parallelism=8))
    one.finish()
    assert {n: t.params for n, t in one.study.trials.items()} == {
        n: t.params for n, t in other.study.trials.items()
    }


def test_a_number_that_is_none_fails_its_trial_and_not_the_search() -> None:
    """As where a learning rate is so high that the loss is NaN from the first step on."""
    run = Run(spec_of(parallelism=1, retries=0), lambda n, _: [nan, inf, -inf, nan, 3.0, 2.0, nan, 4.0][n])
    run.report(0, 10)
    run.finish()
    assert statuses(run) == {"failed": 5, "completed": 3}
    assert run.study.status is StudyStatus.COMPLETED
    assert run.study.trials[0].reason == "its 'loss' was nan after 800 samples"
    best = run.study.best()
    assert best is not None and best.trial.number == 5


def test_a_search_ends_at_once_when_so_many_trials_have_ended_without_the_metric() -> None:
    run = Run(spec_of(parallelism=5, retries=0))
    for number in range(5):
        run.tell(events.Unmeasured(number=number, run=1, names=("error",)))
    assert unmeasured(run.study).startswith("trial 0 reports error, and no 'loss' so far; ")
    for number in range(3):
        assert run.study.status is StudyStatus.RUNNING
        run.end(number, says=False)
    assert run.study.status is StudyStatus.ENDED and not run.running
    assert run.stopped == [3, 4, 5, 6], "what had begun meanwhile does not train to its end"
    assert run.study.reason.startswith(
        "3 trials ended without a report of 'loss' (give_up_after: 3); trial 0: "
    )


def test_a_slip_in_the_name_of_the_metric_ends_the_search_with_the_first_reports() -> None:
    run = Run(spec_of(parallelism=5, retries=0, metric="val_loss"))
    for number in range(3):
        assert run.study.status is StudyStatus.RUNNING
        run.tell(events.Unmeasured(number=number, run=1, names=("Val-Loss", "lr")))
    assert run.study.status is StudyStatus.ENDED and not run.running
    assert run.study.reason.endswith("trial 0: it reported Val-Loss, lr; is it 'metric: Val-Loss'?")


@pytest.mark.parametrize(
    ("metric", "name", "alike", "ends"),
    [
        ("accuracy", "acuracy", True, True),
        ("accuracy", "accuarcy", True, True),
        ("val_loss", "Val-Loss", True, True),
        ("val_loss", "valloss", False, False),
        ("loss/val", "losss/val", True, True),
        ("score", "skore", True, False),
        ("f1_micro", "f1_macro", True, False),
        ("val_loss", "eval_loss", True, False),
        ("auroc", "auprc", True, False),
        ("mse", "mae", False, False),
        ("map", "mape", True, False),
        ("loss", "cost", False, False),
        ("top1", "top5", False, False),
        ("a" * 100, "ab" * 50, False, False),
        ("a" * 300, "a" * 299, False, False),
    ],
)
def test_names_that_share_most_of_their_letters_are_told_and_a_slip_of_the_pen_ends_the_search(
    metric: str, name: str, alike: bool, ends: bool
) -> None:
    run = Run(spec_of(parallelism=5, retries=0))
    run.study = replace(run.study, spec=replace(run.study.spec, metric=metric))
    run.tell(events.Unmeasured(number=0, run=1, names=(name,)))
    assert run.study.trials[0].slip == (name if alike else "")
    for number in (1, 2):
        run.tell(events.Unmeasured(number=number, run=1, names=(name,)))
    assert run.study.status is (StudyStatus.ENDED if ends else StudyStatus.RUNNING)


def test_names_are_compared_once_when_they_change_and_not_at_every_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[str] = []
    monkeypatch.setattr(stopping, "_alike", lambda metric, name: bool(compared.append(name)))
    run = Run(spec_of(parallelism=5, metric="val_loss"))
    run.tell(events.Unmeasured(number=0, run=1, names=("a", "b")))
    for _ in range(5):
        run.tell(events.TrialSlots(trials=5))
        unmeasured(run.study)
    assert compared == ["a", "b"]
    run.tell(events.Unmeasured(number=0, run=1, names=("a", "c")))
    assert compared == ["a", "b", "a", "c"]


@pytest.mark.parametrize("name", ["loss", "train_loss", "val_acc", "val_loss_2", "val_lost", "vel_loss"])
def test_another_figure_that_comes_first_ends_nothing(name: str) -> None:
    run = Run(spec_of(parallelism=5, retries=0, metric="val_loss"))
    for number in range(5):
        run.tell(events.Unmeasured(number=number, run=1, names=(name,)))
    assert unmeasured(run.study)
    run.report(4, 10)
    assert not unmeasured(run.study)
    run.finish()
    assert run.study.status is StudyStatus.COMPLETED and statuses(run) == {"completed": 8}


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_study_ends_at_its_target(direction: str) -> None:
    sign = 1.0 if direction == "maximize" else -1.0
    own = spec_of(parallelism=2, direction=direction, target=sign * 3.0)
    run = Run(own, lambda n, samples: sign * (n + samples / 800))
    for number in range(2):
        run.end(number)
    assert run.study.status is StudyStatus.RUNNING
    run.report(3, 100)  # 3.125: before the end of its rung
    assert run.study.status is StudyStatus.ENDED and run.study.ended_at == 1.0
    assert run.study.reason == f"trial 3 has reached loss {sign * 3.125:g} (target: {sign * 3:g})"
    assert statuses(run) == {"completed": 2, "cancelled": 2} and run.stopped == [2, 3]
    best = run.study.best()
    assert best is not None
    assert (best.trial.number, best.value, best.short_of) == (3, sign * 3.125, 800)


def test_a_study_ends_on_a_plateau() -> None:
    values = [5.0, 4.0, 3.9, 3.95, 3.85, 1.0, 0.5, 0.1]
    run = Run(spec_of(parallelism=1, plateau={"results": 3, "change": 0.2}), lambda n, _: values[n])
    run.finish()
    assert run.study.reason == "none of its last 3 results was better than loss 4 (plateau)"
    assert [n for n, _ in run.started] == [0, 1, 2, 3, 4]
    own = stored_study(replace(run.study, source=StudyFile(text=yaml.safe_dump(TEXT), file="", base="/")))
    again = loaded(own, [stored_trial(t) for t in run.study.trials.values()])
    assert (again.record, again.since_record) == (4.0, 3)


def test_trials_say_when_they_began_and_ended() -> None:
    run = Run(spec_of(trials=2, parallelism=1, stopping=HALVING))
    first = run.study.trials[0]
    assert (first.began_at, first.ended_at) == (1.0, None)
    run.now = 5.0
    run.finish()
    ended = run.study.trials
    assert [(t.began_at, t.ended_at) for t in ended.values()] == [(1.0, 5.0), (5.0, 5.0)]
