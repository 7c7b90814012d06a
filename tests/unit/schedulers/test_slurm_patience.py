"""How long nodes are kept for jobs that should start and do not."""

from __future__ import annotations

from dataclasses import replace

from bftrainer.model.machine import Claim
from bftrainer.schedulers.shared.claims import AGAIN, LONGEST_S, ClaimPatience, Claims

PATIENCE_S = 60.0


def found(*jobs: str, ready: tuple[str, ...] = (), user: str = "mallory") -> Claims:
    return Claims(
        claims=tuple(Claim(job=job, nodes=frozenset({"n1"}), count=1) for job in jobs),
        ready=frozenset(ready),
        users=dict.fromkeys(jobs, user),
    )


def lapse(patience: ClaimPatience, begin: float, *jobs: str, user: str = "mallory") -> float:
    """Let jobs be expected in vain; returns when they lapse."""
    patience.remember(found(*jobs, user=user), begin)
    patience.remember(found(*jobs, user=user), begin + PATIENCE_S + 1)
    return begin + PATIENCE_S + 1


def test_a_claim_lapses_once_it_has_led_to_nothing_for_long_and_counts_again_later() -> None:
    patience = ClaimPatience(PATIENCE_S)
    for now in (0.0, 30.0, PATIENCE_S):
        patience.remember(found("7", "8"), now)
        assert not patience.known(now).lapsed
    patience.remember(found("7"), PATIENCE_S + 1)
    until = PATIENCE_S + 1 + AGAIN * PATIENCE_S
    assert set(patience.known(until - 1).lapsed) == {"7"}
    assert not patience.known(until).lapsed


def test_a_job_that_was_not_expected_for_a_while_is_waited_for_anew() -> None:
    patience = ClaimPatience(PATIENCE_S)
    patience.remember(found("7"), 0.0)
    patience.remember(found(), 30.0)
    for now in (50.0, 100.0):
        patience.remember(found("7"), now)
        assert not patience.known(now).lapsed


def test_since_when_a_job_has_all_its_nodes_is_remembered_while_it_has_them() -> None:
    patience = ClaimPatience(PATIENCE_S)
    for now in (0.0, 10.0):
        patience.remember(found("7", ready=("7",)), now)
    assert patience.known(99.0).ready == {"7": 0.0}
    patience.remember(found("7"), 20.0)
    patience.remember(found("7", ready=("7",)), 30.0)
    assert patience.known(99.0).ready == {"7": 30.0}


def test_a_user_whose_claims_lapse_again_and_again_is_doubted_ever_longer() -> None:
    patience = ClaimPatience(PATIENCE_S)
    now = lapse(patience, 0.0, "1")
    lapse(patience, 0.0, "2", user="ann")
    assert not patience.known(now).doubted, "one may be a mistake of ours"
    now = lapse(patience, now, "3")
    doubted_s = []
    for job in ("4", "5"):
        assert patience.known(now).doubted == {"mallory"}
        until = next(t for t in range(int(now), int(now + LONGEST_S)) if not patience.known(t).doubted)
        doubted_s.append(until - now)
        now = lapse(patience, until, job)
    assert doubted_s[1] >= 2 * doubted_s[0] - 1 >= 2 * AGAIN * PATIENCE_S - 1
    patience.remember(found(), now + 3 * LONGEST_S)
    now = lapse(patience, now + 3 * LONGEST_S, "6")
    assert not patience.known(now).doubted, "that was long ago"


def test_the_parts_of_a_heterogeneous_job_lapse_as_one() -> None:
    patience = ClaimPatience(PATIENCE_S)
    now = lapse(patience, 0.0, "7+0", "7+1")
    assert set(patience.known(now).lapsed) == {"7+0", "7+1"}
    assert not patience.known(now).doubted


def test_nodes_that_are_cleared_ahead_of_a_job_are_no_claim_that_could_lapse() -> None:
    patience = ClaimPatience(PATIENCE_S)
    for now in (0.0, PATIENCE_S + 1):
        patience.remember(replace(found("7+0"), ahead=frozenset({"7+0"})), now)
    assert not patience.known(PATIENCE_S + 1).lapsed
