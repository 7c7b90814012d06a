"""Main jobs whose nodes have to lie side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model.machine import Claim
from bftrainer.schedulers.shared.claims import Claims
from bftrainer.schedulers.slurm import text
from bftrainer.schedulers.slurm.dialect import SEPARATOR
from bftrainer.schedulers.slurm.queue.constraints import stretch
from bftrainer.schedulers.slurm.queue.resources import Rooms
from bftrainer.schedulers.slurm.rows import NodeRow, Partition, SlurmJobRow
from tests.support.slurm_claims import claims
from tests.support.slurm_samples import MAIN_JOB, MARK

NOW = 1000.0
PARTITIONS = {"batch": Partition("batch", 10, up=True, default=True, max_s=None)}
ROW = NodeRow("", "IDLE", frozenset(), ("batch",), (), "", (), 4, 1000)
NODES = {f"n{i}": replace(ROW, name=f"n{i}") for i in range(1, 13)}


def names(*numbers: int) -> frozenset[str]:
    return frozenset(f"n{i}" for i in numbers)


def job(count: int, **others: object) -> SlurmJobRow:
    return replace(MAIN_JOB, count=count, contiguous=True, **others)  # type: ignore[arg-type]


def ask(waiting: SlurmJobRow, *, held: frozenset[str], free: frozenset[str] = frozenset()) -> Claims:
    where = Rooms(free, frozenset(), held, taken=frozenset(NODES) - held - free)
    return claims([waiting], NODES, PARTITIONS, where, NOW)


def test_nodes_with_a_busy_one_between_them_are_not_given_up() -> None:
    """The job could not start: Slurm plans it when the busy node comes free."""
    held = names(1, 3, 4)
    assert ask(job(3), held=held) == Claims()
    assert ask(replace(job(3), contiguous=False), held=held).jobs == {"1"}
    later = job(3, planned=("n2", "n3", "n4"), start=NOW + 3600)
    assert ask(later, held=held) == Claims()


def test_exactly_the_nodes_of_one_stretch_are_given_up() -> None:
    found = ask(job(2), held=names(1, 3, 4))
    assert found.claims == (Claim(job="1", nodes=names(3, 4), count=2),)


def test_the_stretch_with_the_fewest_of_ours_is_taken() -> None:
    found = ask(job(3), held=names(1, 2, 3, 6), free=names(5, 7))
    assert found.claims == (Claim(job="1", nodes=names(6), count=1),)
    assert found.taken == {"n5": "1", "n7": "1"}


def test_named_nodes_and_cpus_count() -> None:
    held = names(1, 2, 3, 4, 6, 7, 8)
    assert [c.nodes for c in ask(job(2, required="n7"), held=held).claims] == [names(6, 7)]
    assert ask(job(2, required="n[4,6]"), held=held) == Claims()
    assert [c.nodes for c in ask(job(2, all_cpus=16), held=held).claims] == [names(1, 2, 3, 4)]


def test_with_nodes_counted_by_feature_only_slurms_plan_is_believed() -> None:
    wish = {"features": "[a*1&b*1]"}
    assert ask(job(2, **wish), held=names(1, 2)) == Claims()
    planned = job(2, **wish, planned=("n1", "n2"), start=NOW + 60)
    assert [c.nodes for c in ask(planned, held=names(1, 2)).claims] == [names(1, 2)]


def test_tasks_of_an_array_each_get_a_stretch() -> None:
    found = ask(job(2, tasks=3), held=names(1, 2, 3, 5, 6))
    assert [sorted(claim.nodes) for claim in found.claims] == [["n1", "n2"], ["n5", "n6"]]


@given(
    st.lists(st.sampled_from(["free", "held", "busy"]), min_size=1, max_size=9),
    st.integers(1, 4),
    st.integers(0, 20),
    st.sets(st.integers(0, 8), max_size=2),
)
def test_it_is_the_cheapest_stretch_of_all(kinds: list[str], count: int, cpus: int, must: set[int]) -> None:
    line = [f"n{i}" for i in range(len(kinds))]
    of = dict(zip(line, kinds, strict=True))
    required = {f"n{i}" for i in must}
    found = stretch(
        line,
        {name for name in line if of[name] != "busy"},
        count=count,
        cpus=cpus,
        required=required,
        cpus_of=lambda name: 4,
        price_of=lambda name: int(of[name] == "held"),
    )
    fit = [
        part
        for first in range(len(line))
        for last in range(first + 1, len(line) + 1)
        if len(part := line[first:last]) >= count
        and 4 * len(part) >= cpus
        and required <= set(part)
        and all(of[name] != "busy" for name in part)
    ]
    if found is None:
        assert not fit
    else:
        assert sorted(found) in [sorted(part) for part in fit]
        assert sum(of[n] == "held" for n in found) == min(sum(of[n] == "held" for n in p) for p in fit)


@pytest.mark.parametrize(("shown", "meant"), [("1", True), ("0", False), ("", False)])
def test_how_squeue_shows_it(shown: str, meant: bool) -> None:
    fields = dict.fromkeys(text.FIELDS, "") | {"%i": "7", "%O": shown}
    line = SEPARATOR.join((MARK, *fields.values()))
    (row,), _ = text.jobs(line.encode(), MARK)
    assert row.contiguous is meant
