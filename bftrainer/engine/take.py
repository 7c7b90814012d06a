"""An event's facts taken into the state, before anything is decided. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch

from bftrainer.engine import survival
from bftrainer.engine.facts import learn_facts
from bftrainer.engine.state import Draft, State
from bftrainer.model.actions import Ended
from bftrainer.model.events import (
    Drain,
    Event,
    Measured,
    NodesChanged,
    PolicyChanged,
    PollFailed,
    Resume,
    Resync,
    TrainerCancelled,
    TrainerEnded,
    TrainerSubmitted,
    WorkerLost,
    WorkersReady,
)
from bftrainer.model.machine import NodeInfo
from bftrainer.model.trainer import Trainer, TrainerStatus
from bftrainer.performance import estimate as believing
from bftrainer.performance import fit
from bftrainer.performance.estimate import with_measurement


def draft_of(state: State) -> Draft:
    return Draft(
        pool=state.pool,
        active=dict(state.active),
        waiting=state.waiting,
        draining=state.draining,
        since=state.since,
        facts=state.facts,
        survival=state.survival,
        programs=state.programs,
        estimates=state.estimates,
    )


@singledispatch
def take(event: Event, state: State) -> Draft:
    raise TypeError(f"not an event: {event!r}")


@take.register
def _(event: NodesChanged, state: State) -> Draft:
    taken = draft_of(state)
    for id_, trainer in state.active.items():
        if not event.left.isdisjoint(trainer.nodes):
            taken.active[id_] = without(trainer, event.left)
    gone, new = event.left & state.pool, event.joined - (state.pool - event.left)
    taken.decide = bool(gone or new or event.facts)
    taken.pool = (state.pool - event.left) | event.joined
    taken.vacated = event.vacated & event.left
    if gone or new:
        taken.since = {n: t for n, t in state.since.items() if n not in gone} | dict.fromkeys(new, event.time)
    if gone:
        taken.survival = survival.observed(state.survival, [event.time - state.since[n] for n in gone])
    taken.facts = learn_facts(state.settings, state.facts, taken.pool, event.facts, event.time, new)
    return taken


@take.register
def _(event: TrainerSubmitted, state: State) -> Draft:
    taken = draft_of(state)
    if event.trainer in state.active or event.trainer in state.waiting:
        return taken
    trainer = Trainer(id=event.trainer, spec=event.spec, submitted_at=event.time)
    limit = state.settings.max_parallel
    if limit is not None and len(state.active) < limit:
        taken.active[event.trainer] = trainer
        taken.decide = True
    else:
        taken.waiting = state.waiting.add(trainer)
        taken.decide = limit is None
    return taken


@take.register
def _(event: TrainerCancelled, state: State) -> Draft:
    return _end(state, event.trainer, TrainerStatus.CANCELLED, "cancelled by its user")


@take.register
def _(event: TrainerEnded, state: State) -> Draft:
    trainer = state.active.get(event.trainer)
    if trainer is None or event.generation != trainer.published:
        return draft_of(state)
    return _end(state, event.trainer, event.status, event.reason)


@take.register
def _(event: WorkerLost, state: State) -> Draft:
    taken = draft_of(state)
    trainer = state.active.get(event.trainer)
    if trainer is None or trainer.started.get(event.node) != event.generation:
        return taken  # an earlier worker of this node, which has been replaced already
    failures, incident = trainer.failures, event.blame and event.generation > trainer.failed_in
    if incident:
        failures = failures + 1 if event.samples <= trainer.progress else 1
        if failures > state.settings.max_failures:
            return _end(state, event.trainer, TrainerStatus.FAILED, event.reason)
    survivor = without(trainer, frozenset({event.node}))
    taken.active[event.trainer] = replace(
        survivor,
        nodes=trainer.nodes,
        failures=failures,
        failed_in=trainer.generation if incident else trainer.failed_in,
        progress=event.samples if incident else trainer.progress,
    )
    taken.restart = ((event.trainer, event.node),)
    return taken


@take.register
def _(event: WorkersReady, state: State) -> Draft:
    taken = draft_of(state)
    trainer = state.active.get(event.trainer)
    if trainer is not None:
        fresh = frozenset(n for n in event.nodes if trainer.joining.get(n) == event.generation)
        if fresh:
            taken.active[event.trainer] = replace(trainer, warm=trainer.warm | fresh)
    return taken


@take.register
def _(event: Measured, state: State) -> Draft:
    taken = draft_of(state)
    trainer = state.active.get(event.trainer)
    if trainer is None or event.generation != trainer.published:
        return taken
    where = state.facts.get(next(iter(trainer.members), ""), NodeInfo()).node_class
    trainer, taken.programs = with_measurement(trainer, state.programs, event, where)
    taken.active[trainer.id] = trainer
    if event.point is not None and trainer.id in state.estimates:
        old, new = state.estimates[trainer.id], believing.estimates(trainer, taken.programs, 1.0)
        name = where if where in new else None
        taken.decide = fit.differs_enough(old[name], new[name])
    return taken


@take.register
def _(event: Resync, state: State) -> Draft:
    taken = draft_of(state)
    trainer = state.active.get(event.trainer)
    if trainer is not None and trainer.members and trainer.published == event.generation:
        taken.regroup = frozenset({event.trainer})
    return taken


@take.register
def _(event: Drain, state: State) -> Draft:
    taken = draft_of(state)
    taken.decide = taken.draining = True
    return taken


@take.register
def _(event: Resume, state: State) -> Draft:
    taken = draft_of(state)
    taken.decide, taken.draining = state.draining, False
    return taken


@take.register
def _(event: PolicyChanged, state: State) -> Draft:
    """Whoever holds nodes may go on, even above a new limit; those who wait move up to it."""
    taken = draft_of(state)
    promote(taken, state.settings.max_parallel)
    taken.decide = True
    return taken


@take.register
def _(event: PollFailed, state: State) -> Draft:
    return draft_of(state)


def _end(state: State, id_: int, status: TrainerStatus, reason: str) -> Draft:
    taken = draft_of(state)
    if taken.active.pop(id_, None) is not None:
        promote(taken, state.settings.max_parallel)
        taken.decide = True
    elif id_ in state.waiting:
        taken.waiting = state.waiting.remove(id_)
    else:
        return taken
    taken.ended = Ended(trainer=id_, status=status, reason=reason)
    return taken


def promote(taken: Draft, max_parallel: int | None) -> None:
    """Fill the places of those who may hold nodes, where these are limited, from those who wait."""
    while max_parallel is not None and len(taken.active) < max_parallel:
        promoted = taken.waiting.first()
        if promoted is None:
            return
        taken.active[promoted.id] = promoted
        taken.waiting = taken.waiting.remove(promoted.id)


def without(trainer: Trainer, gone: frozenset[str]) -> Trainer:
    return replace(
        trainer,
        nodes=trainer.nodes - gone,
        members=tuple(n for n in trainer.members if n not in gone),
        started={n: g for n, g in trainer.started.items() if n not in gone},
        warm=trainer.warm - gone,
    )
