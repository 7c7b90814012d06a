"""Takes an event's facts into the state before anything is decided. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import singledispatch

from bftrainer.allocate import metric
from bftrainer.engine import pairs, survival
from bftrainer.engine.node_info import with_reported
from bftrainer.engine.question import goodput_counts
from bftrainer.engine.queueing.places import with_places
from bftrainer.engine.state import Draft, State
from bftrainer.messages.ends import FAILED_OFTEN
from bftrainer.model.actions import Ended
from bftrainer.model.events import (
    Drain,
    Event,
    GpusChanged,
    HeadroomChanged,
    Lasted,
    MachineChanged,
    Measured,
    NodesChanged,
    PlanDue,
    PolicyChanged,
    PollFailed,
    PriorityChanged,
    Resume,
    Resync,
    StudyForecast,
    TrainerCancelled,
    TrainerEnded,
    TrainerSubmitted,
    UsersBarred,
    WorkerLost,
    WorkersReady,
)
from bftrainer.model.machine import NodeInfo
from bftrainer.model.trainer import Trainer, TrainerStatus
from bftrainer.performance import estimate, fit

HOUR_S = 3600.0


@singledispatch
def take(event: Event, state: State) -> Draft:
    """The state with what an event says, and what has to follow from it.

    Raises:
        TypeError: `event` is not an event.
    """
    raise TypeError(f"not an event: {event!r}")


@take.register
def _(event: NodesChanged, state: State) -> Draft:
    gone, new = event.left & state.pool, event.joined - (state.pool - event.left)
    pool = (state.pool - event.left) | event.joined
    after = replace(
        state,
        pool=pool,
        active={
            id_: trainer if event.left.isdisjoint(trainer.nodes) else without(trainer, event.left)
            for id_, trainer in state.active.items()
        },
        node_info=with_reported(state.settings, state.node_info, pool, event.facts, event.time, new),
    )
    if gone or new:
        stayed = {node: since for node, since in state.since.items() if node not in gone}
        after = replace(after, since=stayed | dict.fromkeys(new, event.time))
    if gone:
        ages = [event.time - state.since[node] for node in gone]
        after = with_places(replace(after, survival=survival.observed(state.survival, ages)))
    return Draft(state=after, vacated=event.vacated & event.left, decide=bool(gone or new or event.facts))


@take.register
def _(event: TrainerSubmitted, state: State) -> Draft:
    draft = Draft(state=state)
    if event.trainer in state.active or event.trainer in state.waiting:
        return draft
    trainer = Trainer(id=event.trainer, spec=event.spec, submitted_at=event.time)
    queued = replace(state, waiting=state.waiting.add(trainer))
    draft.state = with_places(queued)
    draft.decide = draft.state is not queued or state.settings.max_parallel is None
    return draft


@take.register
def _(event: PriorityChanged, state: State) -> Draft:
    trainer = state.trainer(event.trainer)
    if trainer is None or trainer.spec.priority == event.to:
        return Draft(state=state)
    after = replace(trainer, spec=replace(trainer.spec, priority=event.to))
    if trainer.id in state.waiting:
        state = replace(state, waiting=state.waiting.remove(trainer.id).add(after))
    else:
        state = replace(state, active={**state.active, trainer.id: after})
    return Draft(state=with_places(state), decide=True)


@take.register
def _(event: TrainerCancelled, state: State) -> Draft:
    return _ended(state, event.trainer, TrainerStatus.CANCELLED, "cancelled by its user")


@take.register
def _(event: TrainerEnded, state: State) -> Draft:
    trainer = state.trainer(event.trainer)
    if trainer is None or event.generation > trainer.published:
        return Draft(state=state)
    return _ended(state, event.trainer, event.status, event.reason)


@take.register
def _(event: WorkerLost, state: State) -> Draft:
    draft = Draft(state=state)
    trainer = state.active.get(event.trainer)
    if trainer is None or trainer.started.get(event.node) != event.generation:
        return draft  # an earlier worker of this node, which has been replaced already
    if state.gpus.too_few(trainer.spec, (event.node,)):  # the node is to blame: others may do
        draft.put(without(trainer, frozenset({event.node})))
        draft.restart, draft.decide = ((event.trainer, event.node),), True
        return draft
    failures, incident = trainer.failures, event.blame and event.generation > trainer.failed_in
    failed_at = trainer.failed_at
    if incident:
        failures = failures + 1 if event.samples <= trainer.progress else 1
        failed_at = (*(at for at in failed_at if event.time - at < HOUR_S), event.time)
        most = state.settings.max_failures_per_h
        if failures > state.settings.max_failures:
            return _ended(state, event.trainer, TrainerStatus.FAILED, event.reason)
        if len(failed_at) > most:
            told = FAILED_OFTEN.say(reason=event.reason, failures=len(failed_at), most=most)
            return _ended(state, event.trainer, TrainerStatus.FAILED, told)
    survivor = replace(
        without(trainer, frozenset({event.node})),
        nodes=trainer.nodes,
        failures=failures,
        failed_in=trainer.generation if incident else trainer.failed_in,
        failed_at=failed_at,
        progress=max(event.samples, trainer.progress) if incident else trainer.progress,
        late=trainer.late or event.late,
    )
    draft.put(survivor)
    draft.restart = ((event.trainer, event.node),)
    if survivor.yields and not trainer.yields:
        draft.state, draft.decide = with_places(draft.state), True
    return draft


@take.register
def _(event: WorkersReady, state: State) -> Draft:
    draft = Draft(state=state)
    trainer = state.active.get(event.trainer)
    if trainer is not None:
        joining = trainer.joining
        fresh = frozenset(n for n in event.nodes if joining.get(n) == event.generation)
        if fresh:
            draft.put(replace(trainer, warm=trainer.warm | fresh))
    return draft


@take.register
def _(event: Measured, state: State) -> Draft:
    draft = Draft(state=state)
    trainer = state.active.get(event.trainer)
    if trainer is None or event.generation != trainer.published:
        return draft
    node_class = state.node_info.get(next(iter(trainer.members), ""), NodeInfo()).node_class
    before = trainer
    if event.left is not None:
        trainer = replace(trainer, left=event.left)
    if event.use is not None:
        trainer = pairs.with_use(trainer, event)
        draft.decide = pairs.differs(before, trainer)
        if event.use.beside:  # it says nothing of its speed alone
            draft.put(trainer)
            return draft
    trainer, programs = estimate.with_measurement(trainer, state.programs, event, node_class)
    draft.state = replace(state, programs=programs)
    draft.put(trainer)
    if event.point is not None and trainer.id in state.estimates:
        old, counts = state.estimates[trainer.id], goodput_counts(state.settings)
        new = estimate.estimates(trainer, programs, 1.0, goodput=counts)
        name = node_class if node_class in new else None
        in_goodput = metric.counts_goodput(state.settings.objective)
        draft.decide |= fit.differs_enough(old[name], new[name], in_goodput=in_goodput)
    return draft


@take.register
def _(event: Resync, state: State) -> Draft:
    trainer = state.active.get(event.trainer)
    current = trainer is not None and trainer.members and trainer.published == event.generation
    return Draft(state=state, regroup=frozenset({event.trainer}) if current else frozenset())


@take.register
def _(event: Lasted, state: State) -> Draft:
    trainer = state.active.get(event.trainer)
    return Draft(state=state, decide=trainer is not None and trainer.published == event.generation)


@take.register
def _(event: Drain, state: State) -> Draft:
    return Draft(state=replace(state, draining=True), decide=True)


@take.register
def _(event: Resume, state: State) -> Draft:
    return Draft(state=replace(state, draining=False), decide=state.draining)


@take.register
def _(event: PolicyChanged, state: State) -> Draft:
    """Trainers that hold nodes may go on, even above a new limit; waiting ones move up to it."""
    return Draft(state=with_places(state), decide=True)


@take.register
def _(event: PlanDue, state: State) -> Draft:
    return Draft(state=state, decide=True)


@take.register
def _(event: MachineChanged, state: State) -> Draft:
    known = replace(state, machine=event.nodes, gpus=replace(state.gpus, machine=event.gpus))
    after = with_places(known)
    return Draft(state=after, decide=after is not known)


@take.register
def _(event: GpusChanged, state: State) -> Draft:
    """A trainer gives up nodes that have too few GPUs for its workers, unless they run: what runs goes on."""
    gpus = state.gpus.with_changes(event.nodes, event.told)
    active = {
        id_: without(trainer, stuck)
        if (stuck := gpus.too_few(trainer.spec, trainer.nodes - frozenset(trainer.members)))
        else trainer
        for id_, trainer in state.active.items()
    }
    counting = any(t.spec.workers > 1 for t in active.values()) or state.waiting.counts_workers
    return Draft(state=replace(state, gpus=gpus, active=active), decide=counting and bool(state.pool))


@take.register
def _(event: UsersBarred, state: State) -> Draft:
    """Trainers of these users that run go on, without growing; the others are set aside. A trainer gives up
    nodes on which its user gets no pilots, unless it runs there."""
    off, changed = event.nodes, _differing(event.nodes, state.kept_off)
    active = {
        id_: without(trainer, stuck)
        if (stuck := trainer.nodes & off.get(trainer.spec.user, frozenset()) - frozenset(trainer.members))
        else trainer
        for id_, trainer in state.active.items()
    }
    after = replace(state, barred=event.users, kept_off=off, active=active)
    given_up = any(active[id_] is not trainer for id_, trainer in state.active.items())
    decide = given_up or event.users != state.barred or not state.pool.isdisjoint(changed)
    return Draft(state=with_places(after), decide=decide)


@take.register
def _(event: PollFailed, state: State) -> Draft:
    return Draft(state=state)


@take.register
def _(event: HeadroomChanged, state: State) -> Draft:
    return Draft(state=state)


@take.register
def _(event: StudyForecast, state: State) -> Draft:
    return Draft(state=state)


def _differing(one: Mapping[str, frozenset[str]], other: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The nodes that only one of the two has for some user."""
    nothing = frozenset[str]()
    changes = (one.get(user, nothing) ^ other.get(user, nothing) for user in one.keys() | other.keys())
    return nothing.union(*changes)


def _ended(state: State, id_: int, status: TrainerStatus, reason: str) -> Draft:
    """The state without a trainer, active or waiting. Nothing changes if it is neither."""
    ended = Ended(trainer=id_, status=status, reason=reason)
    if id_ in state.active:
        others = {other: trainer for other, trainer in state.active.items() if other != id_}
        left = replace(state, active=others, displaced=state.displaced - {id_})
        return Draft(state=with_places(left), decide=True, ended=ended)
    if id_ in state.waiting:
        return Draft(state=replace(state, waiting=state.waiting.remove(id_)), ended=ended)
    return Draft(state=state)


def without(trainer: Trainer, gone: frozenset[str]) -> Trainer:
    """A trainer after it has lost nodes, with their workers."""
    return replace(
        trainer,
        nodes=trainer.nodes - gone,
        members=tuple(n for n in trainer.members if n not in gone),
        started={n: g for n, g in trainer.started.items() if n not in gone},
        warm=trainer.warm - gone,
    )
