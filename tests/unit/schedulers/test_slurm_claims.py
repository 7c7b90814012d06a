"""Which main jobs could start and what of ours they would need: by example, and against an oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.model.machine import Claim
from bftrainer.schedulers.shared.claims import Claims
from bftrainer.schedulers.slurm.queue import walk
from bftrainer.schedulers.slurm.queue.claims import WALK_S, in_order, waits_for_nodes
from bftrainer.schedulers.slurm.queue.constraints import ANY
from bftrainer.schedulers.slurm.queue.fit import NodeFit
from bftrainer.schedulers.slurm.queue.resources import Rooms
from bftrainer.schedulers.slurm.queue.walk import Walk
from bftrainer.schedulers.slurm.rows import NodeRow, Partition, SlurmJobRow
from tests.support.slurm_claims import claims
from tests.support.slurm_samples import MAIN_JOB

NOW = 1000.0
PARTITIONS = {
    "batch": Partition("batch", 10, up=True, default=True, max_s=None),
    "debug": Partition("debug", 20, up=True, default=False, max_s=None),
    "shut": Partition("shut", 10, up=False, default=False, max_s=None),
}


def job(number: int, count: int = 1, **others: object) -> SlurmJobRow:
    given_ = {"priority": 1000 - number, **others}
    return replace(MAIN_JOB, id=str(number), count=count, **given_)  # type: ignore[arg-type]


def nodes(count: int, **others: object) -> dict[str, NodeRow]:
    row = NodeRow("", "IDLE", frozenset(), ("batch",), (), "", (), 4, 1000)
    return {f"n{i}": replace(row, name=f"n{i}", **others) for i in range(count)}  # type: ignore[arg-type]


def names(*numbers: int) -> frozenset[str]:
    return frozenset(f"n{i}" for i in numbers)


def rooms(
    free: frozenset[str] = frozenset(),
    coming: frozenset[str] = frozenset(),
    held: frozenset[str] = frozenset(),
    **others: object,
) -> Rooms:
    """All other nodes of the 16 are used by main jobs."""
    return Rooms(free, coming, held, **{"taken": names(*range(16)) - free - coming - held, **others})  # type: ignore[arg-type]


def ask(jobs: list[SlurmJobRow], where: Rooms, machine: dict[str, NodeRow] | None = None) -> Claims:
    return claims(jobs, machine or nodes(16), PARTITIONS, where, NOW)


def test_a_job_takes_free_nodes_before_ours() -> None:
    found = ask([job(1, 3)], rooms(free=names(0, 1), held=names(2, 3, 4)))
    assert found.taken == {"n0": "1", "n1": "1"}
    assert found.claims == (Claim(job="1", nodes=names(2, 3, 4), count=1),)


def test_nodes_that_are_being_cleared_count_before_ours() -> None:
    """Pilots that were cancelled a moment ago must not cost others."""
    found = ask([job(1, 3)], rooms(coming=names(0, 1, 2), held=names(3, 4, 5)))
    assert found.claims == ()
    assert found.taken == {}


def test_what_cannot_start_with_all_of_ours_claims_nothing() -> None:
    assert ask([job(1, 6)], rooms(held=names(0, 1, 2, 3, 4))) == Claims()


def test_lower_jobs_wait_for_the_plan_of_a_blocked_one() -> None:
    where = rooms(held=names(0, 1))
    assert ask([job(1, 6), job(2, 1)], where) == Claims()
    never = job(1, 6, reason="Nodes required for job are DOWN, DRAINED or reserved")
    assert ask([never, job(2, 1)], where).jobs == {"2"}


def test_lower_jobs_are_backfilled_beside_the_plan_or_before_it() -> None:
    where = rooms(held=names(0, 1))
    blocked = job(1, 6, planned=tuple(sorted(names(0, 5, 6, 7, 8, 9))), start=NOW + 300)
    assert ask([blocked, job(2, 1)], where).claims == (Claim(job="2", nodes=names(1), count=1),)
    assert ask([blocked, job(2, 2)], where) == Claims()
    brief = job(2, 2, limit_s=300.0)
    assert ask([blocked, brief], where).claims == (Claim(job="2", nodes=names(0, 1), count=2),)


def test_named_nodes_are_claimed_as_named() -> None:
    found = ask([job(1, 2, required="n3")], rooms(free=names(0), held=names(1, 2, 3)))
    assert found.claims == (Claim(job="1", nodes=names(3), count=1),)
    assert found.taken == {"n0": "1"}
    assert ask([job(1, 1, required="n9")], rooms(free=names(0), held=names(1))) == Claims()


def test_a_node_must_fit() -> None:
    machine = nodes(4) | {
        "n3": replace(nodes(4)["n3"], features=("a100", "ib"), gpus=(("a100", 4),), memory_mb=9000)
    }
    where = rooms(held=names(0, 1, 2, 3))
    for wanted in (
        {"features": "a100&ib"},
        {"features": "v100|a100"},
        {"gpus": (("", 4),)},
        {"gpus": (("a100", 2),)},
        {"memory_mb": 8000},
        {"excluded": "n[0-2]"},
    ):
        assert ask([job(1, 1, **wanted)], where, machine).claims == (Claim(job="1", nodes=names(3), count=1),)
    for impossible in (
        {"features": "v100"},
        {"gpus": (("", 5),)},
        {"gpus": (("v100", 1),)},
        {"partitions": ("debug",)},
        {"partitions": ("shut",)},
    ):
        assert ask([job(1, 1, **impossible)], where, machine) == Claims()


def test_reserved_nodes_serve_jobs_that_end_before() -> None:
    where = Rooms(frozenset(), frozenset(), names(0), {"n0": NOW + 60})
    assert ask([job(1, 1)], where) == Claims()
    assert ask([job(1, 1, limit_s=60.0)], where).jobs == {"1"}


def test_each_task_of_an_array_is_a_job() -> None:
    found = ask([job(1, 2, tasks=3)], rooms(held=names(*range(7))))
    assert [claim.count for claim in found.claims] == [2, 2, 2]


@pytest.mark.parametrize(
    ("change", "waits"),
    [
        ({}, True),
        ({"reason": "None"}, True),
        ({"reason": "Priority"}, True),
        ({"reason": "ReqNodeNotAvail, May be reserved for other job"}, True),
        ({"reason": "Dependency"}, False),
        ({"reason": "BeginTime"}, False),
        ({"reason": "None", "start": NOW + 25}, False),  # its user has changed when it is to begin
        ({"reason": "None", "start": NOW}, True),
        ({"reason": "JobHeldUser"}, False),
        ({"reason": "AssocGrpNodeLimit"}, False),
        ({"reason": "QOSMaxJobsPerUserLimit"}, False),
        ({"reason": "PartitionNodeLimit"}, False),
        ({"reason": "Licenses"}, False),
        ({"reason": "Something new"}, False),
        ({"reservation": "mnt"}, False),
        ({"priority": 0}, False),
        ({"state": "RUNNING"}, False),
    ],
)
def test_only_jobs_that_wait_for_nodes_count(change: dict[str, object], waits: bool) -> None:
    assert waits_for_nodes(replace(MAIN_JOB, **change), NOW) is waits  # type: ignore[arg-type]


def test_the_order_is_tier_then_priority_then_number() -> None:
    jobs = [
        replace(MAIN_JOB, id="10", priority=5),
        replace(MAIN_JOB, id="9", priority=5),
        replace(MAIN_JOB, id="3", priority=7),
        replace(MAIN_JOB, id="11", partitions=("debug",), priority=1),
    ]
    assert [j.id for j in in_order(jobs, PARTITIONS)] == ["11", "3", "9", "10"]


# --- what squeue does not say, or not in full ---------------------------------------------------------


ENDS = dict.fromkeys(names(0, 1, 2, 3), NOW + 900)  # of pilots


def test_where_slurm_plans_a_job_that_is_not_understood_exactly_these_nodes_are_given() -> None:
    puzzling = job(1, 2, partitions=("debug",), planned=("n1", "n3"), start=NOW + 900)
    found = ask([puzzling], rooms(held=names(0, 1, 2, 3), ends=ENDS))
    assert found.claims == (Claim(job="1", nodes=names(1, 3), count=2),)


@pytest.mark.parametrize(
    "change",
    [
        {"planned": ("n1", "n9"), "start": NOW + 900},  # a main job is on n9
        {"planned": ("n1", "n3"), "start": NOW + 90_000},  # so late that we cannot be the cause
        {"planned": ("n5",), "start": NOW + 900},  # not ours
        {"planned": ("n1", "n3"), "start": None},
        {"planned": ("n1", "n3"), "start": NOW + 900, "reason": "QOSMaxJobsPerUserLimit"},
    ],
)
def test_a_plan_that_we_are_not_in_the_way_of_takes_nothing(change: dict[str, object]) -> None:
    puzzling = job(1, 2, partitions=("debug",), **change)
    found = claims(
        [puzzling] if waits_for_nodes(puzzling, NOW) else [],
        nodes(16),
        PARTITIONS,
        rooms(held=names(0, 1, 2, 3), ends=ENDS),
        NOW,
    )
    assert found == Claims()


def test_a_plan_may_be_for_after_the_last_of_the_pilots_on_its_nodes() -> None:
    ends = {**ENDS, "n3": NOW + 9000}
    puzzling = job(1, 2, partitions=("debug",), planned=("n1", "n3"), start=NOW + 9000)
    found = ask([puzzling], rooms(held=names(0, 1, 2, 3), ends=ends))
    assert found.claims == (Claim(job="1", nodes=names(1, 3), count=2),)


def test_a_job_behind_gets_no_node_that_is_planned_for_the_one_before() -> None:
    one, other = (
        job(i, 2, partitions=("debug",), planned=("n1", "n3"), start=NOW + 900, limit_s=60.0) for i in (1, 2)
    )
    assert ask([one, other], rooms(held=names(0, 1, 2, 3), ends=ENDS)).jobs == {"1"}


def test_a_node_that_a_main_job_shares_counts_for_those_that_share() -> None:
    machine = nodes(4) | {"n0": replace(nodes(1)["n0"], cpus_used=2, memory_used_mb=300)}
    where = rooms(held=names(1, 2, 3), shared=names(0), taken=frozenset())
    for wish in ({"count": 4}, {"count": 4, "all_cpus": 14}, {"count": 4, "memory_mb": 700}):
        found = ask([replace(job(1), shares=True, **wish)], where, machine)  # type: ignore[arg-type]
        assert found.claims == (Claim(job="1", nodes=names(1, 2, 3), count=3),)
    for wish in ({"count": 4, "all_cpus": 15}, {"count": 4, "memory_mb": 800}, {"count": 4, "shares": False}):
        assert ask([replace(job(1), **{"shares": True, **wish})], where, machine) == Claims()  # type: ignore[arg-type]


def test_jobs_that_share_are_packed() -> None:
    """Four jobs of one CPU fit on one node: more of ours would be given up for nothing."""
    small = job(1, 1, tasks=5, shares=True)
    assert [claim.count for claim in ask([small], rooms(held=names(0, 1, 2))).claims] == [1, 1]


def test_cpus_count_as_well_as_nodes() -> None:
    found = ask([job(1, 2, all_cpus=10)], rooms(held=names(0, 1, 2, 3)))
    assert [claim.count for claim in found.claims] == [3]


def test_each_form_of_a_constraint_is_claimed_as_it_is_meant() -> None:
    row = nodes(1)["n0"]
    of = {"n0": ("r1", "a"), "n1": ("r1",), "n2": ("r2", "a"), "n3": ("r2",)}
    machine = {name: replace(row, name=name, features=features) for name, features in of.items()}

    def claimed(wish: str, count: int) -> list[tuple[list[str], int]]:
        found = ask([job(1, count, features=wish)], rooms(held=names(0, 1, 2, 3)), machine)
        return [(sorted(claim.nodes), claim.count) for claim in found.claims]

    assert claimed("[r1|r2]", 2) == [(["n0", "n1"], 2)]
    assert claimed("[r1|r2]", 3) == [], "all nodes in one rack"
    assert claimed("(r1|r2)&a", 2) == [(["n0", "n2"], 2)]
    assert claimed("[r1*1&r2*1]", 2) == [(["n0", "n1"], 1), (["n2", "n3"], 1)]
    assert claimed("r1*1&r2*2", 3) == [(["n0", "n1"], 1), (["n2", "n3"], 2)]
    assert claimed("a&r2|r1", 3) == [(["n0", "n1", "n2"], 3)], "from left to right"
    assert claimed("r3", 1) == []
    assert claimed("what(is[this", 1) == [(["n0", "n1", "n2", "n3"], 1)], "rather too many than none"


def test_the_jobs_of_a_flexible_reservation_may_be_anywhere() -> None:
    where = rooms(held=names(0, 1), flexible=frozenset({"soft"}), reserved=dict.fromkeys(names(0), NOW + 9))
    assert [c.count for c in ask([job(1, 2, reservation="soft")], where).claims] == [2]
    assert ask([job(1, 2, reservation="hard")], where) == Claims()
    planned = job(1, 2, reservation="hard", planned=("n0", "n1"), start=NOW + 900)
    assert [c.count for c in ask([planned], where).claims] == [2], "Slurm knows better"


def test_a_job_of_a_reservation_is_tried_though_the_same_without_one_found_no_place() -> None:
    where = rooms(held=names(0, 1), flexible=frozenset({"soft"}), reserved=dict.fromkeys(names(0), NOW + 9))
    plain = job(1, 2, reason="ReqNodeNotAvail")
    assert ask([plain], where) == Claims()
    assert ask([plain, replace(plain, id="2", reservation="soft")], where).jobs == {"2"}


def test_a_job_that_begins_now_counts_before_slurm_has_looked_at_it_again() -> None:
    later = replace(MAIN_JOB, reason="BeginTime", start=NOW + 1)
    assert not waits_for_nodes(later, NOW)
    assert waits_for_nodes(later, NOW + 1)


def test_nodes_of_other_daemons_pilots_count_last() -> None:
    """A job that needs nodes of both gets them: each daemon gives its own."""
    where = rooms(held=names(0, 1), foreign=names(2, 3), taken=frozenset())
    assert [c.count for c in ask([job(1, 4)], where).claims] == [2]
    assert [c.count for c in ask([job(1, 2)], where).claims] == [2]
    assert ask([job(1, 5)], where) == Claims()


def test_a_job_that_has_its_nodes_and_does_not_start_gets_those_of_slurms_plan() -> None:
    where, alone = rooms(free=names(0), held=names(1, 2), ends=ENDS), job(1, 1)
    first = ask([alone], where)
    assert (first.taken, first.claims, first.ready) == ({"n0": "1"}, (), {"1"})
    planned = replace(alone, planned=("n2",), start=NOW + 900)

    def after(seconds: float, waiting: SlurmJobRow) -> Claims:
        return claims([waiting], nodes(16), PARTITIONS, where, NOW, {"1": NOW - seconds})

    assert after(4.0, planned) == first
    found = after(5.0, planned)
    assert found.claims == (Claim(job="1", nodes=names(2), count=1),)
    assert found.ready == {"1"}, "it has waited for so long already"
    everything = after(60.0, alone)
    assert (everything.taken, everything.claims) == (
        {"n0": "1"},
        (Claim(job="1", nodes=names(1, 2), count=2),),
    )
    assert after(60.0, replace(alone, reason="Priority")) == first, "another job is before it"


def test_hopeless_jobs_of_one_user_hide_nobody_elses() -> None:
    """They are before it in the queue, and each asks for something else."""
    asked = {"limit_s": 60.0, "reason": "ReqNodeNotAvail"}
    flood = [replace(job(i, 9, **asked), priority=5, all_cpus=i) for i in range(2000)]
    mine = replace(job(3000), user="me", priority=1)
    assert ask([*flood, mine], rooms(held=names(0))).jobs == {"3000"}


def test_jobs_that_ask_for_the_same_share_one_list_of_nodes() -> None:
    """A thousand tasks and a thousand nodes of ours would be a million names otherwise."""
    held = names(*range(1000))
    machine = nodes(1000)
    where = Rooms(frozenset(), frozenset(), held)
    several = [job(i, 1, priority=5) for i in range(400)]
    for jobs, count in (([job(1, 2, tasks=700)], 1000), (several, 400)):
        found = claims(jobs, machine, PARTITIONS, where, NOW).claims
        assert sum(claim.count for claim in found) == count
        assert len({id(claim.nodes) for claim in found}) == 1


def test_lists_of_nodes_are_bounded_where_each_job_asks_for_something_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(walk, "MOST_CHOICES", 1000)
    several = [job(i, 1, priority=5, excluded=f"n{i}") for i in range(100)]
    where = Rooms(frozenset(), frozenset(), names(*range(200)))
    found = claims(several, nodes(200), PARTITIONS, where, NOW).claims
    assert sum(claim.count for claim in found) == 100
    assert sum(len(claim.nodes) for claim in found) <= 1000 + 200 + 100


@st.composite
def machines(draw: st.DrawFn) -> tuple[list[SlurmJobRow], Rooms]:
    kinds = draw(st.lists(st.sampled_from(["free", "coming", "held", "busy"]), max_size=9))
    of = {k: frozenset(f"n{i}" for i, kind in enumerate(kinds) if kind == k) for k in kinds}
    where = rooms(*(of.get(kind, frozenset()) for kind in ("free", "coming", "held")))
    everything = sorted(f"n{i}" for i in range(9))
    jobs = [
        job(
            number,
            draw(st.integers(1, 5)),
            excluded=",".join(draw(st.sets(st.sampled_from(everything), max_size=4))),
            limit_s=draw(st.sampled_from([60.0, 600.0, None])),
            start=draw(st.sampled_from([None, NOW + 300.0])),
        )
        for number in range(draw(st.integers(0, 4)))
    ]
    for i, waiting in enumerate(jobs):
        fit = [name for name in everything if name not in waiting.excluded.split(",")]
        if draw(st.booleans()):
            plan = tuple(draw(st.permutations(fit))[: waiting.count])
            jobs[i] = replace(waiting, planned=plan if len(plan) == waiting.count else ())
    return jobs, where


@settings(max_examples=300)
@given(machines())
def test_the_first_job_gets_its_due_and_all_fit_together(given_: tuple[list[SlurmJobRow], Rooms]) -> None:
    jobs, where = given_
    found = ask(jobs, where)
    if jobs:
        first = jobs[0]
        fit = {
            kind: getattr(where, kind) - set(first.excluded.split(",")) for kind in ("free", "coming", "held")
        }
        could = sum(map(len, fit.values())) >= first.count
        ours = sum(claim.count for claim in found.claims if claim.job == first.id)
        assert ours == (max(0, first.count - len(fit["free"]) - len(fit["coming"])) if could else 0)
        free = [name for name, taker in found.taken.items() if taker == first.id]
        assert len(free) == (min(first.count, len(fit["free"])) if could else 0)
    assert set(found.taken) <= where.free
    assert all(claim.nodes <= where.held for claim in found.claims)
    excluded = {j.id: set(j.excluded.split(",")) for j in jobs}
    assert not any(excluded[claim.job] & claim.nodes for claim in found.claims)
    assert not any(name in excluded[taker] for name, taker in found.taken.items())
    assert _satisfiable([claim.nodes for claim in found.claims for _ in range(claim.count)], where.held)


def _satisfiable(wishes: list[frozenset[str]], held: frozenset[str]) -> bool:
    """Whether every wish can have a node of its own, by trying everything."""
    if len(wishes) > len(held):
        return False
    return any(
        all(name in wish for wish, name in zip(wishes, order, strict=True))
        for order in permutations(sorted(held), len(wishes))
    )


@settings(max_examples=300)
@given(
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 6),
    st.lists(st.integers(1, 8), max_size=6),
)
def test_on_equal_nodes_only_numbers_matter(free: int, coming: int, held: int, sizes: list[int]) -> None:
    kinds = [
        frozenset(f"{kind}{i}" for i in range(n)) for kind, n in (("f", free), ("c", coming), ("h", held))
    ]
    everything = frozenset().union(*kinds)
    machine = {name: replace(nodes(1)["n0"], name=name) for name in everything}
    found = ask([job(i, size) for i, size in enumerate(sizes)], rooms(*kinds), machine)
    expected: dict[str, tuple[int, int]] = {}
    for i, size in enumerate(sizes):
        if size > free + coming + held:
            break  # first come, first served: those behind wait
        from_free = min(size, free)
        from_coming = min(size - from_free, coming)
        from_held = size - from_free - from_coming
        free, coming, held = free - from_free, coming - from_coming, held - from_held
        expected[str(i)] = (from_free, from_held)
    for number in map(str, range(len(sizes))):
        taken = sum(taker == number for taker in found.taken.values())
        claimed = sum(claim.count for claim in found.claims if claim.job == number)
        assert (taken, claimed) == expected.get(number, (0, 0))


def test_a_user_whose_jobs_take_long_to_try_keeps_no_others_waiting() -> None:
    """Every job of mallory takes a tenth of a second, and they come first."""
    now = [0.0]
    slow = [job(i, user="mallory", priority=10_000, limit_s=60.0 + i) for i in range(100)]
    mine = [job(500 + i, user="ann", limit_s=60.0 + i) for i in range(3)]

    def clock() -> float:
        return now[0]

    class Slow(Walk):
        def start(self, parts: Sequence[SlurmJobRow], *, placeable: bool) -> bool:
            now[0] += 0.1 if parts[0].user == "mallory" else 0.0
            return super().start(parts, placeable=placeable)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bftrainer.schedulers.slurm.queue.claims.Walk", Slow)
        where = Rooms(frozenset(), frozenset(), frozenset(nodes(200)))
        found = claims([*slow, *mine], nodes(200), PARTITIONS, where, NOW, clock=clock)
    assert now[0] <= 0.6 * WALK_S and WALK_S <= 1.0
    assert {"500", "501", "502"} <= {one.job for one in found.claims}
    assert {"0", "1", "2"} <= {one.job for one in found.claims}, "its first ones count"


def test_jobs_that_ask_for_different_things_and_mean_the_same_nodes_share_one_set() -> None:
    fit = NodeFit(nodes(16), PARTITIONS)
    sets = {id(fit.nodes(job(1, memory_mb=i), ANY)) for i in range(50)}
    assert len(sets) == 1
