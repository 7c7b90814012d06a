"""The lowest of the daemon's parts, made as the settings say: journal, pilots and launchers.

They know nothing of what `parts` builds on them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from bftrainer.daemon.storage.backlog import Backlog
from bftrainer.daemon.storage.journal import StoreJournal
from bftrainer.daemon.storage.pruning import Pruning
from bftrainer.daemon.storage.writer import Writer
from bftrainer.launch.deadlines import TimeLimits
from bftrainer.launch.job import WorkerLimits
from bftrainer.launch.launchers import Launchers
from bftrainer.model.trainer import TrainerSpec
from bftrainer.nodes.pilots import Pilots
from bftrainer.nodes.quarantine import Quarantine
from bftrainer.ports import Clock, Emit, Link, Scheduler, Store
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.values import Settings
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.wire.hub import Hub


def make_journal(settings: LiveSettings, store: Store, telemetry: Telemetry, clock: Clock) -> StoreJournal:
    """The journal, and its writer, which has the store to itself as far as writing goes."""
    writer = Writer(store, telemetry, Backlog(), Pruning(store, settings, clock, telemetry).step)
    return StoreJournal(writer, telemetry, clock)


def as_user(spec: TrainerSpec) -> str:
    """A trainer's pilots run as its user."""
    return spec.user


def as_ourselves(spec: TrainerSpec) -> str:
    """A trainer's pilots run as the daemon's own user."""
    return ""


def make_pilots(
    settings: Settings,
    scheduler: Scheduler,
    key: bytes,
    clock: Clock,
    hub: Hub,
    telemetry: Telemetry,
    users: Callable[[], frozenset[str]],
) -> Pilots:
    """The pilots, as the settings bound them. `users` says who has unfinished trainers: at a site each user's
    pilots are bounded apart."""

    def works(reason: str) -> None:
        telemetry.condition("pilots", "no pilot can be submitted" if reason else "", reason)

    def barred(user: str, reason: str) -> None:
        telemetry.bounded("failed_pilots", user, reason=reason)

    return Pilots(
        *(scheduler, key, clock, hub.connected, telemetry.pilot, works),
        start_s=settings.pilot_start_s,
        spare_s=settings.spare_s,
        per_minute=settings.submissions_per_minute,
        quarantine=Quarantine(clock, users if settings.mode == "site" else frozenset, barred),
    )


def make_launchers(
    settings: Settings,
    store: Store,
    clock: Clock,
    link: Link,
    emit: Emit,
    journal: StoreJournal,
    telemetry: Telemetry,
) -> Launchers:
    """The launchers of all runtimes, as the settings bound what they start."""

    def hit(bound: str, user: str, at: float) -> None:
        telemetry.bounded(bound, user, at=at)

    return Launchers.over(
        link,
        emit,
        journal,
        nodes_see_us_at=settings.address,
        state_dir=settings.state_dir,
        orphan_s=settings.orphan_s,
        max_helper_memory_mb=settings.max_helper_memory_mb,
        warm_pool=settings.warm_pool,
        trainer_dir=settings.trainer_dir,
        store_id=store_id(store),
        grace_s=settings.stop_grace_s,
        write_s=settings.vacate_write_s,
        clock=clock.now,
        limits=TimeLimits(
            start_s=settings.start_timeout_s,
            progress_s=settings.progress_timeout_s,
            silent_s=settings.silent_start_s,
        ),
        bounds=WorkerLimits(hit=hit),
    )


def store_id(store: Store) -> str:
    """Return an id that tells this store's trainers from others with the same numbers."""
    found = store.get("mark")
    if found is None:
        found = uuid.uuid4().hex[:6]
        store.put("mark", found)
    return found
