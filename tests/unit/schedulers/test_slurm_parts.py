"""Free GPUs of nodes that main jobs use in part: what pilots get, and what main jobs find there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.model.machine import Claim
from bftrainer.schedulers.slurm.queue.gpus import Kinds
from bftrainer.schedulers.slurm.queue.parts import USED_UP, part_of
from bftrainer.schedulers.slurm.queue.resources import Remaining
from bftrainer.schedulers.slurm.rows import NodeRow, SlurmJobRow, SlurmMachine
from bftrainer.schedulers.slurm.view import SlurmView
from tests.support.slurm_samples import MAIN_JOB
from tests.unit.schedulers.test_slurm_view import OURS, machine, pilot, see, why

HARVEST = replace(OURS, parts=True)
A100: Kinds = (("a100", 4),)
ROW = NodeRow("n1", "MIXED", frozenset(), ("batch", "backfill"), (), "gpu:a100:4", A100, 16, 1600)


def gpus(count: int) -> Kinds:
    return (("a100", count),) if count else ()


@pytest.mark.parametrize(
    ("left", "part"),
    [
        (Remaining(12, 1200, gpus(2)), Remaining(8, 800, gpus(2))),
        (Remaining(16, 1600, gpus(4)), Remaining(16, 1600, gpus(4))),
        (Remaining(3, 1200, gpus(2)), Remaining(3, 800, gpus(2))),
        (Remaining(1, 1200, gpus(2)), Remaining(1, 400, gpus(1))),
        (Remaining(12, 450, gpus(3)), Remaining(8, 450, gpus(2))),
        (Remaining(12, 150, gpus(3)), None),
        (Remaining(0, 1200, gpus(2)), None),
        (Remaining(12, 1200, ()), None),
        (Remaining(12, 1200, (("a100", 1), ("v100", 2))), Remaining(8, 800, (("v100", 2),))),
    ],
)
def test_cores_and_memory_are_in_proportion_or_what_is_left(left: Remaining, part: Remaining | None) -> None:
    assert part_of(ROW, left) == part


def mixed(**used: int) -> SlurmMachine:
    """n1 to n4 with 4 GPUs each; main jobs and pilots use so many cores, a quarter of its memory and a GPU
    with each."""
    found = machine(**{f"n{i}": "MIXED" if f"n{i}" in used else "IDLE" for i in (1, 2)})
    rows = {
        name: replace(
            row,
            gres="gpu:a100:4",
            gpus=A100,
            cpus_used=used.get(name, 0),
            memory_used_mb=250 * used.get(name, 0),
            gpus_used=gpus(used.get(name, 0)),
        )
        for name, row in found.nodes.items()
    }
    return replace(found, nodes=rows)


def main(number: int, count: int, *on: str, **others: object) -> SlurmJobRow:
    """A main job that shares nodes, with so many cores and GPUs of each; without nodes it waits."""
    state = {"state": "RUNNING", "nodes": on} if on else {}
    needs = {"cpus": count, "all_cpus": count, "memory_mb": 250 * count, "gpus": gpus(count)}
    change = {"shares": True, **needs, **state, **others}
    return replace(MAIN_JOB, id=str(number), priority=1000 - number, **change)  # type: ignore[arg-type]


def part_pilot(number: int, node: str, tag: str, count: int) -> SlurmJobRow:
    return replace(
        main(number, count, node),
        **{n: getattr(pilot(number, node, tag), n) for n in ("name", "user", "partitions", "required")},
    )


def parts(view: SlurmView) -> dict[str, int]:
    return {name: sum(count for _, count in part.gpus) for name, part in view.parts.items()}


def test_a_node_in_use_is_ours_in_part_where_the_site_harvests_gpus() -> None:
    here = mixed(n1=1), main(1, 1, "n1")
    assert why(see(*here))["n1"] == "mixed"
    view = see(*here, ours=HARVEST)
    assert view.snapshot.idle == {"n1", "n2"}
    assert view.parts == {"n1": Remaining(3, 750, gpus(3))}, "n2 is idle: all of it"
    assert view.room("n1").part == view.parts["n1"] and view.room("n2").part is None
    full = see(mixed(n1=4), main(1, 4, "n1"), ours=HARVEST)
    assert why(full)["n1"] == "mixed" and not full.parts


@pytest.mark.parametrize(("shares", "asked", "ours"), [(True, 3, True), (True, 4, False), (False, 3, False)])
def test_a_pilot_that_finds_no_room_any_more_gives_its_node_up(shares: bool, asked: int, ours: bool) -> None:
    """A main job took a part of the node while the pilot was submitted."""
    waits = replace(part_pilot(7, "n1", "a", asked), state="PENDING", nodes=(), shares=shares)
    assert (why(see(mixed(n1=1), main(1, 1, "n1"), waits, ours=HARVEST))["n1"] == "") is ours


def test_what_waiting_main_jobs_are_about_to_take_is_not_ours() -> None:
    running = main(1, 1, "n1")
    assert parts(see(mixed(n1=1), running, main(2, 2), ours=HARVEST)) == {"n1": 1}
    view = see(mixed(n1=1), running, main(2, 3), ours=HARVEST)
    assert (parts(view), why(view)["n1"]) == ({}, USED_UP)


def test_waiting_main_jobs_count_where_every_node_is_in_use() -> None:
    running = main(1, 1, "n1"), main(3, 4, "n2")
    assert parts(see(mixed(n1=1, n2=4), *running, main(2, 2), ours=HARVEST)) == {"n1": 1}


def test_only_nodes_are_claimed_that_have_room_once_our_pilot_is_gone() -> None:
    pilots = part_pilot(7, "n1", "a", 1), part_pilot(8, "n2", "b", 2)
    running = main(1, 3, "n1"), main(3, 1, "n2")
    view = see(mixed(n1=4, n2=3), *running, *pilots, main(4, 2), ours=HARVEST)
    assert view.snapshot.claims == (Claim(job="4", nodes=frozenset({"n2"}), count=1),)


@pytest.mark.parametrize(("asked", "nodes"), [(1, {"n1"}), (2, {"n1"}), (3, {"n2"})])
def test_a_small_main_job_gets_its_part_of_a_node_that_others_use_in_part(
    asked: int, nodes: set[str]
) -> None:
    """There Slurm would have put it without us; the other node stays whole for jobs that need that."""
    here = mixed(n1=4, n2=4)
    whole = replace(part_pilot(8, "n2", "b", 4), shares=False)
    jobs = [main(1, 2, "n1"), part_pilot(7, "n1", "a", 2), whole, main(4, asked)]
    assert see(here, *jobs, ours=HARVEST).snapshot.claims == (
        Claim(job="4", nodes=frozenset(nodes), count=1),
    )


def test_how_much_of_a_node_main_jobs_use_does_not_count_what_our_pilots_have() -> None:
    jobs = main(1, 1, "n1"), part_pilot(7, "n1", "a", 2)
    shown = see(mixed(n1=3), *jobs, ours=HARVEST).snapshot.nodes
    assert {node.name: node.used for node in shown} == {"n1": 0.25, "n2": 0.0}
    whole = replace(part_pilot(8, "n2", "b", 4), shares=False)
    shown = see(mixed(n1=3, n2=4), *jobs, whole, ours=HARVEST).snapshot.nodes
    assert {node.name: node.used for node in shown} == {"n1": 0.25, "n2": 0.0}


def test_a_main_job_that_finds_room_beside_our_pilot_takes_nothing_of_it() -> None:
    ours = part_pilot(7, "n1", "a", 2)
    view = see(mixed(n1=3, n2=4), main(1, 1, "n1"), main(3, 4, "n2"), ours, main(2, 1), ours=HARVEST)
    assert view.snapshot.claims == ()
    assert why(view)["n1"] == "", "main jobs beside our pilot are no reason"
    assert view.found.ready == {"2"}


@pytest.mark.parametrize(("count", "claimed"), [(1, False), (2, True), (3, True), (4, False)])
def test_a_main_job_claims_what_we_hold_if_it_needs_cores_memory_or_gpus_of_it(
    count: int, claimed: bool
) -> None:
    """n1: 1 of 4 by a main job, 2 by our pilot; 4 do not fit even without us."""
    ours = part_pilot(7, "n1", "a", 2)
    for need in ({}, {"gpus": ()}, {"memory_mb": 0}):
        job = main(2, count, **need)
        view = see(mixed(n1=3, n2=4), main(1, 1, "n1"), main(3, 4, "n2"), ours, job, ours=HARVEST)
        expected = (Claim(job="2", nodes=frozenset({"n1"}), count=1),) if claimed else ()
        assert view.snapshot.claims == expected


def test_two_jobs_that_fit_one_after_the_other_vacate_just_enough() -> None:
    pilots = part_pilot(7, "n1", "a", 2), part_pilot(8, "n2", "b", 2)
    running = main(1, 1, "n1"), main(3, 1, "n2")
    view = see(mixed(n1=3, n2=3), *running, *pilots, main(4, 1), main(5, 1), main(6, 1), ours=HARVEST)
    assert [claim.job for claim in view.snapshot.claims] == ["6"], "two found room beside our pilots"
    again = see(mixed(n1=3, n2=3), *running, *pilots, main(4, 3), main(5, 1), ours=HARVEST)
    assert [claim.job for claim in again.snapshot.claims] == ["4"], (
        "and the second finds room on the other node"
    )


def test_a_pilot_that_has_a_whole_node_shares_it_with_nobody() -> None:
    whole = pilot(7, "n1", "a")
    view = see(mixed(n1=4), whole, main(1, 1, "n1"), ours=HARVEST)
    assert why(view)["n1"] == "job 1", "Slurm has preempted it"
    assert see(mixed(n1=4, n2=4), whole, main(3, 4, "n2"), main(2, 1), ours=HARVEST).snapshot.claims == (
        Claim(job="2", nodes=frozenset({"n1"}), count=1),
    )
