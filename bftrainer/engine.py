"""(state, event) -> (state, actions): every decision of bftrainer, and no side effect.

The daemon feeds it what schedulers and agents report, the replay what a log and a simulated launcher
say; nothing here knows which. Time comes with the event. The life of a change:

1. Nodes join or leave, a trainer arrives, ends or changes: `allocate` plans anew over the first
   `max_parallel` unfinished trainers (highest priority, then first come, first served), or over all.
2. Added nodes get `StartWorker`. Members train on until every worker that was started at the same
   moment reports ready; then one `Regroup` publishes the new membership (publish when ready).
3. Lost members are regrouped away at once, without waiting for anything.

A trainer's `generation` grows with every step that acts on it, `published` is the one of its current
membership; reports that carry another one are ignored (fencing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import singledispatch

import numpy as np

from bftrainer import beliefs as believing
from bftrainer import learn, objective, survival
from bftrainer.allocate.assign import assign
from bftrainer.backlog import Backlog, rank
from bftrainer.beliefs import Beliefs, Programs, beliefs_of, costs_of, limits, remembered, taught
from bftrainer.model import (
    Action,
    Candidate,
    Cap,
    Drain,
    Ended,
    EngineSettings,
    Event,
    Facts,
    Group,
    Measured,
    NodesChanged,
    Plan,
    PolicyChanged,
    PollFailed,
    Problem,
    Regroup,
    RescaleCosts,
    Resume,
    Resync,
    Scalability,
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
from bftrainer.survival import Survival

Solve = Callable[[Problem], Plan]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that decisions depend on: the pool and the unfinished trainers in order of arrival.

    `active` are those that may hold nodes: the first `max_parallel` (section 5.3), or, without that
    limit, those that have been given nodes once. The others are `waiting`; an event costs next to nothing
    for them, however many there are. `since` and `facts` say when nodes joined and what is known of
    them, `survival` how long nodes have stayed so far. `programs` are what trainers have shown of their
    programs, `beliefs` what the last plan took those trainers to be like that are learnt from.
    """

    settings: EngineSettings
    pool: frozenset[str] = frozenset()
    active: Mapping[int, Trainer] = field(default_factory=dict)
    waiting: Backlog = field(default_factory=Backlog)
    draining: bool = False
    since: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Facts] = field(default_factory=dict)
    survival: Survival = field(default_factory=Survival)
    programs: Programs = field(default_factory=dict)
    beliefs: Mapping[int, Beliefs] = field(default_factory=dict)

    @property
    def trainers(self) -> dict[int, Trainer]:
        return {**self.active, **{t.id: t for t in self.waiting}}


def restore(
    settings: EngineSettings, pool: frozenset[str], trainers: Iterable[Trainer], now: float = 0.0
) -> State:
    """The state after a restart at `now`, from stored trainers in order of arrival.

    Nodes that are no longer in the pool are taken out, and those that are of another class than most of
    a trainer's; whoever is not among the active ones holds none (the daemon finds their workers
    unwanted and has them leave).
    """
    facts = learn_facts(settings, {}, pool, {}, now)
    ordered = sorted(
        (without(t, t.nodes - of_one_class(t.nodes & pool, facts)) for t in trainers),
        key=lambda t: (not t.nodes, -t.spec.priority),
    )
    limit = sum(bool(t.nodes) for t in ordered) if settings.max_parallel is None else settings.max_parallel
    waiting = Backlog()
    for t in ordered[limit:]:
        waiting = waiting.add(without(t, t.nodes))
    return State(
        settings=settings,
        pool=pool,
        active={t.id: t for t in ordered[:limit]},
        waiting=waiting,
        since=dict.fromkeys(pool, now),
        facts=facts,
        programs=remembered(ordered),
    )


def of_one_class(nodes: frozenset[str], facts: Mapping[str, Facts]) -> frozenset[str]:
    """The nodes of the class that most of them are of."""
    classes: dict[str, set[str]] = {}
    for node in sorted(nodes):
        classes.setdefault(facts.get(node, Facts()).node_class, set()).add(node)
    return frozenset(max(classes.values(), key=len, default=()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one event led to. `plan` is None where nothing had to be decided."""

    state: State
    actions: tuple[Action, ...] = ()
    plan: Plan | None = None
    ended: Ended | None = None


def step(state: State, event: Event, solve: Solve) -> Step:
    """Take one event in. `solve` answers the allocation problem, see `allocate`."""
    taken = take(event, state)
    plan = None
    after = taken.active
    if taken.decide:
        plan, after = decide(state, taken, event.time, solve)
    actions: list[Action] = []
    active: dict[int, Trainer] = {}
    for id_, trainer in after.items():
        before = state.active.get(id_, taken.active[id_])
        force = id_ in taken.regroup
        if trainer is before and not force:
            active[id_] = trainer
            continue
        active[id_], own = settle(before, trainer, taken, force=force)
        actions += own
    if taken.ended is not None and (gone := state.active.get(taken.ended.trainer)) is not None:
        actions += dissolve(gone)
    return Step(
        state=replace(
            state,
            pool=taken.pool,
            active=active,
            waiting=taken.waiting,
            draining=taken.draining,
            since=taken.since,
            facts=taken.facts,
            survival=taken.survival,
            programs=taken.programs,
            beliefs=taken.beliefs,
        ),
        actions=tuple(sorted(actions, key=order)),
        plan=plan,
        ended=taken.ended,
    )


def problem(state: State, trainers: tuple[Trainer, ...], now: float) -> tuple[Problem, Parts]:
    """The allocation problem over `trainers`, and which nodes its groups are (none: all alike)."""
    settings, pool = state.settings, state.pool
    t_fwd_s = settings.t_fwd_s
    if t_fwd_s is None:
        ages = np.array([now - state.since[node] for node in pool])
        t_fwd_s = survival.forward_time(state.survival, ages)
    parts = parts_of(state, now, t_fwd_s)
    return Problem(
        pool_size=len(pool),
        t_fwd_s=t_fwd_s,
        candidates=tuple(
            _candidate(t, settings, state.programs, beliefs, costs, parts, now)
            for t, beliefs, costs in zip(
                trainers,
                beliefs_of(trainers, state.programs),
                costs_of(trainers, state.programs),
                strict=True,
            )
        ),
        caps=_caps(settings, trainers),
        groups=tuple(group for group, _ in parts),
    ), parts


def _candidate(
    t: Trainer,
    settings: EngineSettings,
    programs: Programs,
    beliefs: Beliefs,
    costs: RescaleCosts,
    parts: Parts,
    now: float,
) -> Candidate:
    points = beliefs[None].points
    n_min, n_max = limits(t, beliefs, programs, settings.profile_sizes)
    return Candidate(
        trainer=t.id,
        n_min=n_min,
        n_max=n_max,
        current=len(t.nodes),
        curve=objective.metric(settings.objective, points, t.spec.priority),
        weight=weight_of(t, settings, now),
        costs=costs,
        held=tuple(len(nodes & t.nodes) for _, nodes in parts) if t.nodes else (),
        curves=tuple(
            (name, objective.metric(settings.objective, own.points, t.spec.priority, points))
            for name, own in beliefs.items()
            if name is not None
        ),
    )


def weight_of(trainer: Trainer, settings: EngineSettings, now: float) -> float:
    """The weight that a trainer asks for; without P_jmax, it doubles with every `ageing_s` since it was
    submitted, so that whoever comes later outbids it for a limited time only: nobody starves."""
    if settings.max_parallel is not None or settings.ageing_s is None:
        return trainer.spec.weight
    return trainer.spec.weight * (1.0 + max(0.0, now - trainer.submitted_at) / settings.ageing_s)


def _caps(settings: EngineSettings, trainers: tuple[Trainer, ...]) -> tuple[Cap, ...]:
    if settings.user_max_nodes is None:
        return ()
    own: dict[str, list[int]] = {}
    for t in trainers:
        own.setdefault(t.spec.user, []).append(t.id)
    return tuple(Cap(trainers=frozenset(ids), n_max=settings.user_max_nodes) for ids in own.values())


# --- what is known of nodes ----------------------------------------------------------------------

Parts = tuple[tuple[Group, frozenset[str]], ...]
STEPS = 8
"""Expected times of departure are rounded down to so many steps of T_fwd."""


def learn_facts(
    settings: EngineSettings,
    known: Mapping[str, Facts],
    pool: frozenset[str],
    news: Mapping[str, Facts],
    now: float,
    joined: frozenset[str] = frozenset(),
) -> Mapping[str, Facts]:
    """What is known of the nodes of the pool, after `news` of some; nothing, where nothing is to know."""
    classes, groups = settings.node_classes, settings.departure_groups
    if not known and not news and not classes and groups == "none":
        return known
    facts = {node: fact for node, fact in known.items() if node in pool and node not in joined}
    for node in (pool - facts.keys()) | (pool & news.keys()):
        new, old = news.get(node, Facts()), facts.get(node, Facts())
        name = new.node_class or old.node_class
        label = new.group or old.group
        if node not in facts:
            name = name or next((c for c, nodes in classes.items() if node in nodes), "")
            label = label or {"joined": f"joined {now}", "cabinet": node.rstrip("0123456789")}.get(groups, "")
        facts[node] = Facts(node_class=name, group=label, until=new.until)
    return facts


def parts_of(state: State, now: float, t_fwd_s: float) -> Parts:
    """The pool divided where its nodes differ; nothing where they are all alike."""
    if not state.facts:
        return ()
    found: dict[tuple[str, str, float], set[str]] = {}
    for node in state.pool:
        fact = state.facts.get(node, Facts())
        remaining = float("inf")
        if fact.until is not None and fact.until < now + t_fwd_s:
            remaining = max(0, int((fact.until - now) / t_fwd_s * STEPS)) * t_fwd_s / STEPS
        found.setdefault((fact.node_class, fact.group, remaining), set()).add(node)
    parts = []
    for (name, label, remaining), nodes in sorted(found.items()):
        departures = 0.0
        if label:
            ages = np.array([now - min(state.since[node] for node in nodes)])
            departures = 1.0 - float(survival.stay(state.survival, ages, t_fwd_s)[0])
        group = Group(size=len(nodes), node_class=name, remaining_s=remaining, departures=departures)
        parts.append((group, frozenset(nodes)))
    return tuple(parts)


# --- taking an event in --------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Draft:
    """The state with an event's facts in it, before anything is decided. Local to one step."""

    pool: frozenset[str]
    active: dict[int, Trainer]
    waiting: Backlog
    draining: bool
    since: Mapping[str, float]
    facts: Mapping[str, Facts]
    survival: Survival
    programs: Programs
    beliefs: Mapping[int, Beliefs]
    vacated: frozenset[str] = frozenset()  # not in the pool any more, but their agents still listen
    decide: bool = False
    regroup: frozenset[int] = frozenset()  # trainers whose membership must be published anew
    restart: tuple[tuple[int, str], ...] = ()  # workers to start again
    ended: Ended | None = None


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
        beliefs=state.beliefs,
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
    where = state.facts.get(next(iter(trainer.members), ""), Facts()).node_class
    trainer, taken.programs = taught(trainer, state.programs, event, where)
    taken.active[trainer.id] = trainer
    if event.point is not None and trainer.id in state.beliefs:
        old, new = state.beliefs[trainer.id], believing.beliefs(trainer, taken.programs, 1.0)
        name = where if where in new else None
        taken.decide = learn.news(old[name], new[name])
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


# --- deciding ------------------------------------------------------------------------------------


def decide(state: State, taken: Draft, now: float, solve: Solve) -> tuple[Plan | None, dict[int, Trainer]]:
    """Plan anew. Those who wait and are given nodes become active, in `taken`, too."""
    asked: list[Trainer] = []
    if not taken.draining:
        asked = list(taken.active.values())
        if state.settings.max_parallel is None:
            asked = sorted(asked + taken.waiting.eligible(len(taken.pool)), key=rank)
            per_trainer = state.settings.nodes_per_trainer
            if per_trainer is not None:
                asked = asked[: math.ceil(len(taken.pool) / per_trainer)]
    current = {t.id: t.nodes for t in taken.active.values() if t.nodes}
    plan, target = None, dict[int, frozenset[str]]()
    if asked:
        seen = replace(
            state,
            pool=taken.pool,
            since=taken.since,
            facts=taken.facts,
            survival=taken.survival,
            programs=taken.programs,
        )
        question, parts = problem(seen, tuple(asked), now)
        plan = solve(question)
        taken.beliefs = {
            t.id: beliefs
            for t, beliefs in zip(asked, beliefs_of(tuple(asked), taken.programs), strict=True)
            if t.spec.scalability is Scalability.AUTO
        }
        members = {t.id: frozenset(t.members) for t in asked}
        for counts, nodes in _shares(plan, parts) or [(plan.counts, taken.pool)]:
            held = {t: own & nodes for t, own in current.items()}
            for id_, own in assign(counts, held, nodes, members).items():
                target[id_] = target.get(id_, frozenset()) | own
        for t in asked:
            if t.id in taken.waiting and target.get(t.id):
                taken.waiting = taken.waiting.remove(t.id)
                taken.active[t.id] = t
        plan = replace(
            plan,
            counts={i: n for i, n in plan.counts.items() if i in taken.active},
            allocation={i: nodes for i, nodes in target.items() if i in taken.active},
        )
    after = dict(taken.active)
    for id_ in taken.active.keys() & (target.keys() | current.keys()):
        trainer, nodes = after[id_], target.get(id_, frozenset())
        if nodes != trainer.nodes:
            after[id_] = replace(without(trainer, trainer.nodes - nodes), nodes=nodes)
    return plan, after


def _shares(plan: Plan, parts: Parts) -> list[tuple[Mapping[int, int], frozenset[str]]]:
    """Per group: how many of its nodes each trainer gets, and which they are."""
    return [({t: own[g] for t, own in plan.spread.items()}, nodes) for g, (_, nodes) in enumerate(parts)]


# --- from what is wanted to what is to be done ---------------------------------------------------


def settle(before: Trainer, now: Trainer, taken: Draft, *, force: bool) -> tuple[Trainer, list[Action]]:
    """Publish and start what `now` needs over `before`; one generation per step that acts."""
    generation = now.generation + 1
    restart = [node for id_, node in taken.restart if id_ == now.id]
    new = sorted(now.nodes - now.started.keys())
    now = replace(now, started={**now.started, **dict.fromkeys(new, generation)})
    members, warm = _publish(now)
    released = (before.nodes - now.nodes) & (taken.pool | taken.vacated)
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


def dissolve(trainer: Trainer) -> list[Action]:
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


def order(action: Action) -> tuple[int, int]:
    """Nodes are vacated before they are taken."""
    return {StopWorker: 0, Regroup: 1, StartWorker: 2}[type(action)], action.trainer
