"""What a forecast takes is bounded, whatever the study and the machine: it is made again and again."""

from __future__ import annotations

from typing import Any

import pytest

from bftrainer.search.plan.ahead import Ahead, ahead, progress
from bftrainer.search.trial import Study
from bftrainer.threads import FairThread, OverTimeError
from tests.support.studies import curved


def forecast(**keys: Any) -> Ahead | None:
    spec = curved(trials=5000, **keys)
    return ahead(spec, progress(Study.new(1, spec, "ann", 0.0)), 4, 3600.0, most=4608)


def test_a_search_of_more_stages_than_can_be_planned_has_no_forecast() -> None:
    assert forecast(budget=10**15, stopping={"hyperband": {"least": 1, "eta": 2}}) is None


def test_a_forecast_that_takes_too_long_ends() -> None:
    thread = FairThread("forecasts", 0.02)
    with pytest.raises(OverTimeError, match="of work"):
        thread.submit("ann", lambda: forecast(stopping={"halving": {"least": 10_000, "eta": 2}})).result(60)
    thread.close()
