"""How long nodes are kept for jobs that should start and do not."""

from __future__ import annotations

from bftrainer.model.machine import Claim
from bftrainer.schedulers.slurm.patience import AGAIN, Patience
from bftrainer.schedulers.slurm.walk import Claims

PATIENCE_S = 60.0


def found(*jobs: str, ready: tuple[str, ...] = ()) -> Claims:
    return Claims(
        claims=tuple(Claim(job=job, nodes=frozenset({"n1"}), count=1) for job in jobs),
        ready=frozenset(ready),
    )


def test_a_claim_lapses_once_it_has_led_to_nothing_for_long_and_counts_again_later() -> None:
    patience = Patience(PATIENCE_S)
    for now in (0.0, 30.0, PATIENCE_S):
        patience.remember(found("7", "8"), now)
        assert not patience.lapsed(now)
    patience.remember(found("7"), PATIENCE_S + 1)
    until = PATIENCE_S + 1 + AGAIN * PATIENCE_S
    assert set(patience.lapsed(until - 1)) == {"7"}
    assert not patience.lapsed(until)


def test_a_job_that_was_not_expected_for_a_while_is_waited_for_anew() -> None:
    patience = Patience(PATIENCE_S)
    patience.remember(found("7"), 0.0)
    patience.remember(found(), 30.0)
    for now in (50.0, 100.0):
        patience.remember(found("7"), now)
        assert not patience.lapsed(now)


def test_since_when_a_job_has_all_its_nodes_is_remembered_while_it_has_them() -> None:
    patience = Patience(PATIENCE_S)
    for now in (0.0, 10.0):
        patience.remember(found("7", ready=("7",)), now)
    assert patience.ready == {"7": 0.0}
    patience.remember(found("7"), 20.0)
    patience.remember(found("7", ready=("7",)), 30.0)
    assert patience.ready == {"7": 30.0}
