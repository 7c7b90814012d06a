"""Which workers of Horovod train together: a table of events and of the workers that get their places."""

from __future__ import annotations

from bftrainer.elastic.horovod.assembly import Assembly, HorovodWorld


def formed(*hosts: str) -> Assembly:
    """A world of these hosts that trains."""
    assembly = Assembly()
    assembly.publish(HorovodWorld(1, hosts))
    assembly.asking |= set(hosts)
    assert assembly.let_go() == HorovodWorld(1, hosts)
    assembly.connected |= set(hosts)
    return assembly


def test_the_first_world_waits_for_all_of_its_workers() -> None:
    assembly = Assembly()
    assembly.publish(HorovodWorld(1, ("a", "b")))
    assembly.asking.add("b")
    assert assembly.let_go() is None
    assembly.asking.add("a")
    assert assembly.let_go() == HorovodWorld(1, ("a", "b"))
    assert assembly.let_go() is None


def test_members_are_told_when_the_newcomers_are_ready() -> None:
    assembly = formed("a", "b")
    assembly.publish(HorovodWorld(2, ("a", "b", "c")))
    assert assembly.to_be_told(patient=False) is None
    assembly.asking.add("c")
    assert assembly.to_be_told(patient=True) == "a"
    assembly.asking |= {"a", "b"}
    assert assembly.to_be_told(patient=True) is None
    assert assembly.let_go() == HorovodWorld(2, ("a", "b", "c"))


def test_members_that_stand_at_the_door_do_not_wait_for_newcomers() -> None:
    assembly = formed("a", "b")
    assembly.publish(HorovodWorld(2, ("a", "b", "c", "d")))
    assembly.asking |= {"a", "b", "c"}
    assert assembly.let_go() == HorovodWorld(2, ("a", "b", "c"))
    assembly.asking.add("d")
    assembly.connected |= {"a", "b", "c"}
    assert assembly.to_be_told(patient=True) == "a"


def test_leavers_wait_for_newcomers_only_as_long_as_there_is_patience() -> None:
    assembly = formed("a", "b")
    assembly.publish(HorovodWorld(2, ("a", "c")))
    assert assembly.to_be_told(patient=True) is None
    assert assembly.to_be_told(patient=False) == "a"
    assembly.asking |= {"a", "b"}
    assert assembly.let_go() == HorovodWorld(2, ("a",))
    assert set(assembly.turn_away()) == {"b"}


def test_no_worker_is_told_when_none_stays() -> None:
    assembly = formed("a", "b")
    assembly.publish(HorovodWorld(2, ("c",)))
    assembly.asking.add("c")
    assert assembly.to_be_told(patient=False) is None
    assert assembly.let_go() == HorovodWorld(2, ("c",))
    assembly.asking.add("b")
    assert set(assembly.turn_away()) == {"b"}


def test_dead_workers_delay_no_world_that_is_published_without_them() -> None:
    assembly = formed("a", "b")
    assert not assembly.lose("b")
    assembly.asking.add("a")
    assert assembly.let_go() is None
    assembly.publish(HorovodWorld(2, ("a",)))
    assert assembly.let_go() == HorovodWorld(2, ("a",))


def test_a_death_while_all_connect_tears_the_world() -> None:
    assembly = Assembly()
    assembly.publish(HorovodWorld(1, ("a", "b")))
    assembly.asking |= {"a", "b"}
    assembly.let_go()
    assembly.connected.add("a")
    assert assembly.lose("b")
    assert not assembly.lose("b")
    assert not assembly.lose("a"), "it is said once"


def test_old_news_is_ignored_and_the_same_members_need_not_meet_again() -> None:
    assembly = formed("a", "b")
    assembly.publish(HorovodWorld(3, ("b", "a")))
    assert assembly.formed == HorovodWorld(3, ("a", "b"))
    assembly.publish(HorovodWorld(2, ("a",)))
    assert assembly.target == HorovodWorld(3, ("b", "a"))
    assert assembly.to_be_told(patient=False) is None


def test_a_worker_that_dies_while_it_waits_for_a_place_waits_no_longer() -> None:
    assembly = formed("a")
    assembly.publish(HorovodWorld(2, ("a", "b")))
    assembly.asking.add("b")
    assembly.lose("b")
    assert set(assembly.turn_away()) == {"b"}
    assert assembly.asking == set()
