"""The settings that bound the store, in memory and on its disk."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bftrainer.settings.setting import Seconds, Section, Setting


class StoreLimits(Section):
    """What the store may take at most, and what its disk has to leave."""

    max_store_mb: Annotated[
        int,
        Field(ge=1, le=10_000_000),
        Setting(
            help="most that the store holds",
            more="The file itself does not shrink: freed pages are used again. Its log (`-wal`) takes up "
            "to 0.5 GB more while somebody reads the database for long.",
            unit="MB",
            live=True,
            at_bound="the daemon deletes the oldest rows of what takes the most, before their time: reports, "
            "pauses, events, or trainers or studies that have ended",
            told="`bftrainer status` tells admins how many of what, and so does the log",
        ),
    ] = 4000
    max_main_starts: Annotated[
        int,
        Field(ge=1000, le=10_000_000),
        Setting(
            help="starts of main jobs that the store keeps, for `bftrainer admin impact`",
            more="Each takes about 0.1 kB. They are deleted after `keep_events_days`, too.",
            unit="starts",
            live=True,
            at_bound="the oldest ones are deleted",
            told="`bftrainer admin impact` says since when it knows",
        ),
    ] = 100_000
    max_writes_waiting: Annotated[
        int,
        Field(ge=8, le=1_000_000),
        Setting(
            help="writes that wait in memory while the store does not answer",
            unit="writes",
            live=True,
            at_bound="the oldest pauses, then the oldest events with their plans and actions are left out of "
            "the history; the latest state of each trainer is always stored",
            told="`bftrainer status` and the log say how many",
        ),
    ] = 4000
    keep_reports_every_s: Annotated[
        Seconds,
        Setting(
            help="the store keeps at most one report of a trainer per so many seconds",
            unit="s",
            live=True,
            at_bound="the latest report of the time is kept, the others are not",
            told="`bftrainer show` has the latest report at any time",
        ),
    ] = 5.0
    min_free_mb: Annotated[
        int,
        Field(ge=0, le=10_000_000),
        Setting(
            help="least free space on the disk of state_dir",
            unit="MB",
            live=True,
            at_bound="the daemon is degraded and not ready, and goes on",
            told="status, `/readyz` and the log say how much is free",
        ),
    ] = 200
    min_free_files: Annotated[
        int,
        Field(ge=0, le=1_000_000_000),
        Setting(
            help="least number of files (inodes) that the disk of state_dir can still take",
            unit="files",
            live=True,
            at_bound="the daemon is degraded and not ready, and goes on",
            told="status, `/readyz` and the log say how many are left",
        ),
    ] = 1000
