"""The daemon's parts, put together: nothing runs yet.

Every part is given what it uses, bottom-up, in the order of this file: mailbox and journal, the agents'
connections and the pilots, launchers, the engine's runner, the nodes, and what users ask.
"""

from __future__ import annotations

import socket
from functools import partial

from bftrainer.api.answers import Answers
from bftrainer.api.callers import Caller
from bftrainer.daemon.agents import AgentLink, AgentReports, devices_text
from bftrainer.daemon.answers.exposition import Exposition
from bftrainer.daemon.answers.feed import LiveFeed
from bftrainer.daemon.answers.history import StoredHistory
from bftrainer.daemon.answers.impact_data import ImpactData
from bftrainer.daemon.answers.predecessors import Predecessors
from bftrainer.daemon.answers.service import DaemonService
from bftrainer.daemon.answers.studies import StudyAnswers
from bftrainer.daemon.answers.submissions import Submissions
from bftrainer.daemon.answers.trainer_orders import TrainerOrders
from bftrainer.daemon.answers.trainers import Trainers
from bftrainer.daemon.answers.views.pool import StatusView
from bftrainer.daemon.foundations import (
    as_ourselves,
    as_user,
    make_journal,
    make_launchers,
    make_pilots,
    store_id,
)
from bftrainer.daemon.index import Index
from bftrainer.daemon.lanes import Lanes
from bftrainer.daemon.listeners import Listeners
from bftrainer.daemon.mailbox import Mailbox
from bftrainer.daemon.orders import SiteOrders
from bftrainer.daemon.recovery import Recovery
from bftrainer.daemon.runner import Runner
from bftrainer.daemon.studies.studies import Studies
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
        self.settings = LiveSettings(settings)
        self.clock, self._scheduler, self._store, self._tcp = clock, scheduler, store, tcp
        self._started_at = clock.now()
        self._make_foundations(settings)
        self._make_deciders()
        self._make_recovery()
        self._make_answers()
        self._make_service()

    def _make_foundations(self, settings: Settings) -> None:
        """Make the mailbox, the storage, the connections, and the holders of nodes and workers."""
        own, clock = self.settings, self.clock
        self.telemetry = Telemetry()
        self.mailbox = Mailbox(clock)
        self.journal = make_journal(own, self._store, self.telemetry, clock)
        key = load_key(settings.state_dir / "key")
        self.hub = Hub(partial(of_pilot, key))
        self.pilots = make_pilots(
            settings, self._scheduler, key, clock, self.hub, self.telemetry, self._users
        )
        self.user_of = as_user if settings.mode == "site" else as_ourselves
        self.link = AgentLink(self.hub, self.pilots, self.user_of)
        self.launcher = make_launchers(
            settings, self._store, clock, self.link, self.mailbox.emit, self.journal, self.telemetry
        )

    def _make_deciders(self) -> None:
        """Make the deciders: the engine's runner, the nodes, and studies; and the takers of their orders."""
        own, clock, telemetry = self.settings, self.clock, self.telemetry
        self.index = Index()
        self.lanes = Lanes(telemetry)
        self.runner = Runner(self.mailbox, self.journal, self.launcher, own, telemetry, self.index)
        self.mailbox.user_of, self.journal.late = self.runner.user_of, self.index.reported
        self.nodes = Nodes(
            settings=own,
            clock=clock,
            scheduler=self._scheduler,
            pilots=self.pilots,
            link=self.link,
            workers=self.launcher,
            trainers=self.runner.trainers,
            curves=self.runner.curves,
            user_of=self.user_of,
            emit=self.mailbox.emit,
            telemetry=telemetry,
            main_started=self.journal.main_started,
        )
        self.runner.decided = self.nodes.hold.wake
        self.orders = SiteOrders(self.journal, self.mailbox, self.launcher, self.nodes, clock)
        self.submissions = Submissions(own, telemetry, self.index.count)
        self.studies = Studies(
            settings=own,
            clock=clock,
            store=self._store,
            journal=self.journal,
            index=self.index,
            runner=self.runner,
            launcher=self.launcher,
            orders=self.orders,
            telemetry=telemetry,
            emit=self.mailbox.emit,
            store_id=store_id(self._store),
        )

    def _make_recovery(self) -> None:
        """Make the recovery, which matches the other parts to what runs, and then lets agents in."""
        self.recovery = Recovery(
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
        self.agents = AgentReports(
            self.link,
            self.pilots,
            self.nodes.losses,
            self.launcher,
            self.recovery.trainers_on,
            self.telemetry,
            self.nodes.state.has_gpus,
        )
        self.hub.listen(self.agents)

    def _make_answers(self) -> None:
        """Make the answers to callers, and what these need."""
        own, lanes, store, telemetry = self.settings, self.lanes, self._store, self.telemetry
        self.trainers = Trainers(
            clock=self.clock,
            store=store,
            index=self.index,
            lanes=lanes,
            journal=self.journal,
            runner=self.runner,
            launcher=self.launcher,
        )
        self.trainer_orders = TrainerOrders(
            known=self.trainers,
            lanes=lanes,
            orders=self.orders,
            submissions=self.submissions,
            telemetry=telemetry,
        )
        self.predecessors = Predecessors(known=self.trainers, lanes=lanes, launcher=self.launcher)
        self.history = StoredHistory(store=store, trainers=self.trainers, lanes=lanes)
        self.impact_data = ImpactData(
            settings=own,
            clock=self.clock,
            scheduler=self._scheduler,
            reserve=self.nodes.reserve,
            store=store,
            lane=lanes.rows,
            started_at=self._started_at,
        )
        self.exposition = Exposition(telemetry, lanes.memory)
        self.feed = LiveFeed(
            trainers=self.trainers,
            nodes=self.nodes.state,
            studies=self.studies,
            totals=self._totals,
            telemetry=telemetry,
        )
        self.study_answers = StudyAnswers(
            settings=own,
            store=store,
            lanes=lanes,
            runner=self.runner,
            studies=self.studies,
            submissions=self.submissions,
            telemetry=telemetry,
        )

    def _make_service(self) -> None:
        """The one that callers are answered by, and what listens to them."""
        settings = self.settings
        self.service = DaemonService(
            settings=settings,
            clock=self.clock,
            store=self._store,
            known=self.trainers,
            trainer_orders=self.trainer_orders,
            history=self.history,
            impact_data=self.impact_data,
            studies=self.study_answers,
            feed=self.feed,
            lanes=self.lanes,
            predecessors=self.predecessors,
            exposition=self.exposition,
            answers=Answers(self.telemetry.bounded),
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
        self.listeners = Listeners(
            settings=settings, service=self.service, hub=self.hub, telemetry=self.telemetry, tcp=self._tcp
        )

    def _totals(self, caller: Caller) -> StatusView:
        return self.service.totals(caller)

    def _users(self) -> frozenset[str]:
        """The users with unfinished trainers."""
        state = self.runner.state
        return frozenset(t.spec.user for t in state.active.values()) | {u for _, u in state.waiting.users}
