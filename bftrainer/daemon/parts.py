"""The daemon's parts, put together: nothing runs yet.

Every part is given what it uses, bottom-up: mailbox and journal, the agents' connections and the pilots,
launchers, the engine's runner, the nodes, and what users ask.
"""

from __future__ import annotations

import socket
from functools import partial

from bftrainer.api.answers import Answers
from bftrainer.daemon.agents import AgentLink, AgentReports, devices_text
from bftrainer.daemon.changing import Changing
from bftrainer.daemon.earlier import Earlier
from bftrainer.daemon.evidence import Evidence
from bftrainer.daemon.exposition import Exposition
from bftrainer.daemon.foundations import (
    as_ourselves,
    as_user,
    make_journal,
    make_launchers,
    make_pilots,
    store_id,
)
from bftrainer.daemon.history import History
from bftrainer.daemon.index import Index
from bftrainer.daemon.lanes import Lanes
from bftrainer.daemon.listeners import Listeners, hub_limits
from bftrainer.daemon.mailbox import Mailbox
from bftrainer.daemon.orders import Orders
from bftrainer.daemon.recovery import Recovery
from bftrainer.daemon.runner import Runner
from bftrainer.daemon.service import DaemonService
from bftrainer.daemon.studies import Studies
from bftrainer.daemon.study_service import StudyAnswers
from bftrainer.daemon.submissions import Submissions
from bftrainer.daemon.trainers import MB, Trainers
from bftrainer.nodes.nodes import Nodes
from bftrainer.ports import Clock, Scheduler, Store
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.values import Settings
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.wire.hub import Hub
from bftrainer.wire.seal import load_key, of_pilot


class Parts:
    """All parts of a daemon, of which each knows only those that it was given.

    `tcp` is a bound socket on which agents on other machines reach us.
    """

    def __init__(
        self,
        settings: Settings,
        scheduler: Scheduler,
        store: Store,
        clock: Clock,
        tcp: socket.socket | None,
    ) -> None:
        self.settings = own = LiveSettings(settings)
        self.clock = clock
        self._scheduler, self._store = scheduler, store
        self._started_at = clock.now()
        self.telemetry = Telemetry()
        self.mailbox = Mailbox(clock)
        self.journal = make_journal(own, store, self.telemetry, clock)
        key = load_key(settings.state_dir / "key")
        self.hub = Hub(partial(of_pilot, key), partial(hub_limits, own))
        self.pilots = make_pilots(settings, scheduler, key, clock, self.hub, self.telemetry, self._users)
        user_of = as_user if settings.mode == "site" else as_ourselves
        link = AgentLink(self.hub, self.pilots, user_of)
        emit = self.mailbox.emit
        self.launcher = make_launchers(settings, store, clock, link, emit, self.journal, self.telemetry)
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
        self.studies = self._studies(store_id(store))
        self.recovery = self._recovery()
        self.agents = self._agents(link)
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

    def _agents(self, link: AgentLink) -> AgentReports:
        return AgentReports(
            link,
            self.pilots,
            self.nodes.release,
            self.launcher,
            self.recovery.trainers_on,
            self.telemetry,
            self.nodes.state.has_gpus,
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
            changing=self._changing(known),
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

    def _changing(self, known: Trainers) -> Changing:
        return Changing(
            known=known,
            lanes=self.lanes,
            orders=self.orders,
            submissions=self.submissions,
            telemetry=self.telemetry,
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
            emit=self.mailbox.emit,
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
