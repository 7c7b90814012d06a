"""The main jobs of a poll of which it is to be known how long they wait. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from bftrainer.model.main_jobs import MainJob
from bftrainer.schedulers.shared.claims import Claims
from bftrainer.schedulers.slurm.queue.claims import begins_later
from bftrainer.schedulers.slurm.rows import SlurmJobRow

LATELY_S = 120.0
"""A job that started longer ago has been seen at an earlier poll, or nobody knows how long it waited."""
SECOND = 1.0
"""Slurm tells times in whole seconds, rounded down."""


def waiting(main: Iterable[SlurmJobRow]) -> frozenset[str]:
    """The numbers of all main jobs that wait."""
    return frozenset(job.id for job in main if job.state == "PENDING")


def shown(main: Iterable[SlurmJobRow], found: Claims, now: float) -> tuple[MainJob, ...]:
    """Those that have started lately, and those that wait for nothing but Slurm and nodes that are idle or
    ours."""
    main = list(main)
    ready = (found.ready | {claim.job for claim in found.claims}) - found.ahead
    later = {job.whole for job in main if job.state == "PENDING" and begins_later(job, now)}
    return tuple(
        _job(job)
        for job in main
        if (job.id in ready and job.whole not in later if job.state == "PENDING" else _has_begun(job, now))
    )


def _has_begun(job: SlurmJobRow, now: float) -> bool:
    return bool(job.nodes) and job.start is not None and now - job.start < LATELY_S


def _job(job: SlurmJobRow) -> MainJob:
    pending = job.state == "PENDING"
    return MainJob(
        job=job.id,
        nodes=job.count if pending else len(job.nodes),
        cores=max(job.all_cpus, job.cpus * job.count) if job.shares else 0,
        submitted=job.submitted,
        started=None if pending else job.start,
        on=frozenset() if pending else frozenset(job.nodes),
        rounded_s=SECOND,
    )
