"""How long to wait after failures, however many there were."""

from __future__ import annotations

import pytest

from bftrainer.launch.job import WorkerView
from bftrainer.launch.messages import MAX_DELAY_S, delay_s
from bftrainer.model.backoff import backoff_s
from bftrainer.nodes.quarantine import MAX_BACKOFF_S, Refusals


@pytest.mark.parametrize(("doublings", "seconds"), [(-3, 5.0), (0, 5.0), (1, 10.0), (3, 40.0), (6, 300.0)])
def test_each_failure_doubles_the_time_up_to_the_most(doublings: int, seconds: float) -> None:
    assert backoff_s(5.0, doublings, 300.0) == seconds


@pytest.mark.parametrize("failures", [1024, 1025, 5000, 10**9])
def test_after_days_of_failures_it_is_still_a_number(failures: int) -> None:
    assert backoff_s(1.0, failures, 64.0) == 64.0
    assert delay_s(WorkerView(1, started_at=0.0, attempt=failures)) == MAX_DELAY_S


def test_a_node_may_refuse_pilots_for_days() -> None:
    refused = Refusals()
    for _ in range(1500):
        refused = refused.more(7.0, "the partition is down")
    assert refused.until == 7.0 + MAX_BACKOFF_S
