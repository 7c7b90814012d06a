"""The walk through Slurm's queue, where one job's nodes depend on those before it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.model.machine import Claim
from bftrainer.schedulers.shared.claims import Claims
from bftrainer.schedulers.slurm.queue.resources import Rooms
from bftrainer.schedulers.slurm.rows import NodeRow, Partition, SlurmJobRow
from tests.support.slurm_claims import claims
from tests.support.slurm_samples import MAIN_JOB

NOW = 1000.0
PARTITIONS = {
    "batch": Partition("batch", 10, up=True, default=True, max_s=None),
    "debug": Partition("debug", 10, up=True, default=False, max_s=None),
    "shut": Partition("shut", 10, up=False, default=False, max_s=None),
}
ROW = NodeRow("", "IDLE", frozenset(), ("batch",), (), "", (), 4, 1000)
HELD = frozenset({"n0", "n1", "n2", "n3"})
HOPELESS = "ReqNodeNotAvail"


def job(number: int, count: int = 1, **others: object) -> SlurmJobRow:
    return replace(MAIN_JOB, id=str(number), priority=1000 - number, count=count, **others)  # type: ignore[arg-type]


def machine(**changed: dict[str, object]) -> dict[str, NodeRow]:
    return {
        name: replace(ROW, name=name, **changed.get(name, {}))  # type: ignore[arg-type]
        for name in sorted(HELD)
    }


def ask(jobs: list[SlurmJobRow], where: Rooms | None = None, **changed: dict[str, object]) -> Claims:
    rooms = where or Rooms(frozenset(), frozenset(), HELD)
    return claims(jobs, machine(**changed), PARTITIONS, rooms, NOW)


def nodes_of(found: Claims) -> dict[str, list[str]]:
    return {claim.job: sorted(claim.nodes) for claim in found.claims}


def test_where_a_constraint_cannot_be_read_slurms_plan_says_which_nodes() -> None:
    planned = job(1, features="what(is[this", planned=("n3",), start=NOW + 900)
    assert ask([planned]).claims == (Claim(job="1", nodes=frozenset({"n3"}), count=1),)


@pytest.mark.parametrize("wanted", [{"memory_mb": 600}, {"gpus": (("", 1),)}])
def test_what_one_job_takes_of_a_shared_node_the_next_does_not_get(wanted: dict[str, object]) -> None:
    found = ask([job(1, tasks=2, shares=True, cpus=1, **wanted)], **{n: {"gpus": (("", 1),)} for n in HELD})
    assert [claim.count for claim in found.claims] == [1, 1]


@pytest.mark.parametrize(
    ("used", "wanted"),
    [
        ({"gpus": (("", 4),), "gpus_used": (("", 3),)}, {"gpus": (("", 2),)}),
        (
            {"gpus": (("a100", 2), ("v100", 2)), "gpus_used": (("a100", 2),)},
            {"gpus": (("a100", 1),)},
        ),
        ({"cpus_used": 4}, {"cpus": 0}),
        ({"cpus_used": 1}, {"shares": False}),
    ],
)
def test_a_node_that_main_jobs_share_is_no_place_for_what_does_not_fit_beside_them(
    used: dict[str, object], wanted: dict[str, object]
) -> None:
    where = Rooms(frozenset(), frozenset(), frozenset({"n1"}), shared=frozenset({"n0"}))
    asked = {"shares": True, "planned": ("n0", "n1"), "start": NOW + 900, **wanted}
    assert ask([job(1, 2, **asked)], where, n0=used, n1={"gpus": (("", 4),)}) == Claims()


def test_jobs_of_two_partitions_have_lists_of_their_own() -> None:
    found = ask([job(1), job(2, partitions=("debug",))], n3={"partitions": ("debug",)})
    assert nodes_of(found) == {"1": ["n0", "n1", "n2"], "2": ["n3"]}


def test_a_partition_that_is_down_has_no_nodes() -> None:
    assert ask([job(1, partitions=("shut",))], n3={"partitions": ("shut",)}) == Claims()


def test_nodes_that_differ_in_their_gpus_only_are_told_apart() -> None:
    assert nodes_of(ask([job(1, gpus=(("", 2),))], n3={"gpus": (("a100", 2),)})) == {"1": ["n3"]}


def test_a_job_is_tried_if_it_asks_for_something_else_than_those_in_vain_or_has_a_plan() -> None:
    other = [job(1, features="v100", reason=HOPELESS), job(2, reason=HOPELESS)]
    assert ask(other).jobs == {"2"}
    planned = {"planned": ("n1", "n3"), "start": NOW + 900}
    unclear = [job(1, 2, partitions=("debug",)), job(2, 2, partitions=("debug",), **planned)]
    assert nodes_of(ask(unclear)) == {"2": ["n1", "n3"]}


def test_a_job_is_ready_only_when_its_nodes_are_clear() -> None:
    coming = frozenset({"n0"})
    for clearing, ready in ((frozenset[str](), {"1"}), (coming, set[str]())):
        where = Rooms(frozenset(), coming, frozenset({"n1"}), clearing=clearing)
        assert ask([job(1)], where).ready == ready


def test_nodes_kept_for_a_job_are_claimed_for_none_behind_it() -> None:
    where = Rooms(frozenset(), frozenset(), HELD, reserved={"n0": NOW + 1}, taken=frozenset({"n9"}))
    blocked = job(2, 6, planned=("n2", "n9"), start=NOW + 300)
    found = ask([job(1, limit_s=3600.0), blocked, job(3, limit_s=3600.0)], where)
    assert nodes_of(found) == {"1": ["n1", "n2", "n3"], "3": ["n1", "n3"]}


def test_slurms_plan_counts_only_where_no_reservation_begins_before_the_job_ends() -> None:
    planned = job(1, partitions=("debug",), planned=("n1",), start=NOW + 900, limit_s=3600.0)
    for reserved, jobs in ((NOW + 9, set[str]()), (NOW + 9000, {"1"})):
        where = Rooms(frozenset(), frozenset(), HELD, reserved={"n1": reserved})
        assert ask([planned], where).jobs == jobs
