"""What the daemon answers while its store stands still, and how answers with many rows are bounded."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bftrainer.api.callers import NOBODY, Caller, Callers
from bftrainer.api.client import Client, DaemonError
from bftrainer.api.errors import LateError
from bftrainer.api.listing import LEFT_OUT, NEXT, WAITING_LEFT_OUT
from bftrainer.api.routes import users_application
from bftrainer.api.transport.admission import BusyError
from bftrainer.daemon import lanes
from bftrainer.daemon.answers.outlooks import NO_END, Outlooks
from bftrainer.daemon.answers.views.trainers import LISTED_METRICS
from bftrainer.daemon.daemon import Daemon
from bftrainer.engine.queueing.waiting import Shortage
from bftrainer.engine.restore import restore
from bftrainer.model.actions import Ended
from bftrainer.model.events import NodesChanged, TrainerCancelled
from bftrainer.model.trainer import Points, Trainer, TrainerSpec, TrainerStatus
from bftrainer.store.sql import SqlStore
from bftrainer.testing.memory import Machine, MemoryScheduler
from bftrainer.testing.store import PAUSE, PROGRESS, end
from tests.support.nodes_world import settings_in
from tests.support.serving import serving

SPEC = TrainerSpec(name="t", command=("python", "train.py"), n_min=1, n_max=2, samples=100)
ADMIN, ANN, BOB = Caller("root", 0, admin=True), Caller("ann", 1), Caller("bob", 2)
WAITING = 30


class StuckStore(SqlStore):
    """A store whose reads take until `goes_on` is set, as over a file system that hangs."""

    goes_on: threading.Event

    def _transaction(self, *arguments: Any) -> Any:
        self.goes_on.wait(60)
        return super()._transaction(*arguments)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """Bob's last trainer has the only node, and one has ended; 30 of Ann and Bob wait."""
    own = settings_in(tmp_path)
    monkeypatch.setattr("bftrainer.daemon.answers.trainers.LISTED", 10)
    monkeypatch.setattr(lanes, "READ_S", 60.0)
    StuckStore.goes_on = threading.Event()
    StuckStore.goes_on.set()
    store = StuckStore(own.database)
    end(store, store.submit(replace(SPEC, name="over", user="ann"), 0.0), 0.5)
    trainers = []
    for n in range(2, WAITING + 3):
        spec = replace(SPEC, name=f"t{n}", user=("ann", "bob")[n % 2])
        id_ = store.submit(replace(spec, user="bob" if n == WAITING + 2 else spec.user), float(n))
        trainers.append(Trainer(id=id_, spec=spec, submitted_at=float(n)))
    last = trainers.pop()
    last = replace(last, spec=replace(last.spec, user="bob"), nodes=frozenset({"n1"}), members=("n1",))
    made = Daemon(own, MemoryScheduler(Machine({"n1"}), lambda: 0.0), store)
    made.load_index()
    made.runner.state = restore(replace(own.engine, max_parallel=1), frozenset({"n1"}), [last, *trainers])
    yield made
    StuckStore.goes_on.set()
    made.lanes.close()
    store.close()


def stand_still(daemon: Daemon) -> None:
    """From now on the store does not answer, and nobody waits long for it."""
    StuckStore.goes_on.clear()
    lanes.READ_S = 0.05


def page(daemon: Daemon, caller: Caller, **how: int) -> tuple[list[int], dict[str, str]]:
    told = {"ended": 0, "skip": 0, "after": 0, **how}
    found = asyncio.run(daemon.service.trainers(caller, told["ended"], told["skip"], told["after"]))
    return [t["id"] for t in json.loads(found.body)], dict(found.headers)


def test_what_needs_no_disk_is_answered_while_the_store_stands_still(daemon: Daemon) -> None:
    stand_still(daemon)
    status = daemon.service.status(ADMIN)
    assert status["trainers"] == {"waiting": 30, "running": 1, "completed": 1}
    assert [t["name"] for t in status["running"]] == ["t32"]
    assert daemon.service.liveness_problems() == []
    text = asyncio.run(daemon.service.metrics(NOBODY)).body.decode()
    assert 'bftrainer_trainers{status="waiting"} 30.0' in text
    assert len(page(daemon, ADMIN)[0]) == 11, "a list without those that ended"
    for name, id_ in (("t4", 4), ("6", 6)):
        assert asyncio.run(daemon.service.cancel(ANN, name))["id"] == id_
    ordered = asyncio.run(daemon.mailbox.batch())
    assert [e.trainer for e in ordered if isinstance(e, TrainerCancelled)] == [4, 6]


def test_the_status_asks_only_those_that_run_how_long_they_take(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Shortage, "of", lambda _: pytest.fail("why others wait takes long, on the event loop")
    )
    assert len(daemon.service.status(ADMIN)["running"]) == 1


def test_who_gives_an_order_has_nothing_estimated_in_the_event_loop(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, what in ((Shortage, "of"), (Outlooks, "of")):
        monkeypatch.setattr(kind, what, lambda *_, **__: pytest.fail("that looks at all that wait"))
    assert asyncio.run(daemon.service.prioritise(ANN, "t4", 0.5))["priority"] == 0.5
    assert asyncio.run(daemon.service.cancel(ANN, "t4"))["id"] == 4


def test_what_needs_the_store_says_that_it_does_not_answer(daemon: Daemon) -> None:
    stand_still(daemon)

    async def ask() -> None:
        for asked in (
            daemon.service.trainers(ADMIN, 1, 0, 0),
            daemon.service.show(ADMIN, "t4"),
            daemon.service.cancel(BOB, "t4"),
            daemon.service.rows(ADMIN, "events", 10, None, None),
        ):
            with pytest.raises(LateError, match=r"from the store (takes more than|busy for) 0\.05 s"):
                await asked

    asyncio.run(ask())
    assert "reading" in daemon.service.readiness_problems()[-1]
    StuckStore.goes_on.set()
    lanes.READ_S = 60.0
    assert asyncio.run(daemon.service.show(ADMIN, "t4"))["id"] == 4


def test_a_list_that_is_refused_costs_the_loop_nothing(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "READS_WAITING", 4)  # one of a user
    StuckStore.goes_on.clear()

    async def ask() -> None:
        first = asyncio.create_task(daemon.service.trainers(ANN, 1, 0, 0))
        await asyncio.sleep(0)
        with monkeypatch.context() as patch:
            patch.setattr(type(daemon.service.known), "moment", lambda *_: pytest.fail("this takes long"))
            with pytest.raises(BusyError):
                await daemon.service.trainers(ANN, 1, 0, 0)
        StuckStore.goes_on.set()
        await first

    asyncio.run(ask())


def test_lists_and_status_have_the_first_metrics_of_a_trainer(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {f"accuracy_{n}": 0.5 for n in range(1000)}
    daemon.journal.begin(32)
    daemon.journal.progressed(replace(PROGRESS, trainer=32, metrics=many, warned=("a", "b" * 500)))
    (running,) = daemon.service.status(ADMIN)["running"]
    listed = json.loads(asyncio.run(daemon.service.trainers(BOB, 0, 0, 0)).body)[-1]
    assert len(running["metrics"]) == len(listed["metrics"]) == LISTED_METRICS
    shown = asyncio.run(daemon.service.show(BOB, "t32"))
    assert len(shown["metrics"]) == 1000
    assert (listed["warned"], shown["warned"]) == (["b" * 80], ["a", "b" * 500])
    monkeypatch.setattr("bftrainer.daemon.answers.service.SHOWN", 0)
    status = daemon.service.status(ADMIN)
    assert (status["running"], status["running_left_out"]) == ([], 1)


def test_an_end_that_the_store_does_not_have_yet_is_told(daemon: Daemon) -> None:
    event = TrainerCancelled(time=50.0, trainer=4)
    daemon.index.took(event, Ended(trainer=4, status=TrainerStatus.CANCELLED, reason="by ann"), None)
    ids, headers = page(daemon, ANN, ended=5)
    assert (ids[:4], headers[LEFT_OUT]) == ([1, 2, 4, 6], "0")
    shown = asyncio.run(daemon.service.show(ANN, "t4"))
    assert (shown["status"], shown["reason"], shown["ended_at"]) == ("cancelled", "by ann", 50.0)


def test_of_those_that_wait_an_answer_has_some_and_leads_to_the_next(daemon: Daemon) -> None:
    ids, headers = page(daemon, ADMIN, ended=5)
    assert ids == [1, *range(2, 12), 32], "that which holds a node is in the first, whenever it arrived"
    assert headers == {LEFT_OUT: "0", WAITING_LEFT_OUT: "20", NEXT: "11"}
    ids, headers = page(daemon, ADMIN, after=11)
    assert (ids, headers[WAITING_LEFT_OUT], headers[NEXT]) == ([*range(12, 22)], "10", "21")
    ids, headers = page(daemon, ADMIN, after=21)
    assert (ids, headers[WAITING_LEFT_OUT]) == ([*range(22, 32)], "0") and NEXT not in headers
    ids, headers = page(daemon, ANN)
    assert (ids, headers[WAITING_LEFT_OUT]) == ([*range(2, 22, 2)], "5")


def test_clients_follow_all_pages(daemon: Daemon) -> None:
    async def ask(**how: Any) -> Any:
        socket = daemon.settings.current.socket
        async with serving(users_application(daemon.service, Callers(), max_request=1000), socket):
            return await asyncio.to_thread(Client(socket).trainers, 5, **how)

    found = asyncio.run(ask(every=True))
    assert ([t["id"] for t in found.trainers], found.waiting_left_out) == ([*range(1, 33)], 0)
    found = asyncio.run(ask())
    assert (len(found.trainers), found.waiting_left_out, found.ended_left_out) == (12, 20, 0)
    stand_still(daemon)
    with pytest.raises(DaemonError, match="takes more than"):
        asyncio.run(ask())


def test_an_answer_of_rows_ends_where_it_is_full(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    store = daemon.service.store
    wide = frozenset(f"node{n:04}" for n in range(400))  # a row of about 5 kB
    for n in range(60):
        store.record(NodesChanged(time=float(n), joined=wide), [], None, [], None, frozenset())
    monkeypatch.setattr("bftrainer.daemon.answers.history.ANSWER_BYTES", 100_000)

    async def rows(limit: int, before: int | None) -> tuple[list[int], str | None]:
        found = await daemon.service.rows(ADMIN, "events", limit, None, before)
        assert len(found.body) <= 100_000
        return [row["id"] for row in json.loads(found.body)], found.headers.get(NEXT)

    every, before, pages = list[int](), None, 0
    while pages == 0 or before is not None:
        ids, to = asyncio.run(rows(1000, before))
        every, before, pages = [*ids, *every], int(to) if to else None, pages + 1
    assert every == [row["id"] for row in store.rows("events", None)] and pages > 2
    assert asyncio.run(rows(5, None)) == (every[-5:], None)


def test_a_row_that_is_larger_than_an_answer_comes_alone(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = daemon.service.store
    for n in range(3):
        store.record(
            NodesChanged(time=float(n), joined=frozenset({"n" * 999})), [], None, [], None, frozenset()
        )
    monkeypatch.setattr("bftrainer.daemon.answers.history.ANSWER_BYTES", 1)
    found = asyncio.run(daemon.service.rows(ADMIN, "events", 2, None, None))
    assert len(json.loads(found.body)) == 1 and NEXT in found.headers


def test_why_trainers_wait_and_when_one_ends_is_told(daemon: Daemon) -> None:
    def shown(caller: Caller, name: str) -> Any:
        return asyncio.run(daemon.service.show(caller, name))

    daemon.journal.begin(32)
    daemon.journal.progressed(replace(PROGRESS, trainer=32, samples=40, rate=5.0))
    assert shown(ANN, "t4")["reason"] == "all 1 places are taken (max_parallel)"
    policy = replace(daemon.runner.state.settings, max_parallel=None)
    daemon.runner.state = replace(daemon.runner.state, settings=policy)
    assert shown(BOB, "t3")["reason"] == "needs 1 node, 0 free: held by t32 (1 node, about 12 s left)"
    assert shown(ANN, "t4")["reason"] == "needs 1 node, 0 free: held by a trainer of another user"
    assert shown(BOB, "t32")["ends_in_s"]["likely"] == 12.0
    assert shown(BOB, "t32")["ends_in_s"]["unknown"] == ""
    assert shown(ANN, "t4")["ends_in_s"] == {
        **dict.fromkeys(("early", "likely", "late", "waits")),
        "unknown": NO_END,
    }
    assert shown(ANN, "over")["ends_in_s"] is None


@pytest.mark.parametrize(
    ("samples", "of", "work", "likely"),
    [
        (None, 80, 80, 8.0),
        (None, None, None, None),
        (100, 80, 80, 8.0),  # the script will end before
        (100, 800, 100, 12.0),
        (None, 39, None, None),  # it has trained on more already: made up
    ],
)
def test_what_a_script_says_of_its_whole_training_counts_like_the_specs_work(
    daemon: Daemon, samples: int | None, of: int | None, work: int | None, likely: float | None
) -> None:
    state = daemon.runner.state
    trainer = replace(state.active[32], spec=replace(state.active[32].spec, samples=samples))
    daemon.runner.state = replace(state, active={32: trainer})
    daemon.index.load([replace(s, work=samples) for s in daemon.index.of(None) if s.id == 32], {})
    daemon.journal.begin(32)
    daemon.journal.progressed(replace(PROGRESS, trainer=32, samples=40, rate=5.0, of=of))
    (found,) = json.loads(asyncio.run(daemon.service.trainers(BOB, 0, 0, 0)).body)
    ends = found["ends_in_s"]
    assert (found["work"], ends and ends["likely"]) == (work, likely)


def test_trainers_that_wait_are_told_when_they_will_probably_end(daemon: Daemon) -> None:
    def shown(caller: Caller, name: str) -> Any:
        return asyncio.run(daemon.service.show(caller, name))["ends_in_s"]

    def all_of_bob(t: Trainer, curve: Points | None) -> Trainer:
        return replace(t, spec=replace(t.spec, user="bob", curve=curve))

    def with_curve(curve: Points | None) -> None:
        every = [all_of_bob(t, curve) for t in daemon.runner.state.trainers.values()]
        policy = replace(daemon.runner.state.settings, max_parallel=1)
        daemon.runner.state = restore(policy, frozenset({"n1"}), every)

    daemon.journal.begin(32)
    daemon.journal.progressed(replace(PROGRESS, trainer=32, samples=40, rate=5.0))
    with_curve(((1, 2.0), (2, 4.0)))
    assert shown(ADMIN, "t2") == {"early": 50.0, "likely": 62.0, "late": 62.0, "waits": 12.0, "unknown": ""}
    assert shown(ADMIN, "t3")["likely"] == 112.0, "after t2"
    listed = asyncio.run(daemon.service.trainers(ADMIN, 0, 0, 0))
    told = {t["name"]: t["ends_in_s"]["likely"] for t in json.loads(listed.body)}
    assert (told["t32"], told["t2"], told["t11"]) == (12.0, 62.0, 512.0)
    with_curve(None)
    assert shown(ADMIN, "t2")["waits"] == 12.0
    assert shown(ADMIN, "t2")["unknown"].startswith(
        "its speed is not known: its program has not run here yet"
    )
    assert shown(ADMIN, "t2")["early"] is None, "no figure is made up"
    daemon.runner.state = replace(daemon.runner.state, draining=True)
    assert "not known: the site gives nodes to no trainer" in shown(ADMIN, "t2")["unknown"]


def test_details_have_each_rescale_once(daemon: Daemon) -> None:
    for node in ("n1", "n2"):
        daemon.service.store.pause(replace(PAUSE, trainer=32, generation=5, node=node))
    assert [r["told"] for r in asyncio.run(daemon.service.show(BOB, "t32"))["pauses"]] == [2]
