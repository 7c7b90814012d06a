"""What `headroom: auto` learns from main jobs that came."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.model.machine import Snapshot
from bftrainer.model.main_jobs import MainJob, MainStart
from bftrainer.nodes.headroom.demand import DAY_S, LEAST, SERVED, Arrival, Demand, need
from bftrainer.nodes.headroom.headroom import Kind
from tests.support.nodes_world import World, run

CPU: Kind = (("batch",), "")
arrivals = st.lists(
    st.builds(
        Arrival,
        time=st.floats(0, 1000),
        nodes=st.integers(0, 8),
        part=st.floats(0, 2),
    ),
    max_size=60,
).map(lambda some: sorted(some, key=lambda one: one.time))


def single(*times: float, nodes: int = 1) -> list[Arrival]:
    return [Arrival(time=time, nodes=nodes) for time in times]


def test_jobs_that_come_one_by_one_need_one_node_and_bursts_as_many_as_come_within_the_time() -> None:
    assert need(single(*range(0, 1000, 50)), 5.0, 10) == 1
    bursts = single(*(t + i for t in range(0, 1000, 100) for i in range(3)))
    assert need(bursts, 5.0, 10) == 3
    assert need(bursts, 0.5, 10) == 1, "a node that is replaced at once serves all three"


def test_large_jobs_do_not_count_and_few_jobs_are_no_reason() -> None:
    small, large = single(*range(0, 1000, 50)), single(*range(7, 1000, 50), nodes=64)
    both = sorted([*small, *large], key=lambda one: one.time)
    assert need(both, 5.0, 4) == 1
    assert need(single(*range(LEAST - 1)), 5.0, 4) == 0
    assert need(small, 5.0, 0) == 0


def test_parts_of_nodes_fit_on_nodes_that_main_jobs_use_in_part() -> None:
    parts = [Arrival(time=50.0 * i, part=0.25) for i in range(20)]
    assert need(parts, 5.0, 4) == 1
    assert need(parts, 5.0, 4, spare=1.0) == 0


@given(arrivals, st.floats(0.1, 100), st.integers(0, 20), st.floats(0, 4))
def test_what_is_left_serves_nearly_all_small_jobs_and_grows_with_time_and_shrinks_with_spare_cores(
    some: list[Arrival], within_s: float, most: int, spare: float
) -> None:
    found = need(some, within_s, most, spare)
    assert 0 <= found <= most
    assert found <= need(some, 2 * within_s, most, spare)
    assert found >= need(some, within_s, most, spare + 1)
    small = [one for one in some if one.nodes + one.part <= most]
    if len(small) >= LEAST and found < most:
        alone = sum(one.nodes + max(0.0, one.part - spare) <= found + 1e-6 for one in small)
        assert alone >= SERVED * len(small) - 1e-9


def test_what_came_more_than_a_day_ago_or_waited_for_others_counts_no_more() -> None:
    demand = Demand()

    def come(first: float, **more: object) -> None:
        for i in range(20):
            start = MainStart(
                time=first + 60 * i, job=str(i), nodes=1, wait_s=0.0, on=frozenset({"n1"}), **more
            )  # type: ignore[arg-type]
            demand.learn(start, {"n1": CPU}, {"n1": 64})

    def needs(now: float) -> int:
        return demand.needs({CPU: 5}, {}, 5.0, now)[CPU]

    come(0.0, fresh=False)
    assert needs(2000.0) == 0
    come(0.0, fresh=True)
    assert needs(2000.0) == 1
    assert needs(DAY_S + 2000.0) == 0


def test_jobs_count_when_they_came_however_late_they_started() -> None:
    demand = Demand()
    for i in range(20):
        both = {"nodes": 1, "on": frozenset({"n1"}), "fresh": True}
        came = 100.0 * (i // 2)  # two at a time, the second of which starts a minute later
        wait_s = 60.0 * (i % 2)
        demand.learn(
            MainStart(time=came + wait_s, job=str(i), wait_s=wait_s, **both),  # type: ignore[arg-type]
            {"n1": CPU},
            {"n1": 64},
        )
    assert demand.needs({CPU: 5}, {}, 5.0, 2000.0) == {CPU: 2}


def test_auto_leaves_a_node_when_small_jobs_have_come_one_by_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = World(tmp_path, 20)
        await world.turn()
        assert len(world.pool) == 20, "nothing is known yet"
        poll = world.scheduler.poll

        for i in range(LEAST):
            job = MainJob(
                job=str(i),
                nodes=1,
                submitted=world.time + 0.9,
                started=world.time + 0.95,
                on=frozenset({"n0"}),
            )

            async def shown(job: MainJob = job) -> Snapshot:
                found = await poll()
                return Snapshot(time=found.time, nodes=found.nodes, pilots=found.pilots, main=(job,))

            world.scheduler.poll = shown  # type: ignore[method-assign]
            await world.turn()
            world.scheduler.poll = poll  # type: ignore[method-assign]
            await world.turn(60)
        assert world.nodes.reserve.spared.total == 1
        assert len(world.pool) == 19

    run(scenario)
