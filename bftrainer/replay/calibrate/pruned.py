"""Reconstructs the state before the first event, in a store whose oldest events have been deleted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bftrainer.model.reports import Row, StoredTrainer


def pool_before(events: Sequence[Row]) -> frozenset[str]:
    """The nodes that were in the pool before the first of these events; none if no event is missing.

    Those are nodes that leave, or that a plan gives to a trainer, before they join. A node that nothing
    happened to is not found: no trainer had a use for it.
    """
    if not events or events[0]["id"] == 1:
        return frozenset()
    found, joined = set[str](), set[str]()
    for event in events:
        if event["kind"] == "NodesChanged":
            found |= set(event["data"]["left"]) - joined
            joined |= set(event["data"]["joined"])
        if event["plan"] is not None:
            found |= {node for nodes in event["plan"]["allocation"].values() for node in nodes} - joined
    return frozenset(found)


def trainers_since(
    begin: float, trainers: Sequence[StoredTrainer], reports: Sequence[Row]
) -> list[StoredTrainer]:
    """The trainers that had not ended at `begin`, with the samples that were left to do and done since then.

    What a trainer had done by then is what its first report since then says.
    """
    first: dict[int, Row] = {}
    for report in reports:
        if report["time"] >= begin:
            first.setdefault(report["trainer"], report)
    return [
        _since(trainer, first.get(trainer.id)) if trainer.submitted_at < begin else trainer
        for trainer in trainers
        if trainer.ended_at is None or trainer.ended_at >= begin
    ]


def _since(trainer: StoredTrainer, first: Row | None) -> StoredTrainer:
    done = trainer.samples if first is None else first["samples"]
    work = trainer.spec.samples
    left = None if work is None else max(1, work - done)
    return replace(trainer, spec=replace(trainer.spec, samples=left), samples=trainer.samples - done)
