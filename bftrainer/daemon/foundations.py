"""The lowest of the daemon's parts, made as the settings say: journal, pilots and launchers.

They know nothing of what `parts` builds on them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from bftrainer.daemon.backlog import Backlog
from bftrainer.daemon.journal import Journal
from bftrainer.daemon.pruning import Pruning
from bftrainer.daemon.writer import Writer
from bftrainer.launch.deadlines import Limits
from bftrainer.launch.job import Bounds
from bftrainer.launch.launchers import Launchers
from bftrainer.model.trainer import TrainerSpec
from bftrainer.nodes.conduct import Conduct
from bftrainer.nodes.pilots import Pilots
from bftrainer.ports import Clock, Emit, Link, Scheduler, Store
from bftrainer.settings.live import LiveSettings
from bftrainer.settings.values import Settings
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.wire.hub import Hub


def make_journal(own: LiveSettings, store: Store, telemetry: Telemetry, clock: Clock) -> Journal:
    """The journal, and its writer, which has the store to itself as far as writing goes."""
    backlog = Backlog(
        bound=lambda: own.current.max_writes_waiting,
        row_every_s=lambda: own.current.keep_reports_every_s,
        most_starts=lambda: own.current.max_main_starts,
    )
    return Journal(
        Writer(store, telemetry, backlog, Pruning(store, own, clock, telemetry).step), telemetry, clock
    )


def as_user(spec: TrainerSpec) -> str:
    """A trainer's pilots run as its user."""
    return spec.user


def as_ourselves(spec: TrainerSpec) -> str:
    """A trainer's pilots run as the daemon's own user."""
    return ""


def make_pilots(
    own: Settings,
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
        start_s=own.pilot_start_s,
        spare_s=own.spare_s,
        per_minute=own.submissions_per_minute,
        conduct=Conduct(clock, users if own.mode == "site" else frozenset, barred),
    )


def make_launchers(
    own: Settings,
    store: Store,
    clock: Clock,
    link: Link,
    emit: Emit,
    journal: Journal,
    telemetry: Telemetry,
) -> Launchers:
    """The launchers of all runtimes, as the settings bound what they start."""

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
        store_id=store_id(store),
        grace_s=own.stop_grace_s,
        clock=clock.now,
        limits=Limits(
            start_s=own.start_timeout_s, progress_s=own.progress_timeout_s, silent_s=own.silent_start_s
        ),
        bounds=Bounds(metrics=own.max_metrics, hit=hit),
    )


def store_id(store: Store) -> str:
    """What tells this store's trainers from those of others, whose numbers may be the same."""
    found = store.get("mark")
    if found is None:
        found = uuid.uuid4().hex[:6]
        store.put("mark", found)
    return found
