"""From what LSF shows to hosts that may be ours, our pilots, and what main jobs want."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model.machine import Claim, NodeState, Pilot
from bftrainer.schedulers.lsf.queue import backfill_windows, claims
from bftrainer.schedulers.lsf.rows import BackfillWindow, HostRow, LsfJobRow, PlannedStart, QueueRow
from bftrainer.schedulers.lsf.scheduler import MISSES, Gaps
from bftrainer.schedulers.lsf.view import LsfOwnJobs, LsfView, Shown, interpret
from bftrainer.schedulers.shared.claims import Known

NOW = 1e9
TAG = "0123abcd" * 4
OURS = LsfOwnJobs("0a1b2c3d", "bft", frozenset({"bft"}), launch=("batch*",), launch_slots=1)
QUEUES = {"batch": QueueRow("batch", 50, True, True), "killable": QueueRow("killable", 10, True, True)}


def host(name: str, status: str = "ok", active: int = 0, reserved: int = 0) -> HostRow:
    return HostRow(name, status, 42, active, reserved)


def job(id_: str = "7", state: str = "RUN", hosts: tuple[str, ...] = (), **more: object) -> LsfJobRow:
    where = (("batch1", 1), *((name, 42) for name in hosts)) if hosts else ()
    base = LsfJobRow(id_, state, "u", "batch", 1 + 42 * len(hosts), where, submitted=NOW - 9, name="main")
    return replace(base, **more)  # type: ignore[arg-type]


def pilot(id_: str = "8", state: str = "RUN", on: str = "a", **more: object) -> LsfJobRow:
    hosts = () if state == "PEND" else (on,)
    name = f"bftrainer-0a1b2c3d-{TAG}-{on}"
    return job(id_, state, hosts, **{"user": "bft", "queue": "killable", "name": name, **more})


def view(hosts: list[HostRow], *jobs: LsfJobRow, **more: object) -> LsfView:
    shown = Shown({row.name: row for row in hosts}, jobs, QUEUES, **more)  # type: ignore[arg-type]
    return interpret(shown, OURS, now=NOW)


def why(found: LsfView) -> dict[str, str]:
    return {node.name: node.why for node in found.snapshot.nodes}


def test_a_host_without_a_job_is_idle_though_its_slots_are_reserved() -> None:
    found = view([host("a"), host("b", "closed_Full", 0, 42), host("c", "closed_Full", 42)])
    assert found.snapshot.idle == {"a", "b"}
    assert why(found)["c"] == "in use"


@pytest.mark.parametrize(
    "status", ["unavail", "unreach", "closed", "closed_Adm", "closed_Excl", "closed_Busy", "closed_LIM", ""]
)
def test_other_statuses_say_hands_off(status: str) -> None:
    assert view([host("a", status)]).snapshot.idle == frozenset()
    assert why(view([host("a", status)]))["a"] == (status or "no status")


def test_a_full_host_without_jobs_or_reservations_is_not_ours() -> None:
    assert why(view([host("a", "closed_Full")]))["a"] == "closed_Full"
    assert "MAX" in why(view([replace(host("a"), slots=0)]))["a"]


def test_suspended_jobs_keep_their_hosts() -> None:
    for state in ("SSUSP", "USUSP"):
        found = view([host("a", active=42)], job(state=state, hosts=("a",)))
        assert why(found)["a"] == "job 7"


def test_a_job_that_started_between_the_commands_counts() -> None:
    assert why(view([host("a"), host("b")], job(hosts=("a",)))) == {"a": "job 7", "b": ""}


def test_launch_hosts_are_no_nodes() -> None:
    assert why(view([host("a"), host("batch1")], job(hosts=("a",)))) == {"a": "job 7"}


@pytest.mark.parametrize("status", ["ok", "closed_Full", "closed_Excl", "closed_Busy"])
def test_a_host_that_we_hold_is_ours(status: str) -> None:
    found = view([host("a", status, 42)], pilot(left_s=600.0))
    assert found.snapshot.idle == {"a"}
    (mine,) = found.snapshot.pilots
    assert mine == Pilot(tag=TAG, node="a")
    assert (mine.job, mine.ends, mine.pending) == ("8", NOW + 600.0, "")


def test_a_host_that_we_hold_is_not_ours_where_others_or_admins_want_it() -> None:
    assert why(view([host("a", "closed_Adm", 42)], pilot())) == {"a": "closed_Adm"}
    assert why(view([host("a", "closed_Full", 42)], pilot(), job(hosts=("a",)))) == {"a": "job 7"}


def test_a_suspended_pilot_has_lost_its_host() -> None:
    found = view([host("a", "closed_Full", 42)], pilot(state="SSUSP"))
    assert why(found) == {"a": "our pilot there is ssusp"}
    assert found.snapshot.pilots[0].pending == "ssusp"


def test_a_pilot_that_waits_is_told_from_its_name() -> None:
    found = view([host("a")], pilot(state="PEND", reason="Job slot limit reached"))
    assert found.snapshot.pilots == (Pilot(tag=TAG, node="a"),)
    assert found.snapshot.pilots[0].pending == "Job slot limit reached"
    assert found.snapshot.idle == {"a"}, "it may start there"


def test_a_pilot_that_landed_elsewhere_is_where_it_landed() -> None:
    landed = replace(pilot(on="a"), hosts=(("batch1", 1), ("b", 42)))
    found = view([host("a"), host("b", "closed_Full", 42)], landed)
    assert [one.node for one in found.snapshot.pilots] == ["b"]
    assert found.snapshot.idle == {"a", "b"}


@pytest.mark.parametrize(
    ("name", "user"),
    [
        (f"bftrainer-0a1b2c3d-{TAG}-a", "mallory"),
        (f"bftrainer-ffffffff-{TAG}-a", "bft"),
        (f"bftrainer-0a1b2c3d-{TAG}", "bft"),
        (f"bftrainer-0a1b2c3d-{TAG}-a b", "bft"),
        ("bftrainer-0a1b2c3d-short-a", "bft"),
    ],
)
def test_what_only_looks_like_our_pilot(name: str, user: str) -> None:
    found = view([host("a", "closed_Full", 42)], pilot(name=name, user=user))
    assert found.snapshot.pilots == ()
    assert why(found)["a"] == "job 8"


# main jobs


def waiting(id_: str, hosts: int, **more: object) -> LsfJobRow:
    return job(id_, "PEND", slots=1 + 42 * hosts, **more)


def test_a_job_that_could_start_with_hosts_of_ours_claims_them() -> None:
    held = [host("a", "closed_Full", 42), host("b"), host("c", "closed_Full", 42)]
    found = view(held, pilot("8", on="a"), waiting("9", 2))
    assert found.snapshot.claims == (Claim(job="9", nodes=frozenset({"a"}), count=1),)
    assert [(main.job, main.nodes) for main in found.snapshot.main] == [("9", 2)]
    assert found.snapshot.waiting == {"9"}


def test_a_job_that_needs_more_than_all_claims_nothing_and_a_smaller_one_behind_it_does() -> None:
    held = [host("a", "closed_Full", 42)]
    found = view(held, pilot(on="a"), waiting("9", 5), waiting("10", 1))
    assert [claim.job for claim in found.snapshot.claims] == ["10"]


def unequal(**slots: int) -> list[HostRow]:
    return [replace(host(name), slots=many) for name, many in slots.items()]


def test_a_free_host_that_is_smaller_than_most_is_none_that_a_job_on_whole_hosts_waits_for() -> None:
    shown = [*unequal(tiny=8, other=42), host("a", active=42)]
    busy = job("6", hosts=("other",))
    found = view([shown[0], replace(shown[1], active=42), shown[2]], busy, pilot(), waiting("9", 1))
    assert found.snapshot.claims == (Claim(job="9", nodes=frozenset({"a"}), count=1),)


def test_a_job_gets_hosts_of_ours_that_have_as_many_slots_as_it_asks_for() -> None:
    held = [replace(row, active=row.slots) for row in unequal(tiny=8, a=42, b=42)]
    pilots = [
        replace(pilot("8", on=row.name), hosts=((row.name, row.slots),), id=str(at))
        for at, row in enumerate(held, 80)
    ]
    found = view(held, *pilots, small("9", 20), small("10", 5), waiting("11", 1))
    assert found.snapshot.claims == (
        Claim(job="9", nodes=frozenset({"a", "b"}), count=1),
        Claim(job="11", nodes=frozenset({"a", "b"}), count=1),
    ), "5 slots are left beside the first"
    found = view(held, *pilots, small("10", 5))
    assert found.snapshot.claims == (Claim(job="10", nodes=frozenset({"tiny", "a", "b"}), count=1),)


def test_a_job_of_more_slots_than_whole_hosts_have_may_use_all_hosts() -> None:
    held = [replace(row, active=row.slots) for row in unequal(tiny=8, a=42)]
    pilots = [
        replace(pilot(str(at), on=row.name), hosts=((row.name, row.slots),))
        for at, row in enumerate(held, 80)
    ]
    found = view(held, *pilots, small("9", 50))
    assert found.snapshot.claims == (Claim(job="9", nodes=frozenset({"tiny", "a"}), count=2),)
    assert view(held, *pilots, small("9", 51)).snapshot.claims == ()


def small(id_: str, slots: int, **more: object) -> LsfJobRow:
    return job(id_, "PEND", slots=1 + slots, **more)


def test_a_small_job_that_fits_beside_others_claims_nothing() -> None:
    hosts = [host("a", "closed_Full", 42), host("b", active=30)]
    running = job("7", hosts=("b",))
    found = view(hosts, pilot(on="a"), running, small("9", 8), small("10", 4), small("11", 1))
    assert [claim.job for claim in found.snapshot.claims] == ["11"], "12 slots are free beside the main job"
    assert {main.job for main in found.snapshot.main} == {"9", "10", "11"}


def test_small_jobs_share_the_host_that_one_of_them_gets() -> None:
    hosts = [host("a", "closed_Full", 42), host("b", "closed_Full", 42)]
    pilots = pilot("7", on="a"), replace(pilot("8", on="b"), name=f"bftrainer-0a1b2c3d-{'1' * 32}-b")
    found = view(hosts, *pilots, small("9", 20), small("10", 20), small("11", 20))
    assert [(claim.job, claim.count) for claim in found.snapshot.claims] == [("9", 1), ("11", 1)]


def test_a_small_job_that_does_not_start_beside_others_gets_a_host() -> None:
    """It may want its host for itself, or more memory or GPUs than are left there."""
    hosts = [host("a", "closed_Full", 42), host("b", active=30)]
    rows = {row.name: row for row in hosts}
    shown = Shown(rows, (pilot(on="a"), job("7", hosts=("b",)), small("9", 8)), QUEUES)
    for since, claimed in ((NOW - 5, []), (NOW - 60, ["9"])):
        found = interpret(shown, OURS, now=NOW, known=Known(ready={"9": since}))
        assert [claim.job for claim in found.snapshot.claims] == claimed
    alone = small("9", 8, reason="Job's requirement for exclusive execution not satisfied")
    found = view(hosts, pilot(on="a"), job("7", hosts=("b",)), alone)
    assert [claim.job for claim in found.snapshot.claims] == ["9"]


@pytest.mark.parametrize("row", [host("b", "closed_Adm", 30), host("b", active=30, reserved=12)])
def test_hosts_that_take_no_more_jobs_have_no_spare_slots(row: HostRow) -> None:
    found = view([host("a", "closed_Full", 42), row], pilot(on="a"), job("7", hosts=("b",)), small("9", 8))
    assert [claim.job for claim in found.snapshot.claims] == ["9"]


def test_jobs_of_higher_queues_and_earlier_ones_come_first() -> None:
    low = waiting("1", 1, queue="killable")
    assert [one.id for one in claims.in_order([low, waiting("10", 1), waiting("9", 1)], QUEUES)] == [
        "9",
        "10",
        "1",
    ]


@pytest.mark.parametrize(
    "reason",
    [
        "Job dependency condition not satisfied",
        "The user has reached his/her job slot limit",
        "New job is waiting for scheduling: job start time not reached; specified start time",
        "Job was suspended by the user while pending",
    ],
)
def test_a_job_that_waits_for_something_else_claims_nothing(reason: str) -> None:
    found = view([host("a", "closed_Full", 42)], pilot(on="a"), waiting("9", 1, reason=reason))
    assert found.snapshot.claims == ()


def test_claims_that_lapsed_are_not_made_again() -> None:
    held = {"a": host("a", "closed_Full", 42)}
    shown = Shown(held, (pilot(on="a"), waiting("9", 1)), QUEUES)
    known = Known(lapsed=frozenset({"9"}))
    assert interpret(shown, OURS, now=NOW, known=known).snapshot.claims == ()


def test_a_job_that_started_lately_is_told() -> None:
    found = view([host("a", active=42)], job(hosts=("a",), started=NOW - 5, rounded_s=60.0))
    (main,) = found.snapshot.main
    assert (main.job, main.nodes, main.on, main.rounded_s) == ("7", 1, frozenset({"a"}), 60.0)
    found = view([host("a", active=42)], job(hosts=("a",), started=NOW - 500, rounded_s=60.0))
    assert found.snapshot.main == ()


@given(st.integers(1, 5000), st.sampled_from([0, 1]))
def test_hosts_that_a_job_asks_for(count: int, launch: int) -> None:
    assert claims.hosts_of(job(slots=count * 42 + launch), 42, launch) == count


# holes


IDLE = {name: host(name) for name in ("a", "b", "c")}


def test_a_claim_names_hosts_as_small_as_the_smallest_that_it_takes() -> None:
    held = {"a": 4, "b": 8, "c": 2}
    waits = job(state="PEND", slots=8)
    found = claims.claims(
        [waits], QUEUES, free={}, held=held, slots=4, launch_slots=0, known=Known(), now=NOW
    )
    assert found.claims == (Claim(job="7", nodes=frozenset({"a", "b"}), count=2),)


def test_windows_that_name_hosts() -> None:
    windows = (
        BackfillWindow(84, 100.0, {"a": 42, "b": 42}),
        BackfillWindow(42, 500.0, {"a": 42}),
        BackfillWindow(42, inf, {"c": 42}),
    )
    assert backfill_windows.expected(IDLE, windows, (), NOW) == {"a": NOW + 500.0, "b": NOW + 100.0}


def test_windows_that_count_slots_include_longer_ones() -> None:
    windows = (BackfillWindow(42, 500.0), BackfillWindow(84, 100.0))
    assert backfill_windows.expected(IDLE, windows, (), NOW) == {
        "a": NOW + 500.0,
        "b": NOW + 100.0,
        "c": NOW + 100.0,
    }
    assert backfill_windows.expected(IDLE, (BackfillWindow(126, inf),), (), NOW) == {}
    assert backfill_windows.expected(IDLE, (), (), NOW) == {}


def test_plans_name_hosts() -> None:
    plans = (
        PlannedStart("9", NOW + 50, NOW + 99, {"a": 42}),
        PlannedStart("8", NOW - 50, NOW - 9, {"b": 42}),
    )
    assert backfill_windows.expected(IDLE, (), plans, NOW) == {"a": NOW + 50}


def test_what_is_expected_first_counts() -> None:
    windows = (BackfillWindow(42, 60.0, {"a": 42, "b": 42}),)
    plans = (
        PlannedStart("9", NOW + 500, NOW + 999, {"a": 42}),
        PlannedStart("8", NOW + 5, NOW + 9, {"b": 42}),
    )
    assert backfill_windows.expected(IDLE, windows, plans, NOW) == {"a": NOW + 60, "b": NOW + 5}


def test_an_end_that_hardly_moves_is_the_same() -> None:
    assert backfill_windows.settled({"a": 100.0, "b": 100.0}, {"a": 159.0, "b": 161.0, "c": 5.0}) == {
        "a": 100.0,
        "b": 161.0,
        "c": 5.0,
    }


def test_a_host_that_we_hold_keeps_the_end_that_its_hole_had() -> None:
    shown = Shown({"a": host("a", "closed_Full", 42)}, (pilot(on="a"),), QUEUES)
    found = interpret(shown, OURS, now=NOW, before={"a": NOW + 70})
    assert found.snapshot.nodes[0].until == NOW + 70
    planned = replace(shown, plans=(PlannedStart("9", NOW + 5, NOW + 99, {"a": 42}),))
    assert interpret(planned, OURS, now=NOW, before={"a": NOW + 70}).snapshot.nodes[0].until == NOW + 5


SECONDS = st.integers(1, 10**6).map(float)  # apart by more than times as large as these are rounded


@given(st.lists(st.tuples(st.integers(0, 200), SECONDS), max_size=6), st.integers(0, 8))
def test_no_more_hosts_than_a_window_has_are_expected_to_last_as_long(
    pairs: list[tuple[int, float]], count: int
) -> None:
    idle = {f"h{i}": host(f"h{i}") for i in range(count)}
    windows = tuple(BackfillWindow(slots, length) for slots, length in pairs)
    found = backfill_windows.expected(idle, windows, (), NOW)
    shortest = min((length for _, length in pairs), default=0.0)
    for _, length in pairs:
        longer = [one for one in found.values() if one - NOW >= length - 1e-3]
        room = max(slots for slots, other in pairs if other >= length)
        assert length == shortest or 42 * len(longer) <= room


# jobs that one answer leaves out


def test_a_pilot_that_one_answer_lacks_has_not_ended() -> None:
    gaps = Gaps()
    first = (pilot("8"), job("7"))
    assert gaps.filled(first, {"8"}, ()) == first
    for _ in range(MISSES - 1):
        assert gaps.filled((job("7"),), (), ()) == (job("7"), pilot("8"))
    assert gaps.filled((job("7"),), (), ()) == (job("7"),)
    assert gaps.filled((), (), ()) == ()


def test_a_pilot_that_we_have_ended_is_gone_at_once() -> None:
    gaps = Gaps()
    gaps.filled((pilot("8"), pilot("9", "PEND")), {"8", "9"}, ())
    assert gaps.filled((), (), {"8"}) == ()


@pytest.mark.parametrize(("slots", "count"), [(2, 1), (42, 1), (43, 2), (84, 2)])
def test_hosts_without_slots_say_nothing_of_how_large_hosts_are(slots: int, count: int) -> None:
    management = [replace(host(f"m{i}", "closed_Full"), slots=0) for i in range(7)]
    held = [host(name, "closed_Full", 42) for name in "abc"]
    pilots = [pilot(str(i), on=name) for i, name in enumerate("abc")]
    found = view([*management, *held], *pilots, job("20", "PEND", slots=1 + slots))
    assert [(claim.nodes, claim.count) for claim in found.snapshot.claims] == [(frozenset("abc"), count)]
    assert why(found)["m0"] == "it has no slots (MAX 0)"
    unlimited = replace(host("u"), slots=0, limited=False)
    assert why(view([unlimited]))["u"] == "bhosts tells no limit of its slots (MAX)"
    (node,) = view([unlimited]).snapshot.nodes
    assert node.state is NodeState.UNUSED and node.shut.endswith("; set MXJ in lsb.hosts")
    assert {n.shut for n in view([host("a"), host("b", "closed_Adm")]).snapshot.nodes} == {""}


def test_the_main_job_on_a_host_and_when_it_ends_at_the_latest_are_told() -> None:
    hosts = [host("a", active=42), host("b", active=42), host("c", active=42), host("d")]
    jobs = [
        job("7", hosts=("a", "b"), left_s=600.0),
        job("8", hosts=("b",), left_s=900.0),
        job("9", hosts=("c",)),
        pilot("10", on="d"),
    ]
    found = view(hosts, *jobs)
    told = {node.name: (node.job, node.ends) for node in found.snapshot.nodes}
    assert told == {
        "a": ("7", NOW + 600),
        "b": ("8 and 1 more", NOW + 900),
        "c": ("9", None),
        "d": ("", None),
    }
    shown = Shown({row.name: row for row in hosts}, tuple(replace(j, left_s=600.0) for j in jobs), QUEUES)
    later = interpret(shown, OURS, now=NOW + 50, ends_before=found.ends_before)
    assert next(iter(later.snapshot.nodes)).ends == NOW + 600, "LSF tells minutes, and they pass"
