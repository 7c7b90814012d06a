"""Heterogeneous jobs: Slurm starts all parts or none, and so nodes are given up for all or for none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bftrainer.model.machine import Claim
from bftrainer.schedulers.shared.claims import Claims
from bftrainer.schedulers.slurm.queue.claims import BEGINS_SOON_S, able, in_order, together
from bftrainer.schedulers.slurm.queue.main_jobs import shown
from bftrainer.schedulers.slurm.queue.resources import Rooms
from bftrainer.schedulers.slurm.queue.walk import AHEAD_S
from bftrainer.schedulers.slurm.rows import NodeRow, Partition, SlurmJobRow
from tests.support.slurm_claims import claims
from tests.support.slurm_samples import MAIN_JOB

NOW = 1000.0
PARTITIONS = {
    "batch": Partition("batch", 10, up=True, default=True, max_s=None),
    "debug": Partition("debug", 20, up=True, default=False, max_s=None),
}
ROW = NodeRow("", "IDLE", frozenset(), ("batch", "debug"), (), "", (), 4, 1000)
NODES = {f"n{i}": replace(ROW, name=f"n{i}") for i in range(1, 9)}


def names(*numbers: int) -> frozenset[str]:
    return frozenset(f"n{i}" for i in numbers)


def part(of: int, number: int, count: int, **others: object) -> SlurmJobRow:
    """A part of a job, as squeue shows it."""
    change = {"id": f"{of}+{number}", "count": count, "priority": 1000 - of - number, **others}
    return replace(MAIN_JOB, **change)  # type: ignore[arg-type]


def ask(
    jobs: list[SlurmJobRow],
    held: frozenset[str],
    free: frozenset[str] = frozenset(),
    *,
    preempting: bool = False,
    coming: frozenset[str] = frozenset(),
    ready: dict[str, float] | None = None,
) -> Claims:
    taken = frozenset(NODES) - held - free - coming
    where = Rooms(free, coming, held, taken=taken, clearing=coming)
    order = in_order(able(jobs, NOW, ()), PARTITIONS)
    return claims(order, NODES, PARTITIONS, where, NOW, ready, preempting=preempting)


def test_all_parts_get_their_nodes_or_none_does() -> None:
    parts = [part(7, 0, 2), part(7, 1, 2)]
    found = ask(parts, names(1, 2, 3), names(4))
    assert [(claim.job, claim.count) for claim in found.claims] == [("7+0", 1), ("7+1", 2)]
    assert found.taken == {"n4": "7+0"}
    assert ask(parts, names(1, 2), names(4)) == Claims(), "the first part alone could not start"


def test_parts_of_several_partitions_count_together() -> None:
    """Other jobs stand between them in the queue."""
    parts = [part(7, 0, 2, partitions=("debug",)), part(7, 1, 2)]
    between = replace(MAIN_JOB, id="8", partitions=("debug",), count=1, priority=1)
    assert ask([*parts, between], names(1, 2, 3), names(4)).jobs == {"7+0", "7+1"}
    refused = ask([*parts, replace(between, reason="None", limit_s=60.0)], names(1, 2, 3))
    assert not {"7+0", "7+1"} & refused.jobs


def test_what_one_part_asks_for_in_vain_another_job_may_have() -> None:
    parts = [part(7, 0, 1, reason="ReqNodeNotAvail"), part(7, 1, 8, reason="ReqNodeNotAvail")]
    alone = replace(MAIN_JOB, id="8", priority=1, reason="ReqNodeNotAvail")
    again = [part(9, 0, 1, reason="ReqNodeNotAvail"), part(9, 1, 8, reason="ReqNodeNotAvail")]
    assert ask([*parts, alone, *again], names(1, 2)).jobs == {"8"}


@pytest.mark.parametrize(
    "change",
    [
        {"reason": "Dependency"},
        {"reason": "QOSMaxNodePerUserLimit"},
        {"state": "COMPLETING"},
        {"reason": "BeginTime", "start": NOW + 60},
    ],
)
def test_a_job_of_which_a_part_waits_for_something_else_gets_nothing(change: dict[str, object]) -> None:
    waiting = part(7, 1, 1)
    assert ask([part(7, 0, 1), waiting], names(1, 2)).jobs == {"7+0", "7+1"}
    assert ask([part(7, 0, 1), replace(waiting, **change)], names(1, 2)) == Claims()  # type: ignore[arg-type]


def test_nodes_are_cleared_before_a_job_may_begin() -> None:
    """Before backfill can preempt pilots for it: the first time, or again after a failed start."""
    soon = {"reason": "BeginTime", "start": NOW + BEGINS_SOON_S}
    parts = [part(7, 0, 1, **soon), part(7, 1, 1)]
    assert ask(parts, names(1, 2)).jobs == {"7+0", "7+1"}
    assert (
        ask([part(7, 0, 1, **{**soon, "start": NOW + BEGINS_SOON_S + 1}), parts[1]], names(1, 2)) == Claims()
    )
    assert shown(parts, ask(parts, names(1, 2)), NOW) == (), "nobody waits for Slurm yet"
    assert len(shown(parts, ask(parts, names(1, 2)), NOW + BEGINS_SOON_S)) == 2


def test_a_job_of_which_a_part_has_lapsed_has_lapsed() -> None:
    jobs = [part(7, 0, 1), part(7, 1, 1), replace(MAIN_JOB, id="70")]
    assert [job.id for job in able(jobs, NOW, {"7+1"})] == ["70"]


def test_no_part_has_its_nodes_before_all_have() -> None:
    found = ask([part(7, 0, 1), part(7, 1, 1)], frozenset(), names(1), coming=names(2))
    assert found.taken == {"n1": "7+0"}
    assert found.ready == frozenset(), "n2 is still being cleared"


def test_where_slurm_preempts_nothing_is_held_that_the_job_could_use_when_it_is_about_to_start() -> None:
    parts = [part(7, i, 2, planned=(f"n{i}", "n8"), start=NOW + AHEAD_S) for i in (1, 2)]
    ahead = ask(parts, names(1, 2), names(3), preempting=True)
    assert ahead.claims == (Claim(job="7+1", nodes=names(1, 2), count=2),)
    assert ahead.taken == {"n3": "7+1"}, "no pilot goes there"
    assert ahead.jobs == frozenset(), "nobody expects it to start now"
    assert ask(parts, names(1, 2), names(3)) == Claims(), "nothing is preempted"
    for start in (NOW + AHEAD_S + 1, None):
        later = [replace(one, start=start) for one in parts]
        assert ask(later, names(1, 2), names(3), preempting=True) == Claims()
    single = replace(parts[0], id="9", count=4)
    assert ask([single], names(1, 2), names(3), preempting=True) == Claims(), "Slurm mends these itself"


def test_parts_come_together_in_the_order_of_their_first() -> None:
    jobs = [replace(MAIN_JOB, id=name) for name in ("3", "7+0", "4_2", "7+1", "4")]
    assert [[job.id for job in whole] for whole in together(jobs)] == [["3"], ["7+0", "7+1"], ["4_2"], ["4"]]


def test_it_waits_for_backfill_before_it_gets_other_nodes() -> None:
    """Backfill comes every 30 s by default, and its plan is that of the last time."""
    parts = [part(7, i, 1, planned=(f"n{i + 3}",), start=NOW + 60) for i in (0, 1)]
    for since, given in ((6.0, set[str]()), (59.0, set[str]()), (60.0, {"n3", "n4"})):
        ready = dict.fromkeys(("7+0", "7+1"), NOW - since)
        found = ask(parts, names(3, 4), names(1, 2), ready=ready)
        assert set[str]().union(*(claim.nodes for claim in found.claims)) == given
    single = replace(parts[0], id="7")
    late = ask([single], names(3, 4), names(1, 2), ready={"7": NOW - 6.0})
    assert [claim.nodes for claim in late.claims] == [names(3)]
