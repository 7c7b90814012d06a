"""The order in which events reach the engine."""

from __future__ import annotations

import asyncio

from bftrainer.daemon.mailbox import AT_ONCE, Mailbox
from bftrainer.model.events import (
    Event,
    GpusChanged,
    NodesChanged,
    PolicyChanged,
    PriorityChanged,
    Resync,
    TrainerCancelled,
    TrainerSubmitted,
)
from bftrainer.model.trainer import TrainerSpec

SPEC = TrainerSpec(name="t", command=("true",), n_min=1, n_max=1, user="other")


class Clock:
    def now(self) -> float:
        return 100.0


def cancelled(time: float, trainer: int) -> TrainerCancelled:
    return TrainerCancelled(time=time, trainer=trainer)


def test_events_that_wait_together_come_by_time_then_priority_then_arrival() -> None:
    mailbox = Mailbox(Clock())
    policy, nodes = PolicyChanged(time=50.0), NodesChanged(time=50.0)
    for event in (cancelled(60.0, 2), policy, cancelled(50.0, 1), cancelled(50.0, 0), nodes):
        mailbox.emit(event)
    expected: list[Event] = [nodes, cancelled(50.0, 1), cancelled(50.0, 0), policy, cancelled(60.0, 2)]
    assert mailbox.waiting() == expected
    assert mailbox.waiting() == []


def test_of_a_trainers_cancellations_one_waits() -> None:
    mailbox = Mailbox(Clock())
    for n in range(1000):
        mailbox.emit(cancelled(float(n) / 100, n % 2))
    assert mailbox.waiting() == [cancelled(0.0, 0), cancelled(0.01, 1)]
    mailbox.emit(cancelled(20.0, 0))
    assert mailbox.waiting() == [cancelled(20.0, 0)], "the one before may have come to nothing"


def test_of_a_trainers_priorities_the_last_one_waits() -> None:
    mailbox = Mailbox(Clock())
    for n in range(1000):
        mailbox.emit(PriorityChanged(time=float(n) / 100, trainer=n % 2, to=float(n)))
    first, second = mailbox.waiting()
    assert (first, second) == (
        PriorityChanged(time=0.0, trainer=0, to=998.0),
        PriorityChanged(time=0.01, trainer=1, to=999.0),
    )
    mailbox.emit(PriorityChanged(time=20.0, trainer=0, to=1.0))
    assert mailbox.waiting() == [PriorityChanged(time=20.0, trainer=0, to=1.0)]


def test_an_event_of_the_future_comes_when_it_is_due() -> None:
    async def scenario() -> None:
        mailbox = Mailbox(Clock())
        mailbox.emit(Resync(time=100.05, trainer=1, generation=1))
        mailbox.emit(cancelled(100.0, 1))
        assert [type(event) for event in mailbox.waiting()] == [TrainerCancelled]
        async with asyncio.timeout(10):
            assert [type(event) for event in await mailbox.batch()] == [Resync]

    asyncio.run(scenario())


def test_it_is_idle_only_when_the_last_batch_has_been_acted_on() -> None:
    async def scenario() -> None:
        mailbox = Mailbox(Clock())
        assert mailbox.idle
        mailbox.emit(cancelled(1.0, 1))
        assert not mailbox.idle
        assert len(await mailbox.batch()) == 1
        assert not mailbox.idle, "the batch is in work"
        more = asyncio.create_task(mailbox.batch())
        await asyncio.sleep(0)
        assert mailbox.idle
        mailbox.emit(cancelled(1.0, 2))
        mailbox.emit(cancelled(1.0, 1))
        assert [event.trainer for event in await more] == [2, 1]  # type: ignore[union-attr]

    asyncio.run(scenario())


def test_nodes_do_not_wait_for_all_that_a_user_has_ordered() -> None:
    async def scenario() -> None:
        mailbox = Mailbox(Clock())
        for n in range(100):
            mailbox.emit(cancelled(1.0, n))
        assert await mailbox.batch() == [cancelled(1.0, n) for n in range(AT_ONCE)]
        left = NodesChanged(time=2.0, left=frozenset({"n1"}))
        mailbox.emit(left)
        assert (await mailbox.batch())[0] == left and not mailbox.idle
        taken = 2 * AT_ONCE - 1
        while taken < 100:
            found = await mailbox.batch()
            assert found == [cancelled(1.0, n) for n in range(taken, taken + len(found))]
            taken += len(found)

    asyncio.run(scenario())


def test_what_is_known_of_gpus_goes_before_their_nodes() -> None:
    async def scenario() -> None:
        mailbox = Mailbox(Clock())
        for n in range(100):
            mailbox.emit(cancelled(1.0, n))
        gpus = GpusChanged(time=2.0, nodes={"n1": 2})
        joined = NodesChanged(time=2.0, joined=frozenset({"n1"}))
        mailbox.emit(joined)
        mailbox.emit(gpus)
        assert (await mailbox.batch())[:2] == [gpus, joined]

    asyncio.run(scenario())


def test_a_users_order_waits_for_few_of_what_another_has_ordered() -> None:
    """A study of a thousand trials that is cancelled held up all others until its last trial was."""

    async def scenario() -> None:
        users = {trainer: "bulk" if trainer < 1000 else f"user{trainer}" for trainer in range(1010)}
        mailbox = Mailbox(Clock())
        mailbox.user_of = lambda trainer: users[trainer]
        for n in range(1000):
            mailbox.emit(cancelled(1.0, n))
        await mailbox.batch()
        for n in range(1000, 1010):
            mailbox.emit(cancelled(2.0, n))
        taken = [event for _ in range(4) for event in await mailbox.batch()]
        assert {event for event in taken if users[event.trainer] != "bulk"} == {
            cancelled(2.0, n) for n in range(1000, 1010)
        }

    asyncio.run(scenario())


def test_users_take_turns_however_old_what_others_wait_for_is() -> None:
    async def scenario() -> None:
        users = {trainer: f"bulk{trainer % 50}" if trainer < 1000 else "other" for trainer in range(1001)}
        mailbox = Mailbox(Clock())
        mailbox.user_of = lambda trainer: users[trainer]
        for n in range(1000):
            mailbox.emit(cancelled(1.0, n))
        await mailbox.batch()
        mailbox.emit(cancelled(2.0, 1000))
        before = 50 // AT_ONCE + 1
        assert cancelled(2.0, 1000) in [event for _ in range(before) for event in await mailbox.batch()]

    asyncio.run(scenario())


def test_a_trainer_is_submitted_before_it_is_cancelled() -> None:
    async def scenario() -> None:
        mailbox = Mailbox(Clock())
        mailbox.user_of = lambda trainer: "" if trainer == 7 else "bulk"
        for n in range(100, 200):
            mailbox.emit(cancelled(1.0, n))
        mailbox.emit(TrainerSubmitted(time=2.0, trainer=7, spec=SPEC))
        mailbox.emit(cancelled(2.5, 7))
        mailbox.emit(PolicyChanged(time=3.0))
        found = [event for _ in range(3) for event in await mailbox.batch()]
        own = [type(event) for event in found if getattr(event, "trainer", 0) == 7]
        assert own == [TrainerSubmitted, TrainerCancelled]

    asyncio.run(scenario())
