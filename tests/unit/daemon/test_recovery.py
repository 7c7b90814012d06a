"""What a daemon finds when it starts again, over a scheduler in memory; no agent ever comes."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bftrainer.api.callers import Caller
from bftrainer.api.errors import TooManyError
from bftrainer.daemon.daemon import Daemon
from bftrainer.daemon.recovery import missed, with_heard
from bftrainer.engine.state import State
from bftrainer.launch.job import WorkerView
from bftrainer.model.events import Drain, Event, Resync, WorkerLost, WorkersReady
from bftrainer.model.machine import Operation, Pilot
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import Trainer
from bftrainer.store.sql import SqlStore
from bftrainer.testing.memory import Machine, MemoryScheduler
from bftrainer.testing.store import SPEC
from bftrainer.wire.phases import Phase
from tests.support.engine_world import step_of
from tests.support.nodes_world import run, settings_in
from tests.support.waiting import until_true


class Site:
    """A machine in memory and the store of its daemons, with a clock that stands still."""

    def __init__(self, folder: Path) -> None:
        self.settings = settings_in(folder, reconnect_s=1e-9)
        self.machine = Machine({f"n{i}" for i in range(3)})
        self.scheduler = MemoryScheduler(self.machine, self.now)
        self.store = SqlStore(self.settings.database)

    def now(self) -> float:
        return 1e9

    def behind_s(self) -> float:
        return 0.0

    def daemon(self) -> Daemon:
        return Daemon(self.settings, self.scheduler, self.store, self)

    def held(self) -> set[str]:
        return {pilot.node for pilot in self.machine.pilots}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.store.close()


def test_a_restart_changes_nothing_about_a_pause(site: Site) -> None:
    async def scenario() -> None:
        paused = site.daemon()
        paused.orders.administer(Operation.PAUSED)
        await paused.journal.close()
        again = site.daemon()
        await again.recovery.load()
        await again.recovery.run(again.agents)
        assert again.nodes.state.operation is Operation.PAUSED
        assert again.agents.is_open() and not again.recovery.active

    run(scenario)


@pytest.mark.parametrize(
    ("stored", "found", "events"),
    [("draining", Operation.DRAINING, [Drain(time=1e9)]), ("unheard of", Operation.RUNNING, [])],
)
def test_what_the_site_allowed_last_holds_if_it_can_be_read(
    site: Site, stored: str, found: Operation, events: list[Drain]
) -> None:
    async def scenario() -> None:
        site.store.put("operation", stored)
        daemon = site.daemon()
        await daemon.recovery.load()
        await daemon.recovery.run(daemon.agents)
        assert daemon.nodes.state.operation is found
        assert list(daemon.mailbox.waiting()) == events

    run(scenario)


def test_pilots_that_run_are_taken_over_though_the_scheduler_does_not_know_its_nodes_yet(site: Site) -> None:
    async def scenario() -> None:
        site.machine.pilots = [Pilot(tag="a", node="n0"), Pilot(tag="b", node="n1", pending="Resources")]
        site.machine.why = dict.fromkeys(("n0", "n1", "n2"), "unknown")
        daemon = site.daemon()
        await daemon.recovery.survey()
        assert site.held() == {"n0"} and daemon.pilots.held.keys() == {"n0"}

    run(scenario)


def test_pilots_of_an_earlier_daemon_that_nobody_needs_are_ended(site: Site) -> None:
    async def scenario() -> None:
        site.machine.pilots = [Pilot(tag="old", node="n0"), Pilot(tag="twin", node="n0")]
        daemon = site.daemon()
        await daemon.recovery.load()
        await daemon.recovery.run(daemon.agents)
        await daemon.nodes.background.wait()
        assert site.held() == set() and sorted(site.machine.cancelled) == ["old", "twin"]

    run(scenario)


def test_a_scheduler_that_does_not_answer_yet_is_asked_again(site: Site) -> None:
    site.settings = site.settings.model_copy(update={"poll_s": 0.001})

    async def scenario() -> None:
        site.scheduler.down = "no contact"
        daemon = site.daemon()
        told: Callable[..., None] = daemon.telemetry.condition

        def condition(part: str, reason: str, detail: str = "") -> None:
            told(part, reason, detail)
            site.scheduler.down = ""

        daemon.telemetry.condition = condition  # type: ignore[assignment, method-assign]
        await daemon.recovery.survey()
        assert daemon.telemetry.troubles.texts(details=True) == ["cannot be asked yet: no contact"]

    run(scenario)


def test_agents_are_waited_for_and_their_pilots_are_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.settings = site.settings.model_copy(update={"reconnect_s": 60.0})
    asked: list[str] = []

    def connected(node: str) -> bool:
        asked.append(node)
        return len(asked) > 3

    async def scenario() -> None:
        site.machine.pilots = [Pilot(tag="a", node="n0"), Pilot(tag="b", node="n1")]
        daemon = site.daemon()
        monkeypatch.setattr(daemon.pilots, "connected", connected)
        await daemon.recovery.load()
        await daemon.recovery.run(daemon.agents)
        assert daemon.pilots.held.keys() == {"n0", "n1"} and not site.machine.cancelled

    run(scenario)


def test_the_store_is_never_read_on_the_event_loop(site: Site) -> None:
    site.store.submit(SPEC, 1.0)
    store, asked = site.store, dict[str, str]()

    class Watched:
        def __getattr__(self, name: str) -> Any:
            def ask(*args: object) -> Any:
                asked[name] = threading.current_thread().name
                return getattr(store, name)(*args)

            return ask

    async def scenario() -> None:
        daemon = site.daemon()
        assert daemon.recovery.store is store
        daemon.recovery.store = Watched()  # type: ignore[assignment]
        await daemon.recovery.load()
        await daemon.recovery.run(daemon.agents)
        daemon.runner.close()

    run(scenario)
    assert asked.keys() == {"unfinished", "get"}
    assert all(thread.startswith("engine") for thread in asked.values()), asked


def test_while_the_scheduler_does_not_answer_bounds_hold_and_the_disk_is_watched(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(tempfile.mkdtemp())  # a socket's path must be short
    site.settings = site.settings.model_copy(
        update={
            "socket": folder / "daemon.sock",
            "min_free_mb": 10**12,
            "max_trainers_per_user": 3,
            "poll_s": 60.0,
        }
    )
    site.scheduler.down = "no contact"
    site.store.submit(replace(SPEC, user="ann"), 1.0)  # by the daemon before
    ann = Caller("ann", 1001)

    async def scenario() -> None:
        daemon = site.daemon()
        later = 0.0
        monkeypatch.setattr(daemon.submissions, "_now", lambda: later)
        task = asyncio.create_task(daemon.run())
        await until_true(lambda: daemon.telemetry.troubles.has("disk"))
        assert daemon.recovery.active and not task.done(), task
        assert any("min_free_mb" in text for text in daemon.service.readiness_problems())
        for name in ("b", "c"):
            await daemon.service.submit(
                ann, f"name: {name}\ncommand: [run]\nnodes: {{max: 4}}\n", "x", "/home", None
            )
        later = 300.0
        with pytest.raises(TooManyError, match="3 of your trainers have not ended"):
            await daemon.service.submit(ann, "name: c\ncommand: [run]\nnodes: {max: 4}\n", "x", "/home", None)
        assert daemon.recovery.active and not task.done(), task
        begun = {task.get_name() for task in asyncio.all_tasks()}
        assert begun >= {"clock", "disk", "store", "bounds"}
        daemon.stop()
        await task
        running = {task.get_name() for task in asyncio.all_tasks()}
        assert not running & {"clock", "disk", "store", "bounds"}

    run(scenario)
    shutil.rmtree(folder)


# --- what happened while no daemon ran -----------------------------------------------------------

MEMBERS = Trainer(
    id=1,
    spec=SPEC,
    submitted_at=0.0,
    generation=5,
    published=4,
    nodes=frozenset({"n0", "n1"}),
    members=("n0",),
    started={"n0": 2, "n1": 5},
)
MEMBER, STARTING = WorkerView(2, Phase.MEMBER, 4), WorkerView(5)
LOST = "gone after a restart"


@pytest.mark.parametrize(
    ("views", "events"),
    [
        ({"n0": MEMBER, "n1": STARTING}, []),
        (
            {"n0": MEMBER, "n1": WorkerView(5, Phase.READY)},
            [WorkersReady(time=9.0, trainer=1, generation=5, nodes=frozenset({"n1"}))],
        ),
        (
            {"n0": WorkerView(2, Phase.MEMBER, 6), "n1": WorkerView(5, Phase.MEMBER, 6)},
            [
                WorkersReady(time=9.0, trainer=1, generation=5, nodes=frozenset({"n1"})),
                Resync(time=9.0, trainer=1, generation=4),
            ],
        ),
        ({"n0": MEMBER}, [WorkerLost(time=9.0, trainer=1, node="n1", generation=5, reason=LOST)]),
        (
            {"n0": WorkerView(1, Phase.MEMBER, 4), "n1": STARTING},
            [WorkerLost(time=9.0, trainer=1, node="n0", generation=2, reason=LOST)],
        ),
        (
            {"n0": MEMBER, "n1": WorkerView(4, Phase.READY)},
            [WorkerLost(time=9.0, trainer=1, node="n1", generation=5, reason=LOST)],
        ),
        (
            {"n0": WorkerView(2, Phase.MEMBER, 3), "n1": STARTING},
            [Resync(time=9.0, trainer=1, generation=4)],
        ),
        ({"n0": WorkerView(2, Phase.FINISHED, 3), "n1": STARTING}, []),
    ],
    ids=[
        "all",
        "ready",
        "both joined since",
        "no worker",
        "older member",
        "older newcomer",
        "joined an older one",
        "finished",
    ],
)
def test_what_is_not_as_it_was_stored_is_told_to_the_engine(
    views: dict[str, WorkerView], events: list[Event]
) -> None:
    state = State(settings=EngineSettings(), active={1: MEMBERS})
    assert missed(state, lambda _: views, frozenset({"n0", "n1", "n2"}), 9.0) == events


def test_after_a_crash_with_a_full_disk_no_generation_comes_twice() -> None:
    """The store lacks a start and a membership: workers and agents would take new ones for those."""
    state = State(settings=EngineSettings(), pool=frozenset({"n0", "n1"}), active={1: MEMBERS})
    views = {"n0": WorkerView(2, Phase.MEMBER, 8), "n1": WorkerView(7, Phase.STARTING)}
    state = with_heard(state, lambda _: views)
    given = []
    for event in missed(state, lambda _: views, state.pool, 9.0):
        after = step_of(state, event)
        state, given = after.state, [*given, *after.actions]
    assert [(type(a).__name__, a.generation) for a in given] == [("StartWorker", 9), ("Regroup", 10)]
    assert with_heard(state, lambda _: {}) == state
