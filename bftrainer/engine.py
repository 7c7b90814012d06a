"""(state, event) -> (state, actions): every decision of bftrainer, and no side effect.

The daemon feeds it what schedulers and agents report, the replay what a log and a simulated launcher
say; nothing here knows which. Time comes with the event. The life of a change:

1. Nodes join or leave, a trainer arrives, ends or changes: `allocate` plans anew over the first
   `max_parallel` unfinished trainers (first come, first served).
2. Added nodes get `StartWorker`. Members train on until every worker that was started at the same
   moment reports ready; then one `Regroup` publishes the new membership (publish when ready).
3. Lost members are regrouped away at once, without waiting for anything.

A trainer's `generation` grows with every step that acts on it, `published` is the one of its current
membership; reports that carry another one are ignored (fencing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import singledispatch
from statistics import median

from bftrainer import curve, objective
from bftrainer.allocate.assign import assign
from bftrainer.model import (
    ASSUMED_COSTS,
    Action,
    Candidate,
    Cost,
    Drain,
    Ended,
    EngineSettings,
    Event,
    Measured,
    NodesChanged,
    Plan,
    Points,
    PollFailed,
    Problem,
    Regroup,
    RescaleCosts,
    Resync,
    StartWorker,
    StopWorker,
    Trainer,
    TrainerCancelled,
    TrainerEnded,
    TrainerStatus,
    TrainerSubmitted,
    WorkerLost,
    WorkersReady,
)

Solve = Callable[[Problem], Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that decisions depend on: the pool and the unfinished trainers in order of arrival.

    `active` are the first `max_parallel` of them (section 5.3): they alone may hold nodes. The others
    are `waiting`; an event costs nothing for them, however many there are.
    """

    settings: EngineSettings
    pool: frozenset[str] = frozenset()
    active: Mapping[int, Trainer] = field(default_factory=dict)
    waiting: Mapping[int, Trainer] = field(default_factory=dict)
    draining: bool = False

    @property
    def trainers(self) -> dict[int, Trainer]:
        return {**self.active, **self.waiting}


def restore(settings: EngineSettings, pool: frozenset[str], trainers: Iterable[Trainer]) -> State:
    """The state after a restart, from stored trainers in order of arrival.

    Nodes that are no longer in the pool are taken out; whoever is not among the active ones holds
    none (the daemon finds their workers unwanted and has them leave).
    """
    ordered = [_without(t, t.nodes - pool) for t in trainers]
    active, waiting = ordered[: settings.max_parallel], ordered[settings.max_parallel :]
    return State(
        settings=settings,
        pool=pool,
        active={t.id: t for t in active},
        waiting={t.id: _without(t, t.nodes) for t in waiting},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one event led to. `plan` is None where nothing had to be decided."""

    state: State
    actions: tuple[Action, ...] = ()
    plan: Plan | None = None
    ended: Ended | None = None


def step(state: State, event: Event, solve: Solve) -> Step:
    """Take one event in. `solve` answers the allocation problem, see `allocate`."""
    taken = _take(event, state)
    plan, after = _decide(state, taken, solve) if taken.decide else (None, taken.active)
    actions: list[Action] = []
    active: dict[int, Trainer] = {}
    for id_, trainer in after.items():
        before = state.active.get(id_, taken.active[id_])
        force = id_ in taken.regroup
        if trainer is before and not force:
            active[id_] = trainer
            continue
        active[id_], own = _settle(before, trainer, taken, force=force)
        actions += own
    if taken.ended is not None and (gone := state.active.get(taken.ended.trainer)) is not None:
        actions += _dissolve(gone)
    return Step(
        state=State(
            settings=state.settings,
            pool=taken.pool,
            active=active,
            waiting=taken.waiting,
            draining=taken.draining,
        ),
        actions=tuple(sorted(actions, key=_order)),
        plan=plan,
        ended=taken.ended,
    )


def problem(settings: EngineSettings, pool: frozenset[str], trainers: tuple[Trainer, ...]) -> Problem:
    """The allocation problem over `trainers`, which hold nodes of `pool` only."""
    return Problem(
        pool_size=len(pool),
        t_fwd_s=settings.t_fwd_s,
        candidates=tuple(
            Candidate(
                trainer=t.id,
                n_min=t.spec.n_min,
                n_max=t.spec.n_max,
                current=len(t.nodes),
                curve=objective.metric(settings.objective, points),
                weight=t.spec.weight,
                costs=costs_of(t),
            )
            for t, points in zip(trainers, curves_of(trainers), strict=True)
        ),
    )


def curves_of(trainers: tuple[Trainer, ...]) -> tuple[Points, ...]:
    """Each trainer's curve: given, or learnt; linear until measured.

    A trainer of which nothing is known is taken to be as fast on one node as the others are (their
    median), so that it is neither starved nor preferred before it has been seen.
    """
    known = [t.spec.curve or t.measured for t in trainers]
    typical = median([curve.rate(points, 1) for points in known if points] or [1.0])
    return tuple(t.spec.curve or curve.learnt(t.measured, t.spec.n_max, typical) for t in trainers)


def costs_of(trainer: Trainer) -> RescaleCosts:
    """Rescale costs: given, else measured, else assumed."""
    return trainer.spec.costs or trainer.measured_costs or ASSUMED_COSTS


# --- taking an event in --------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Taken:
    """The state with an event's facts in it, before anything is decided. Local to one step."""

    pool: frozenset[str]
    active: dict[int, Trainer]
    waiting: Mapping[int, Trainer]
    draining: bool
    decide: bool = False
    regroup: frozenset[int] = frozenset()  # trainers whose membership must be published anew
    restart: tuple[tuple[int, str], ...] = ()  # workers to start again
    ended: Ended | None = None


def _facts(state: State) -> _Taken:
    return _Taken(pool=state.pool, active=dict(state.active), waiting=state.waiting, draining=state.draining)


@singledispatch
def _take(event: Event, state: State) -> _Taken:
    raise TypeError(f"not an event: {event!r}")


@_take.register
def _(event: NodesChanged, state: State) -> _Taken:
    taken = _facts(state)
    for id_, trainer in state.active.items():
        if not event.left.isdisjoint(trainer.nodes):
            taken.active[id_] = _without(trainer, event.left)
    taken.decide = not (event.left.isdisjoint(state.pool) and event.joined <= state.pool)
    taken.pool = (state.pool - event.left) | event.joined
    return taken


@_take.register
def _(event: TrainerSubmitted, state: State) -> _Taken:
    taken = _facts(state)
    if event.trainer in state.active or event.trainer in state.waiting:
        return taken
    trainer = Trainer(id=event.trainer, spec=event.spec, submitted_at=event.time)
    if len(state.active) < state.settings.max_parallel:
        taken.active[event.trainer] = trainer
        taken.decide = True
    else:
        taken.waiting = {**state.waiting, event.trainer: trainer}
    return taken


@_take.register
def _(event: TrainerCancelled, state: State) -> _Taken:
    return _end(state, event.trainer, TrainerStatus.CANCELLED, "cancelled by its user")


@_take.register
def _(event: TrainerEnded, state: State) -> _Taken:
    trainer = state.active.get(event.trainer)
    if trainer is None or event.generation != trainer.published:
        return _facts(state)
    return _end(state, event.trainer, event.status, event.reason)


@_take.register
def _(event: WorkerLost, state: State) -> _Taken:
    taken = _facts(state)
    trainer = state.active.get(event.trainer)
    if trainer is None or trainer.started.get(event.node) != event.generation:
        return taken  # an earlier worker of this node, which has been replaced already
    failures, incident = trainer.failures, event.blame and event.generation > trainer.failed_in
    if incident:
        failures = failures + 1 if event.samples <= trainer.progress else 1
        if failures > state.settings.max_failures:
            return _end(state, event.trainer, TrainerStatus.FAILED, event.reason)
    survivor = _without(trainer, frozenset({event.node}))
    taken.active[event.trainer] = replace(
        survivor,
        nodes=trainer.nodes,
        failures=failures,
        failed_in=trainer.generation if incident else trainer.failed_in,
        progress=event.samples if incident else trainer.progress,
    )
    taken.restart = ((event.trainer, event.node),)
    return taken


@_take.register
def _(event: WorkersReady, state: State) -> _Taken:
    taken = _facts(state)
    trainer = state.active.get(event.trainer)
    if trainer is not None:
        fresh = frozenset(n for n in event.nodes if trainer.joining.get(n) == event.generation)
        if fresh:
            taken.active[event.trainer] = replace(trainer, warm=trainer.warm | fresh)
    return taken


@_take.register
def _(event: Measured, state: State) -> _Taken:
    taken = _facts(state)
    trainer = state.active.get(event.trainer)
    if trainer is None or event.generation != trainer.published:
        return taken
    if event.point is not None:
        taken.decide = event.point[0] not in dict(trainer.measured) and trainer.spec.curve is None
        trainer = replace(trainer, measured=curve.updated(trainer.measured, event.point))
    if event.up is not None or event.down is not None:
        costs = costs_of(replace(trainer, spec=replace(trainer.spec, costs=None)))
        known = trainer.measured_costs is not None
        trainer = replace(
            trainer,
            measured_costs=RescaleCosts(
                up=_blend(costs.up, event.up, known=known), down=_blend(costs.down, event.down, known=known)
            ),
        )
    taken.active[event.trainer] = trainer
    return taken


@_take.register
def _(event: Resync, state: State) -> _Taken:
    taken = _facts(state)
    trainer = state.active.get(event.trainer)
    if trainer is not None and trainer.members and trainer.published == event.generation:
        taken.regroup = frozenset({event.trainer})
    return taken


@_take.register
def _(event: Drain, state: State) -> _Taken:
    taken = _facts(state)
    taken.decide = taken.draining = True
    return taken


@_take.register
def _(event: PollFailed, state: State) -> _Taken:
    return _facts(state)


def _end(state: State, id_: int, status: TrainerStatus, reason: str) -> _Taken:
    taken = _facts(state)
    if taken.active.pop(id_, None) is not None:
        for promoted in list(state.waiting.values())[:1]:
            taken.active[promoted.id] = promoted
            taken.waiting = {i: t for i, t in state.waiting.items() if i != promoted.id}
        taken.decide = True
    elif id_ in state.waiting:
        taken.waiting = {i: t for i, t in state.waiting.items() if i != id_}
    else:
        return taken
    taken.ended = Ended(trainer=id_, status=status, reason=reason)
    return taken


def _without(trainer: Trainer, gone: frozenset[str]) -> Trainer:
    return replace(
        trainer,
        nodes=trainer.nodes - gone,
        members=tuple(n for n in trainer.members if n not in gone),
        started={n: g for n, g in trainer.started.items() if n not in gone},
        warm=trainer.warm - gone,
    )


def _blend(old: Cost, new: Cost | None, *, known: bool) -> Cost:
    if new is None:
        return old
    if not known:
        return new
    return Cost(stall_s=(old.stall_s + new.stall_s) / 2, init_s=(old.init_s + new.init_s) / 2)


# --- deciding ------------------------------------------------------------------------------------


def _decide(state: State, taken: _Taken, solve: Solve) -> tuple[Plan | None, dict[int, Trainer]]:
    ready = () if taken.draining else tuple(taken.active.values())
    current = {t.id: t.nodes for t in taken.active.values() if t.nodes}
    plan = None
    counts: Mapping[int, int] = {}
    if ready:
        plan = solve(problem(state.settings, taken.pool, ready))
        counts = plan.counts
    members = {t.id: frozenset(t.members) for t in ready}
    target = assign(counts, current, taken.pool, members)
    after = dict(taken.active)
    for id_ in target.keys() | current.keys():
        trainer, nodes = after[id_], target.get(id_, frozenset())
        if nodes != trainer.nodes:
            after[id_] = replace(_without(trainer, trainer.nodes - nodes), nodes=nodes)
    if plan is not None:
        plan = replace(plan, allocation=target)
    return plan, after


# --- from what is wanted to what is to be done ---------------------------------------------------


def _settle(before: Trainer, now: Trainer, taken: _Taken, *, force: bool) -> tuple[Trainer, list[Action]]:
    """Publish and start what `now` needs over `before`; one generation per step that acts."""
    generation = now.generation + 1
    restart = [node for id_, node in taken.restart if id_ == now.id]
    new = sorted(now.nodes - now.started.keys())
    now = replace(now, started={**now.started, **dict.fromkeys(new, generation)})
    members, warm = _publish(now)
    released = (before.nodes - now.nodes) & taken.pool
    leaving = tuple(n for n in before.members if n in released)
    stopping = {n for n in before.joining if n in released}
    enough = len(members) >= now.spec.n_min
    regroup = force or members != before.members
    if not enough and members:  # survivors that wait for more nodes keep the state: the others may just go
        stopping |= set(leaving)
        regroup = False
    actions: list[Action] = [
        StopWorker(trainer=now.id, generation=generation, node=node) for node in sorted(stopping)
    ]
    if regroup and (members or leaving):
        actions.append(Regroup(trainer=now.id, generation=generation, members=members, leaving=leaving))
        now = replace(now, published=generation)
    actions += [
        StartWorker(
            trainer=now.id,
            generation=generation,
            node=node,
            attempt=now.failures if node in restart else 0,
        )
        for node in new
    ]
    now = replace(now, members=members, warm=warm)
    return (replace(now, generation=generation), actions) if actions else (now, [])


def _publish(trainer: Trainer) -> tuple[tuple[str, ...], frozenset[str]]:
    """Members and warm after every complete batch of newcomers has become members.

    A batch is what one generation started; it is complete when all of it that is left is warm. While
    that makes too few to run (n_min), the newcomers go on waiting, warm.
    """
    joining = trainer.joining
    cold = {generation for node, generation in joining.items() if node not in trainer.warm}
    whole = sorted(node for node, generation in joining.items() if generation not in cold)
    members = (*trainer.members, *whole)
    if len(members) < trainer.spec.n_min:
        return trainer.members, trainer.warm
    return members, trainer.warm - frozenset(whole)


def _dissolve(trainer: Trainer) -> list[Action]:
    """A trainer is over: its members checkpoint and leave, its newcomers stop."""
    generation = trainer.generation + 1
    actions: list[Action] = [
        StopWorker(trainer=trainer.id, generation=generation, node=node) for node in sorted(trainer.joining)
    ]
    if trainer.members:
        actions.append(
            Regroup(trainer=trainer.id, generation=generation, members=(), leaving=trainer.members)
        )
    return actions


def _order(action: Action) -> tuple[int, int]:
    """Nodes are vacated before they are taken."""
    return {StopWorker: 0, Regroup: 1, StartWorker: 2}[type(action)], action.trainer
