"""Horovod's names for the workers of a host, and which of them can be let go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bftrainer.elastic.horovod import slots
from bftrainer.elastic.horovod.assembly import Assembly, HorovodWorld

worlds = st.lists(st.integers(1, 4), min_size=1, max_size=6)


@given(worlds)
def test_hosts_and_their_numbers_of_workers_can_be_read_from_the_names(counts: list[int]) -> None:
    hosts = [f"n{i}.cluster.{i + 7}" for i in range(len(counts))]
    workers = slots.workers_of(hosts, counts)
    assert len(set(workers)) == sum(counts) and slots.hosts_of(workers) == hosts
    assert list(slots.slots_of(workers).values()) == counts


@given(worlds, st.data())
def test_only_hosts_whose_workers_are_all_there_are_whole(counts: list[int], data: st.DataObject) -> None:
    target = slots.workers_of([f"n{i}.1" for i in range(len(counts))], counts)
    here = [worker for worker in target if data.draw(st.booleans())]
    found = slots.whole(here, target)
    assert set(found) <= set(here)
    assert slots.slots_of(found) == {
        host: n for host, n in slots.slots_of(target).items() if slots.slots_of(here).get(host) == n
    }


def test_the_last_scope_of_each_worker_tells_which_worker_it_is() -> None:
    workers = slots.workers_of(["a.1", "b.1"], [2, 2])
    scope = "cross_1_process_set_hash_7"
    assert [slots.finisher(scope, number, workers) for number in (0, 1, 2)] == ["a.1:1", "b.1:1", None]
    assert slots.finisher("local_a.1_process_set_hash_7", 0, workers) is None


def test_a_newcomer_waits_for_the_other_workers_of_its_host() -> None:
    assembly = Assembly()
    assembly.publish(HorovodWorld(1, ("a:0", "a:1")))
    assembly.asking |= {"a:0", "a:1"}
    assert assembly.let_go() is not None
    assembly.publish(HorovodWorld(2, ("a:0", "a:1", "b:0", "b:1")))
    assembly.asking |= {"a:0", "a:1", "b:1"}
    formed = assembly.let_go()
    assert formed is not None and formed.hosts == ("a:0", "a:1"), "b comes with the next"


def test_a_host_is_lost_with_all_its_workers() -> None:
    assembly = Assembly()
    assembly.publish(HorovodWorld(1, ("a:0", "b:0", "b:1")))
    assembly.asking |= {"a:0", "b:0", "b:1"}
    assembly.let_go()
    assert assembly.lose_host("b") and assembly.gone == {"b:0", "b:1"}
