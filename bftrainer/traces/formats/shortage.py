"""Jobs of a log that are too large for what is free when they start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bftrainer.model.text import counted


@dataclass
class JobShortage:
    """Jobs that needed more nodes or GPUs than were free when they started.

    Attributes:
        jobs: How many.
        worst: The job with most missing, in words.
        missing: How many that one lacked.
    """

    jobs: int = 0
    worst: str = ""
    missing: int = 0

    def note(self, label: str, size: int, got: int, unit: str) -> None:
        """A job wanted `size` of a unit (nodes, GPUs), and found `got`."""
        if got == size:
            return
        self.jobs += 1
        if size - got > self.missing:
            self.missing = size - got
            self.worst = f"job {label} wanted {size:,} {unit} and found {got:,} free"

    def notes(self) -> Iterator[str]:
        """Notes for the user on it."""
        if self.jobs:
            over = counted(self.jobs, "job is", "jobs are")
            yield f"{over} over capacity and took what was free; the worst: {self.worst}"
