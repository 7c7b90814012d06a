"""What users may order of a study that has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest

from bftrainer.api.callers import Caller
from bftrainer.daemon.study_service import StudyAnswers
from bftrainer.errors import BftrainerError
from bftrainer.search.stored import stored_study
from tests.support.studies import Run, spec_of

ANN = Caller("ann", 1001)


@pytest.fixture
def answers() -> StudyAnswers:
    """Of a daemon with one study, which has ended."""
    run = Run(spec_of(sampler="random"))
    while run.study.ended_at is None:
        run.finish()

    async def at_once(user: str, make: Callable[[], Any]) -> Any:
        return make()

    own: dict[str, Any] = {field.name: SimpleNamespace() for field in fields(StudyAnswers)}
    own["lanes"] = SimpleNamespace(store=SimpleNamespace(run=at_once))
    own["studies"] = SimpleNamespace(thread=SimpleNamespace(snapshots={}))
    found = stored_study(run.study)
    own["store"] = SimpleNamespace(studies=SimpleNamespace(find=lambda name, user=None: found))
    return StudyAnswers(**own)


def test_to_cancel_it_does_nothing_and_says_so(answers: StudyAnswers) -> None:
    row = asyncio.run(answers.order(ANN, "s", "cancel"))
    assert row["status"] == "completed"
    assert row["note"] == "the study s has ended (completed) already; its results and checkpoints stay"


@pytest.mark.parametrize("order", ["pause", "resume"])
def test_to_pause_it_is_refused(answers: StudyAnswers, order: str) -> None:
    with pytest.raises(BftrainerError, match=r"the study s has ended \(completed\); submit it anew"):
        asyncio.run(answers.order(ANN, "s", order))
