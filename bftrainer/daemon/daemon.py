"""The daemon: puts its parts together, and runs them until it is told to stop.

Every part is given what it uses, bottom-up: mailbox and journal, the agents' connections and the pilots,
launchers, the engine's runner, the nodes, and what users ask. After a crash, `recovery` makes store,
scheduler and agents agree.
"""

from __future__ import annotations

import asyncio
import json
import socket
import uuid
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial

from bftrainer.api.answers import Answers
from bftrainer.daemon.agents import AgentLink, AgentReports, devices_text
from bftrainer.daemon.backlog import Backlog
from bftrainer.daemon.clock import WallClock
from bftrainer.daemon.clock import watch as watch_clock
from bftrainer.daemon.disk import Disk
from bftrainer.daemon.earlier import Earlier
from bftrainer.daemon.evidence import Evidence
from bftrainer.daemon.exposition import Exposition
from bftrainer.daemon.history import History
from bftrainer.daemon.index import Index
from bftrainer.daemon.journal import Journal
from bftrainer.daemon.lanes import Lanes
from bftrainer.daemon.listeners import Listeners, hub_limits
from bftrainer.daemon.mailbox import Mailbox
from bftrainer.daemon.orders import Orders
from bftrainer.daemon.pruning import Pruning, keep_runs
from bftrainer.daemon.recovery import Recovery
from bftrainer.daemon.runner import Runner
from bftrainer.daemon.service import DaemonService
from bftrainer.daemon.studies import Studies
from bftrainer.daemon.study_service import StudyAnswers
from bftrainer.daemon.submissions import Submissions
from bftrainer.daemon.trainers import MB, Trainers
from bftrainer.daemon.writer import Writer
from bftrainer.launch.deadlines import Limits
from bftrainer.launch.job import Bounds
from bftrainer.launch.launchers import Launchers
from bftrainer.model.events import Drain, PolicyChanged
from bftrainer.model.trainer import TrainerSpec
from bftrainer.nodes.conduct import Conduct
from bftrainer.nodes.nodes import Nodes
from bftrainer.nodes.pilots import Pilots
from bftrainer.ports import Clock, Emit, Link, Scheduler, Store
from bftrainer.settings.live import LiveSettings, Refused
from bftrainer.settings.values import Settings
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.wire.hub import Hub
from bftrainer.wire.seal import load_key, of_pilot


class Daemon:
    """Runs until `stop` is called. The caller holds `settings.state_dir`: it belongs to one daemon at a time.

    `tcp` is a bound socket on which agents on other machines reach us.
    """

    def __init__(
        self,
        settings: Settings,
        scheduler: Scheduler,
        store: Store,
        clock: Clock | None = None,
        tcp: socket.socket | None = None,
    ) -> None:
        self.settings = own = LiveSettings(settings)
        self.clock = clock = clock or WallClock()
        self._scheduler, self._store = scheduler, store
        self._started_at = clock.now()
        self._stop = asyncio.Event()
        self.telemetry = Telemetry()
        self.mailbox = Mailbox(clock)
        self.journal = _journal(own, store, self.telemetry, clock)
        key = load_key(settings.state_dir / "key")
        self.hub = Hub(partial(of_pilot, key), partial(hub_limits, own))
        self.pilots = _pilots(settings, scheduler, key, clock, self.hub, self.telemetry, self._users)
        user_of = _as_user if settings.mode == "site" else _as_ourselves
        link = AgentLink(self.hub, self.pilots, user_of)
        emit = self.mailbox.emit
        self.launcher = _launchers(settings, store, clock, link, emit, self.journal, self.telemetry)
        self.index = Index()
        self.lanes = Lanes(own, self.telemetry)
        self.runner = Runner(self.mailbox, self.journal, self.launcher, own, self.telemetry, self.index)
        self.journal.late = self.index.reported
        self.nodes = Nodes(
            settings=own,
            clock=clock,
            scheduler=scheduler,
            pilots=self.pilots,
            link=link,
            workers=self.launcher,
            trainers=self.runner.trainers,
            curves=self.runner.curves,
            user_of=user_of,
            emit=self.mailbox.emit,
            telemetry=self.telemetry,
            main_started=self.journal.main_started,
        )
        self.runner.decided = self.nodes.hold.wake
        self.orders = Orders(self.journal, self.mailbox, self.launcher, self.nodes, clock)
        self.submissions = Submissions(own, self.telemetry, self.index.count)
        self.studies = self._studies(_store_id(store))
        self.recovery = self._recovery()
        self.agents = AgentReports(
            link, self.pilots, self.nodes.release, self.launcher, self.recovery.trainers_on, self.telemetry
        )
        self.hub.listen(self.agents)
        self.service = self._service()
        self.listeners = Listeners(
            settings=own, service=self.service, hub=self.hub, telemetry=self.telemetry, tcp=tcp
        )

    def _users(self) -> frozenset[str]:
        """The users with unfinished trainers."""
        state = self.runner.state
        return frozenset(t.spec.user for t in state.active.values()) | {u for _, u in state.waiting.users}

    def _recovery(self) -> Recovery:
        return Recovery(
            settings=self.settings,
            clock=self.clock,
            store=self._store,
            scheduler=self._scheduler,
            journal=self.journal,
            mailbox=self.mailbox,
            launcher=self.launcher,
            pilots=self.pilots,
            nodes=self.nodes,
            runner=self.runner,
            telemetry=self.telemetry,
        )

    def _service(self) -> DaemonService:
        own = self.settings
        known = Trainers(
            settings=self.settings,
            clock=self.clock,
            store=self._store,
            index=self.index,
            lanes=self.lanes,
            journal=self.journal,
            runner=self.runner,
            launcher=self.launcher,
        )
        return DaemonService(
            settings=self.settings,
            clock=self.clock,
            store=self._store,
            known=known,
            history=History(settings=self.settings, store=self._store, trainers=known, lanes=self.lanes),
            evidence=Evidence(
                settings=own,
                clock=self.clock,
                scheduler=self._scheduler,
                reserve=self.nodes.reserve,
                store=self._store,
                lane=self.lanes.rows,
                started_at=self._started_at,
            ),
            studies=self._study_answers(),
            lanes=self.lanes,
            earlier=Earlier(known=known, lanes=self.lanes, launcher=self.launcher),
            exposition=Exposition(self.telemetry, self.settings, self.lanes.memory),
            answers=Answers(
                lambda: own.current.max_answers_waiting_mb * MB,
                lambda: own.current.answer_timeout_s,
                self.telemetry.bounded,
            ),
            runner=self.runner,
            launcher=self.launcher,
            nodes=self.nodes.state,
            reserve=self.nodes.reserve,
            pilots=self.pilots,
            connected=self.hub.connected,
            devices=lambda node: devices_text(self.hub.devices(node)),
            orders=self.orders,
            submissions=self.submissions,
            recovering=lambda: self.recovery.active,
            telemetry=self.telemetry,
            started_at=self._started_at,
        )

    def _studies(self, store_id: str) -> Studies:
        return Studies(
            settings=self.settings,
            clock=self.clock,
            store=self._store,
            journal=self.journal,
            index=self.index,
            runner=self.runner,
            launcher=self.launcher,
            orders=self.orders,
            telemetry=self.telemetry,
            store_id=store_id,
        )

    def _study_answers(self) -> StudyAnswers:
        return StudyAnswers(
            settings=self.settings,
            store=self._store,
            lanes=self.lanes,
            runner=self.runner,
            studies=self.studies,
            submissions=self.submissions,
            telemetry=self.telemetry,
        )

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`; then let every trainer checkpoint, and leave no process behind.

        Raises:
            BftrainerError: its socket cannot be made.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.journal.close)
            stack.callback(self.runner.close)
            stack.callback(self._store.interrupt)  # nothing that reads keeps the process from ending
            loading = asyncio.create_task(self._load())
            if not await self._unless_stopped(loading):
                loading.cancel()
                return
            await self.listeners.open(stack)
            stack.push_async_callback(self._scheduler.close)
            stack.callback(self.launcher.close)
            stack.callback(self.submissions.close)
            stack.callback(self.studies.close)
            stack.callback(self.nodes.close)
            stack.callback(self.lanes.close)
            ready()
            await self._serve()

    async def _load(self) -> None:
        """Read what the daemon before has left in the store, and store when this one began, and with what
        settings: a replay of what happened needs both."""
        own = self.settings.current
        stored = await self.runner.aside(self._store.get, "runs")
        runs = keep_runs(stored or "[]", own, self._started_at)
        now = {"begin": self._started_at, "settings": own.model_dump(mode="json")}
        self.journal.remember("runs", json.dumps([*runs, now]))
        failed = await self.recovery.load()
        await self.runner.aside(self.load_index)
        await self.studies.load()
        for ended in failed:
            self.index.end(ended, self.clock.now(), None)

    def load_index(self) -> None:
        """Read into memory what lists, status and metrics need of the store."""
        self.index.load(self._store.unfinished_summaries(), self._store.count_ended_by_user())

    def stop(self) -> None:
        """Have `run` end, in order."""
        self._stop.set()

    def reload(self, wanted: Settings) -> Refused:
        """Take over what may change while trainers run, and decide by it. Returns what may not change.

        Raises:
            SettingsError: that does not go together with what stays; all is as it was.
        """
        refused = self.settings.reload(wanted)
        self.nodes.reload()
        self.listeners.reload()
        self.mailbox.emit(PolicyChanged(time=self.clock.now()))
        return refused

    async def _serve(self) -> None:
        """Recover, then run every part until we are told to stop, then drain."""
        disk = Disk(self.settings.current.state_dir, self.settings, self.telemetry)
        clock = partial(watch_clock, self.clock, self.telemetry)
        # while it recovers, too: that takes long if the scheduler does not answer
        tasks = _tasks(clock=clock, disk=disk.run, store=self.journal.watch, bounds=self.listeners.tell)
        recovery = asyncio.create_task(self.recovery.run(self.agents))
        if await self._unless_stopped(recovery, *tasks):
            nodes = self.nodes
            tasks += _tasks(events=self.runner.run, polls=nodes.watch.run, pilots=nodes.hold.run)
            tasks += _tasks(studies=self.studies.run)
            await self._unless_stopped(*tasks)
            await self._wind_down()
        recovery.cancel()  # if it is not done, agents end by themselves when no daemon comes
        for task in tasks:
            task.cancel()

    async def _unless_stopped(self, *tasks: asyncio.Task[None]) -> bool:
        """Wait until the first of these is done; False if we are told to stop before."""
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        done = [task for task in tasks if task.done()]
        for task in done:
            task.result()  # a bug: crash loudly, the restart recovers
        return bool(done)

    async def _wind_down(self) -> None:
        """Drain: every trainer writes a checkpoint and leaves, then the pilots go."""
        self.mailbox.emit(Drain(time=self.clock.now()))
        deadline = self.clock.now() + self.settings.current.stop_grace_s + 5.0
        while self.clock.now() < deadline:
            await asyncio.sleep(0.05)
            if self.mailbox.idle and not self.launcher.any_workers():
                break
        await self.nodes.release.close(deadline)


def _tasks(**parts: Callable[[], Coroutine[None, None, None]]) -> list[asyncio.Task[None]]:
    """The parts, each begun as a task of its name."""
    return [asyncio.create_task(run(), name=name) for name, run in parts.items()]


def _journal(own: LiveSettings, store: Store, telemetry: Telemetry, clock: Clock) -> Journal:
    """The journal, and its writer, which has the store to itself as far as writing goes."""
    backlog = Backlog(
        bound=lambda: own.current.max_writes_waiting,
        row_every_s=lambda: own.current.keep_reports_every_s,
        most_starts=lambda: own.current.max_main_starts,
    )
    return Journal(
        Writer(store, telemetry, backlog, Pruning(store, own, clock, telemetry).step), telemetry, clock
    )


def _as_user(spec: TrainerSpec) -> str:
    """A trainer's pilots run as its user."""
    return spec.user


def _as_ourselves(spec: TrainerSpec) -> str:
    """A trainer's pilots run as the daemon's own user."""
    return ""


def _pilots(
    own: Settings,
    scheduler: Scheduler,
    key: bytes,
    clock: Clock,
    hub: Hub,
    telemetry: Telemetry,
    users: Callable[[], frozenset[str]],
) -> Pilots:
    def works(reason: str) -> None:
        telemetry.condition("pilots", "no pilot can be submitted" if reason else "", reason)

    def barred(user: str, reason: str) -> None:
        telemetry.bounded("failed_pilots", user, reason=reason)

    return Pilots(
        *(scheduler, key, clock, hub.connected, telemetry.pilot, works),
        start_s=own.pilot_start_s,
        spare_s=own.spare_s,
        per_minute=own.submissions_per_minute,
        conduct=Conduct(clock, users if own.mode == "site" else frozenset, barred),
    )


def _launchers(
    own: Settings,
    store: Store,
    clock: Clock,
    link: Link,
    emit: Emit,
    journal: Journal,
    telemetry: Telemetry,
) -> Launchers:
    def hit(bound: str, user: str, at: float) -> None:
        telemetry.bounded(bound, user, at=at)

    return Launchers.over(
        link,
        emit,
        journal,
        nodes_see_us_at=own.address,
        state_dir=own.state_dir,
        orphan_s=own.orphan_s,
        max_helper_memory_mb=own.max_helper_memory_mb,
        max_helper_connections=own.max_helper_connections,
        warm_pool=own.warm_pool,
        trainer_dir=own.trainer_dir,
        store_id=_store_id(store),
        grace_s=own.stop_grace_s,
        clock=clock.now,
        limits=Limits(
            start_s=own.start_timeout_s, progress_s=own.progress_timeout_s, silent_s=own.silent_start_s
        ),
        bounds=Bounds(metrics=own.max_metrics, hit=hit),
    )


def _store_id(store: Store) -> str:
    """What tells this store's trainers from those of others, whose numbers may be the same."""
    found = store.get("mark")
    if found is None:
        found = uuid.uuid4().hex[:6]
        store.put("mark", found)
    return found
