"""Times that a batch system tells are of its machine's clock; the daemon's may be behind. Pure."""

from __future__ import annotations

from dataclasses import replace

from bftrainer.model.machine import Snapshot


def shifted(snapshot: Snapshot, seconds: float) -> Snapshot:
    """The same snapshot with all times later by so much."""
    if not seconds:
        return snapshot

    def moved(moment: float | None) -> float | None:
        return None if moment is None else moment + seconds

    return replace(
        snapshot,
        time=snapshot.time + seconds,
        nodes=tuple(replace(node, until=moved(node.until)) for node in snapshot.nodes),
        pilots=tuple(replace(pilot, ends=moved(pilot.ends)) for pilot in snapshot.pilots),
        main=tuple(
            replace(job, submitted=moved(job.submitted), started=moved(job.started)) for job in snapshot.main
        ),
    )
