"""Requests of the core to the part that runs real jobs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Start:
    """Start a job's processes; `run` says which of its runs this is."""

    job: int
    run: int


@dataclass(frozen=True, slots=True)
class Signal:
    """Signal all processes of a job."""

    job: int
    run: int
    number: int


Effect = Start | Signal
