"""What users may order of a study that has ended, and how studies are listed and shown."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import MISSING, fields, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bftrainer.api.callers import Caller
from bftrainer.api.errors import FullError, TooManyError, UnknownTrainerError
from bftrainer.daemon.answers.studies import StudyAnswers
from bftrainer.daemon.answers.views.studies import Now, TrialTexts
from bftrainer.daemon.lanes import Lanes
from bftrainer.daemon.studies.studies import Studies
from bftrainer.errors import BftrainerError
from bftrainer.search.rows import stored_study
from bftrainer.search.study import StudySpec
from bftrainer.search.trial import Study, StudyFile, StudyStatus, Trial, TrialStatus
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry
from tests.support.nodes_world import settings_in
from tests.support.studies import Run, spec_of

ANN = Caller("ann", 1001)


OPS = Caller("ops", 1002, admin=True)


def in_another_thread(study: Study, work: Callable[[], Any]) -> Future[Any]:
    """What a study's thread makes of work."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work)


@pytest.fixture
def answers() -> StudyAnswers:
    """Of a daemon with one study, which has ended."""
    run = Run(spec_of(sampler="random"))
    while run.study.ended_at is None:
        run.finish()

    async def at_once(user: str, make: Callable[[], Any]) -> Any:
        return make()

    own: dict[str, Any] = {
        field.name: SimpleNamespace() for field in fields(StudyAnswers) if field.default_factory is MISSING
    }
    own["lanes"] = SimpleNamespace(store=SimpleNamespace(run=at_once))
    own["submissions"] = SimpleNamespace(check_rate=lambda caller: None)
    own["studies"] = SimpleNamespace(thread=SimpleNamespace(snapshots={}, fill=in_another_thread))
    own["submissions"] = SimpleNamespace(check_rate=lambda caller: None)
    found = stored_study(run.study)
    own["store"] = SimpleNamespace(studies=SimpleNamespace(find=lambda name, user=None: found))
    return StudyAnswers(**own)


def ordered(answers: StudyAnswers, caller: Caller, name: str, order: str) -> dict[str, Any]:
    """The row with which an order is answered."""
    found: dict[str, Any] = json.loads(asyncio.run(answers.order(caller, name, order)).body)
    return found


def test_to_cancel_it_does_nothing_and_says_so(answers: StudyAnswers) -> None:
    row = ordered(answers, ANN, "s", "cancel")
    assert row["status"] == "completed"
    assert row["note"] == "the study s has ended (completed) already; its results and checkpoints stay"


@pytest.mark.parametrize("order", ["pause", "resume"])
def test_to_pause_it_is_refused(answers: StudyAnswers, order: str) -> None:
    with pytest.raises(BftrainerError, match=r"the study s has ended \(completed\).* warm_start: s"):
        asyncio.run(answers.order(ANN, "s", order))


def test_an_admin_is_asked_for_the_number_where_several_users_have_the_name(answers: StudyAnswers) -> None:
    run = Run(spec_of(sampler="random"))
    own = {id_: replace(run.study, id=id_, user=user) for id_, user in ((3, "ann"), (5, "bob"))}
    answers.studies.thread.snapshots = own

    async def order(study: Study, event: object) -> Study:
        return replace(study, status=StudyStatus.CANCELLED)

    answers.studies.order = order  # type: ignore[method-assign, assignment]
    answers.telemetry.ordered = lambda *args, **more: None  # type: ignore[method-assign]
    for word in ("cancel", "pause", "resume"):
        with pytest.raises(
            BftrainerError,
            match=r"several users have a study 's'\. Name it by its number: 3 \(ann\), 5 \(bob\)",
        ):
            asyncio.run(answers.order(OPS, "s", word))
    trials = Trials(run.study.trials)
    answers.studies.thread.snapshots = {id_: replace(study, trials=trials) for id_, study in own.items()}
    assert ordered(answers, OPS, "5", "cancel")["user"] == "bob"
    assert ordered(answers, ANN, "s", "cancel")["user"] == "ann"


def test_a_study_is_wrong_that_would_learn_from_none(answers: StudyAnswers) -> None:
    spec = replace(spec_of(sampler="tpe"), warm_start="none")

    async def read_study(*given: object) -> StudySpec:
        return spec

    own: dict[str, Any] = {"place": lambda caller: nullcontext(), "read_study": read_study}
    object.__setattr__(answers, "submissions", SimpleNamespace(**own))
    object.__setattr__(answers, "settings", SimpleNamespace(current=SimpleNamespace(mode="user")))
    object.__setattr__(answers.studies, "taken", lambda user: (0, 0))
    answers.store.studies.find = lambda name, user=None: None  # type: ignore[method-assign]
    with pytest.raises(BftrainerError, match=r"^warm_start: no study 'none'\. .* study list") as caught:
        asyncio.run(answers.submit(ANN, "", "s.yaml", ""))
    assert not isinstance(caught.value, UnknownTrainerError), "the address is right"


def test_the_other_unfinished_studies_of_its_user_count(answers: StudyAnswers) -> None:
    users = {3: "ann", 5: "bob", 7: "ann"}
    bare = {id_: Study.new(id_, spec_of(seed=id_, trials=id_), user, 0.0) for id_, user in users.items()}
    own = answers.studies.thread.snapshots = {id_: replace(s, trial_bytes=10) for id_, s in bare.items()}
    answers.studies.taken = partial(Studies.taken, answers.studies)  # type: ignore[method-assign, arg-type]
    seen: list[object] = []

    async def read(*given: object) -> None:
        seen.append(given[-1])
        raise BftrainerError("read")

    desk = {"place": lambda caller: nullcontext(), "check_rate": lambda caller: None}
    desk |= {"read_study": read, "read_addition": read}
    object.__setattr__(answers, "submissions", SimpleNamespace(**desk))
    object.__setattr__(answers, "settings", SimpleNamespace(current=SimpleNamespace(mode="user")))
    for asked in (answers.submit(ANN, "", "s.yaml", ""), answers.add(OPS, "7", 1, ())):
        with pytest.raises(BftrainerError, match="read"):
            asyncio.run(asked)
    assert seen == [(100, 150), (30, 80)] and own[3].bytes == 30


@pytest.mark.parametrize(
    ("user", "told"), [("ann", "64 MB would be the memory of your"), ("bob", "1,000 MB of memory is what")]
)
def test_studies_that_were_read_at_the_same_time_are_counted_when_they_begin(user: str, told: str) -> None:
    spec = spec_of(trials=1)
    sizes = {"ann": 64_000_000, "cem": 936_000_000}
    known = {
        id_: replace(Study.new(id_, spec, own, 0.0), trial_bytes=size)
        for id_, (own, size) in enumerate(sizes.items())
    }
    limits = SimpleNamespace(max_studies_per_user=20)
    desk: Any = SimpleNamespace(
        thread=SimpleNamespace(snapshots=known),
        journal=SimpleNamespace(check_answers=lambda: None),
        settings=SimpleNamespace(current=limits),
        telemetry=SimpleNamespace(bounded=lambda bound, user: None),
    )
    desk.taken = partial(Studies.taken, desk)
    desk._check_memory = partial(Studies._check_memory, desk)
    with pytest.raises((TooManyError, FullError), match=told):
        asyncio.run(Studies.submit(desk, user, spec, StudyFile(text="", file="", base="/")))


class Trials(dict[int, Trial]):
    """A study's trials, which may be very many: no thread that serves others may go through them."""

    barred = threading.get_ident()

    def _may(self) -> None:
        assert threading.get_ident() != self.barred, "the event loop goes through all trials"

    def values(self) -> Any:
        self._may()
        return super().values()

    def __iter__(self) -> Any:
        self._may()
        return super().__iter__()


def test_the_event_loop_goes_through_no_trials_to_list_and_to_show_studies(
    answers: StudyAnswers, tmp_path: Path
) -> None:
    run = Run(spec_of(sampler="random"))
    study = replace(run.study, id=3, user="ann", trials=Trials(run.study.trials))
    running = next(t for t in run.study.trials.values() if t.status is TrialStatus.RUNNING)
    own: Any = answers
    settings = LiveSettings(settings_in(tmp_path))
    trainer = SimpleNamespace(id=running.trainer, samples=70)
    studies = own.studies
    studies.thread.snapshots = {3: study}
    studies.runs = SimpleNamespace(moved=lambda id_: 5.0, learnt=lambda id_: Now().learnt, folder=str)
    studies.index = SimpleNamespace(get={running.trainer: trainer}.get)
    studies.journal = SimpleNamespace(latest=lambda id_: None)
    studies.forecasts = SimpleNamespace(view=lambda study: None)
    studies.mirrors = SimpleNamespace(view=lambda *words: None)
    state = SimpleNamespace(active={}, settings=SimpleNamespace(unit="node"))
    lanes = Lanes(Telemetry())
    answers = replace(
        answers, settings=settings, lanes=lanes, texts=TrialTexts(), runner=SimpleNamespace(state=state)
    )  # type: ignore[arg-type]
    try:
        listed = asyncio.run(answers.listed(ANN, 0))
        one = asyncio.run(answers.show(ANN, "3", 1, 10))
    finally:
        lanes.close()
    (row,) = json.loads(listed.body)
    assert row["counts"]["waiting"] >= 1, "its trainer has no nodes"
    table = {t["number"]: t for t in json.loads(one.body)["table"]}
    assert table[running.number]["samples"] == 70


def test_an_answer_has_the_number_of_known_points_and_only_the_first_cancellation_is_free(
    answers: StudyAnswers,
) -> None:
    run = Run(spec_of(sampler="random"))
    study = replace(run.study, points=((("lr", 0.1),),) * 3)
    counted: list[str] = []
    answers.studies.thread.snapshots = {study.id: study}

    async def order(study: Study, event: object) -> Study:
        return study

    answers.studies.order = order  # type: ignore[method-assign, assignment]
    answers.telemetry.ordered = lambda *args, **more: None  # type: ignore[method-assign]
    answers.submissions.check_rate = lambda caller: counted.append(caller.user)  # type: ignore[method-assign]
    assert [ordered(answers, ANN, "s", "cancel")["points"] for _ in range(3)] == [3] * 3
    assert counted == ["ann"] * 2
