"""The daemon's side towards the scheduler: which nodes are ours, how they are held, and how given back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bftrainer.background import Background
from bftrainer.model.events import NodesChanged
from bftrainer.model.gpus import node_of
from bftrainer.model.machine import Snapshot
from bftrainer.model.main_jobs import MainStart
from bftrainer.model.trainer import Points, Trainer, TrainerSpec
from bftrainer.nodes import lifecycle
from bftrainer.nodes.headroom.reserve import Reserve
from bftrainer.nodes.hold import Hold
from bftrainer.nodes.lifecycle import CancelPilots
from bftrainer.nodes.losses import Losses
from bftrainer.nodes.main_jobs import MainJobs
from bftrainer.nodes.pilots import Pilots
from bftrainer.nodes.pool import landed
from bftrainer.nodes.release import Release
from bftrainer.nodes.state import NodesState, with_our_nodes_idle
from bftrainer.nodes.vacate import ClaimedNodes
from bftrainer.nodes.watch import Watch
from bftrainer.ports import Clock, Emit, Link, Scheduler, Workers
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry

TOOK_S = 60.0
"""A node that the scheduler takes by itself leaves at once; which job has it, a poll shows in so long."""


class Nodes:
    """Puts the parts of this folder together; what each poll shows goes through `_take_in`.

    `state` is what is seen and ours, `reserve` what is left to main jobs. `watch` polls, `release` gives
    nodes back, `losses` sees which are gone, `hold` has pilots submitted; `background` is the work that they
    have under way.
    """

    def __init__(
        self,
        *,
        settings: LiveSettings,
        clock: Clock,
        scheduler: Scheduler,
        pilots: Pilots,
        link: Link,
        workers: Workers,
        trainers: Callable[[], Sequence[Trainer]],
        curves: Callable[[Sequence[Trainer]], Mapping[int, Points]],
        user_of: Callable[[TrainerSpec], str],
        emit: Emit,
        telemetry: Telemetry,
        main_started: Callable[[Sequence[MainStart]], None] = lambda starts: None,
    ) -> None:
        self._settings, self._pilots, self._telemetry = settings, pilots, telemetry
        self._main_started, self._emit = main_started, emit
        self.background = Background()
        self._claimed = ClaimedNodes(trainers, curves)
        self.state = NodesState(settings, clock, emit, pilots)
        self.reserve = Reserve(settings, pilots, self.state, emit)
        self.main_jobs = MainJobs()
        self.watch = Watch(
            settings=settings,
            clock=clock,
            scheduler=scheduler,
            emit=emit,
            telemetry=telemetry,
            take_in=self._take_in,
            quiet=lambda: not pilots.records.pilots,
        )
        self.release = Release(
            settings=settings,
            clock=clock,
            scheduler=scheduler,
            pilots=pilots,
            link=link,
            workers=workers,
            claimed=self._claimed,
            telemetry=telemetry,
            state=self.state,
            main_jobs=self.main_jobs,
            watch=self.watch,
            background=self.background,
        )
        self.losses = Losses(
            *(settings, clock, scheduler, pilots, workers, telemetry),
            *(self.state, self.watch, self.release, self.background),
        )
        self.hold = Hold(
            pilots=pilots,
            workers=workers,
            trainers=trainers,
            user_of=user_of,
            troubles=telemetry.troubles,
            state=self.state,
            watch=self.watch,
            release=self.release,
            background=self.background,
        )

    def wake(self) -> None:
        """Poll, and check the pilots, without waiting."""
        self.watch.wake()
        self.hold.wake()

    def reload(self) -> None:
        """Settings have changed: act by them at once."""
        settings = self._settings.current
        self._pilots.start_s, self._pilots.spare_s = settings.pilot_start_s, settings.spare_s
        self._pilots.per_minute = settings.submissions_per_minute
        self.wake()

    def close(self) -> None:
        """Let go of the thread that chooses nodes for main jobs; nothing polls any more."""
        self._claimed.close()

    async def _take_in(self, snapshot: Snapshot) -> bool:
        """Act on what a poll has shown. Returns whether the pool has changed."""
        pilots, state = self._pilots, self.state
        pilots.records = landed(pilots.records, snapshot)
        self._note_main_jobs(snapshot)
        claimed = await self.release.claimed(snapshot)
        # before any pilot is dropped below: that cancels it
        for effect in state.reconcile(snapshot):
            if isinstance(effect, CancelPilots):
                self.background.start(pilots.cancel(effect.pilots))
        snapshot = with_our_nodes_idle(snapshot, pilots.records.pilots)
        state.seen = snapshot.nodes
        gone = self.release.to_give_up(snapshot, claimed)
        spared = self.reserve.observe(snapshot, claimed, gone)
        effects = state.observe(snapshot, gone, spared.nodes, claimed)
        self.release.perform(effects, snapshot.claims)
        self.losses.lost(snapshot)
        self.hold.wake()
        if spared.claims:  # main jobs that are there already do not wait for that
            await self.release.make_room(spared.claims)
        return bool(effects)

    def _note_main_jobs(self, snapshot: Snapshot) -> None:
        """Note how long main jobs have waited that have started, and learn from it."""
        clearing = self.state.clearing
        records = self._pilots.records
        going = map(node_of, records.releasing | records.clearing.keys())
        whole = (node for node in records.pilots if node_of(node) == node)  # of single GPUs see MainJobs
        starts = self.main_jobs.observe(snapshot, frozenset((*going, *whole)), clearing.lead_s)
        self.reserve.learn(starts, snapshot)
        self._main_started(starts)
        for start in starts:
            self._telemetry.main_job(start)
        took = lifecycle.taken_since(records, snapshot.time - TOOK_S)
        if jobs := {start.job: start.on & took for start in starts if start.on & took}:
            self._emit(NodesChanged(time=snapshot.time, jobs=jobs, reason="poll"))  # they left before
