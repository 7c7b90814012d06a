"""Published memberships: only the newest counts, and all members switch to the same one."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bftrainer.elastic.members import group as members_group
from bftrainer.elastic.members import patience
from bftrainer.elastic.members.group import Group, GroupBroken
from bftrainer.elastic.members.membership import Leave, Membership, Published
from bftrainer.elastic.members.patience import Occupied, Patience
from tests.support.agent_end import AgentEnd, agent_of, until
from tests.support.two_ranks import on_two_ranks

ALONE = {"members": ["a"], "leaving": []}
CPU = torch.device("cpu")


@pytest.fixture
def agent_and_membership(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[AgentEnd, Membership]]:
    with agent_of(monkeypatch, tmp_path) as (agent, orders):
        membership = Membership(orders, CPU, Patience())
        membership.channel.start()
        yield agent, membership


def test_an_older_membership_than_the_last_is_ignored(
    agent_and_membership: tuple[AgentEnd, Membership],
) -> None:
    agent, membership = agent_and_membership
    agent.say("regroup", generation=5, **ALONE)
    until(lambda: membership.offer(1, (0,)) == 5)
    agent.say("regroup", generation=4, members=[], leaving=["a"])
    with pytest.raises(AssertionError):
        until(lambda: membership.offer(1, (0,)) != 5, timeout_s=0.3)
    agent.say("regroup", generation=5, members=[], leaving=["a"])
    agent.say("regroup", generation=6, **ALONE)
    until(lambda: membership.offer(1, (0,)) != 5)
    assert membership.next(1).generation == 6
    assert not membership.dissolved


def test_none_leaves_with_a_state_that_a_member_that_stays_is_receiving(
    agent_and_membership: tuple[AgentEnd, Membership],
) -> None:
    agent, membership = agent_and_membership
    membership._entered = Group(4, 0, 2), Published(4, ("a", "b"), ())
    agent.say("regroup", generation=5, members=["b"], leaving=["a"])
    until(lambda: membership.offer(4, (0, 1)) == 5)
    assert membership.offer(4, (0,)) == 4, "b is receiving it"
    agent.say("regroup", generation=6, members=[], leaving=["a", "b"])
    until(lambda: membership.offer(4, (0,)) == 6)


def test_entries_of_another_generation_are_dropped(
    agent_and_membership: tuple[AgentEnd, Membership],
) -> None:
    agent, membership = agent_and_membership

    def said(generation: int) -> None:
        value = base64.b64encode(b"x").decode()
        agent.say("kv", generation=generation, key=f"of {generation}", value=value)

    agent.say("regroup", generation=5, members=["a", "b"], leaving=[])
    until(lambda: any(m["type"] == "kv" for m in agent.hear()))  # it forms a group
    store = membership._rendezvous
    assert store is not None
    for generation in (4, 6, 5):
        said(generation)
    until(lambda: "of 5" in store.entries())
    assert not {"of 4", "of 6"} & store.entries().keys()
    agent.say("regroup", generation=6, **ALONE)  # calls the rendezvous off


def test_a_generation_that_has_been_overtaken_cannot_be_entered(
    agent_and_membership: tuple[AgentEnd, Membership],
) -> None:
    agent, membership = agent_and_membership
    agent.say("regroup", generation=5, **ALONE)
    until(lambda: membership.offer(1, (0,)) == 5)
    agent.say("regroup", generation=6, **ALONE)
    until(lambda: membership.offer(1, (0,)) == 6)
    with pytest.raises(GroupBroken, match="generation 5 has been overtaken"):
        membership.switch(5)
    assert membership.switch(6).generation == 6


def test_a_group_that_lost_a_member_is_given_up(
    agent_and_membership: tuple[AgentEnd, Membership],
) -> None:
    agent, membership = agent_and_membership
    agent.say("regroup", generation=5, **ALONE)
    group = membership.next(1)
    agent.say("regroup", generation=6, **ALONE)  # the same once more: it is broken for a member
    until(lambda: group.failure is not None)
    assert "generation 6" in str(group.failure)


def test_a_group_of_which_a_member_does_not_come_counts_as_broken(
    agent_and_membership: tuple[AgentEnd, Membership], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else those that come would wait for the next one, which nobody publishes."""
    monkeypatch.setattr(members_group, "FORM_TIMEOUT_S", 0.2)
    agent, _ = agent_and_membership
    agent.say("regroup", generation=5, members=["a", "b"], leaving=[])
    told: list[dict[str, object]] = []

    def is_told() -> bool:
        told.extend(m for m in agent.hear() if m["type"] == "broken")
        return bool(told)

    until(is_told)
    assert told[0]["generation"] == 5 and "within 0.2 s" in str(told[0]["reason"])


@pytest.mark.parametrize("order", ["leaving", "stop"])
def test_a_worker_that_waits_is_told_to_leave(
    agent_and_membership: tuple[AgentEnd, Membership], order: str
) -> None:
    agent, membership = agent_and_membership
    left = threading.Event()

    def wait() -> None:
        with pytest.raises(Leave):
            membership.next(1)
        left.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    if order == "stop":
        agent.say("stop")
    else:
        agent.say("regroup", generation=5, members=["b"], leaving=["a"])
    assert left.wait(20)
    waiter.join()
    assert membership.dissolved is (order == "stop")


def test_those_that_join_learn_that_a_member_is_busy(
    agent_and_membership: tuple[AgentEnd, Membership],
) -> None:
    agent, membership = agent_and_membership

    def told() -> list[tuple[int, bool]]:
        return [(m["generation"], m["seconds"] > 50) for m in agent.hear() if m["type"] == "busy"]

    agent.say("regroup", generation=5, **ALONE)
    until(lambda: membership.offer(1, (0,)) == 5)
    membership.busy(60.0)
    agent.say("regroup", generation=6, **ALONE)
    until(lambda: told() == [(5, True), (6, True)])
    membership.busy(0.0)
    agent.say("regroup", generation=7, **ALONE)
    until(lambda: membership.offer(1, (0,)) == 7)
    assert told() == [(5, True), (6, True), (6, False)]


def test_a_member_that_is_busy_is_waited_for(
    agent_and_membership: tuple[AgentEnd, Membership], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, membership = agent_and_membership
    now = [1000.0]
    monkeypatch.setattr(patience, "monotonic", lambda: now[0])
    waits = membership._patience

    def over(at: float) -> bool:
        now[0] = at
        return waits.is_over(1000.0)

    assert [over(1119.0), over(1121.0)] == [False, True]
    now[0] = 1010.0
    agent.say("busy", trainer=1, node="b", seconds=500.0)
    until(lambda: waits._busy)
    assert [over(1509.0), over(1629.0), over(1631.0)] == [False, False, True], "for so long at most"
    now[0] = 1200.0
    waits.heard("b", 0.0)
    assert [over(1319.0), over(1321.0)] == [False, True], "from its end on"
    waits.heard("b", 500.0)
    waits.keep(["a"])
    assert over(1700.0), "it is lost"


def test_what_takes_a_moment_is_not_told() -> None:
    told: list[float] = []
    occupied = Occupied(told.append, timeout_s=0.04)
    occupied.begin(9.0)
    until(lambda: told == [9.0])
    occupied.end()
    assert told == [9.0, 0.0]
    short = Occupied(told.append, timeout_s=1000.0)
    short.begin(9.0)
    short.end()
    assert told == [9.0, 0.0]


@pytest.mark.parametrize("busy", [True, False])
def test_an_exchange_ends_when_a_member_that_is_not_busy_says_nothing(busy: bool) -> None:
    done = threading.Event()

    def exchange(group: Group) -> str:
        if group.rank == 1:
            done.wait(2.5 if busy else 60.0)
        else:
            group.patience = Patience(0.2)
            group.patience.heard("b", 60.0 if busy else 0.0)
        try:
            group.all_reduce(torch.ones(1))
        except GroupBroken as error:
            return str(error)
        finally:
            done.set()
        return ""

    one, _ = on_two_ranks(exchange)
    assert one == "" if busy else "with run.pause()" in one
