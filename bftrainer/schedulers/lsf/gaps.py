"""A job that is missing from one answer of bjobs has not ended: under load LSF leaves jobs out."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bftrainer.schedulers.lsf.rows import JobRow

MISSES = 2
"""A job that ran has ended when so many answers in a row lack it."""


class Gaps:
    """Remembers our pilots from one answer to the next."""

    def __init__(self) -> None:
        self._last: dict[str, JobRow] = {}
        self._missed: dict[str, int] = {}

    def filled(
        self, jobs: tuple[JobRow, ...], mine: Collection[str], ended: Collection[str]
    ) -> tuple[JobRow, ...]:
        """The jobs with those of ours that ran at the answer before, as they were then, unless they are
        missing for long or we have `ended` them. `mine` are the numbers of ours in this answer."""
        listed = {job.id for job in jobs}
        gone = [job for name, job in self._last.items() if name not in listed]
        self._missed = {job.id: self._missed.get(job.id, 0) + 1 for job in gone}
        kept = tuple(job for job in gone if self._missed[job.id] < MISSES and job.id not in ended)
        self._last = {job.id: job for job in (*_running(jobs, mine), *kept)}
        return jobs + kept


def _running(jobs: Iterable[JobRow], mine: Collection[str]) -> Iterable[JobRow]:
    return (job for job in jobs if job.id in mine and not job.pending)
