"""Gives out the `max_parallel` places, whose trainers alone may hold nodes. Pure.

Higher priority first. Among trainers of one priority, places go to the user with the fewest, then first come,
first served; with one user that is the published order. A user that waits takes a place from one that has at
least two more, so that nobody's trainers keep all places for as long as they like; places count by the users'
weights (`user_shares`). A trainer that asks for more nodes than it can ever get here has no place, and one
whose user is barred; it waits, in nobody's way. One that kept its nodes without running (`Trainer.yields`)
gets a place after all others.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from bftrainer.engine.gpus.too_few import NodeGpus
from bftrainer.engine.queueing.fair_shares import weight_of
from bftrainer.engine.queueing.queue import Class, class_of, rank
from bftrainer.engine.state import State
from bftrainer.model.policy import EngineSettings
from bftrainer.model.trainer import Trainer, TrainerSpec

NO_GPUS = NodeGpus()
EQUAL: Mapping[str, float] = MappingProxyType({})


def why_never(
    spec: TrainerSpec,
    settings: EngineSettings,
    machine: Mapping[str, int] | None,
    gpus: NodeGpus = NO_GPUS,
) -> str:
    """Return why a trainer can never run, in words for its user; empty if it can, as far as is known.

    `machine` has the number of nodes of each class, see `State.machine`; `gpus` how many GPUs they have.
    """
    needs, cap = f"needs at least {spec.n_min:,} {settings.unit}s", settings.user_max_nodes
    if cap is not None and spec.n_min > cap:
        return f"{needs}; one user's trainers hold at most {cap:,} here (user_max_nodes)"
    if machine is None:
        return ""
    unusable = {name for name, points in spec.curves if not points}
    usable = [size for name, size in machine.items() if name not in unusable]
    most = max(usable, default=0)
    if spec.n_min <= most:
        return _too_few_gpus(spec, machine, gpus)
    whose = "this machine has" if len(machine) < 2 else "no class of nodes that it can use has more than"
    return f"{needs}; {whose} {most:,}"


def _too_few_gpus(spec: TrainerSpec, machine: Mapping[str, int], gpus: NodeGpus) -> str:
    """Return why no nodes can run a trainer's workers with a GPU each; empty if enough can."""
    unusable = {name for name, points in spec.curves if not points}
    fit = {name: size - gpus.unusable(spec, name) for name, size in machine.items() if name not in unusable}
    if (most := max(fit.values(), default=0)) >= spec.n_min:
        return ""
    nodes = f"{spec.n_min:,} node{'s' if spec.n_min > 1 else ''}"
    there = f"{most:,} of this machine's have so many" if most else f"no node has more than {gpus.most:,}"
    return f"needs at least {nodes} with {spec.workers:,} GPUs, one for each worker (nodes.workers); {there}"


def with_places(state: State) -> State:
    """Return the state with places dealt out again, as far as `max_parallel` limits them.

    Trainers that got one are active; active ones without a place are `displaced`. Without that limit, all
    that hold nodes have a place.
    """
    limit = state.settings.max_parallel
    if limit is None:
        return replace(state, displaced=frozenset()) if state.displaced else state
    placed = {
        t.id: t
        for t in state.active.values()
        if t.id not in state.displaced
        and not t.yields
        and ((t.nodes and not state.set_aside(t)) or _can_run(state, t))
    }
    count = Counter(t.spec.user for t in placed.values())
    lines, weights = _Lines(state, placed), state.settings.user_shares
    while (first := _next(lines, placed, _Turns(count, weights), limit)) is not None:
        placed[first.id] = first
        count[first.spec.user] += 1
    new = [t for t in placed.values() if t.id not in state.active]
    waiting = state.waiting
    for trainer in new:
        waiting = waiting.remove(trainer.id)
    active = {**state.active, **{t.id: t for t in new}} if new else state.active
    displaced = frozenset(active.keys() - placed.keys())
    if not new and displaced == state.displaced:
        return state
    return replace(state, active=active, waiting=waiting, displaced=displaced)


def dealt(trainers: Iterable[Trainer], weights: Mapping[str, float] = EQUAL) -> list[Trainer]:
    """Trainers by priority; in each, first every user's first one, then every user's second, and so on; by
    the users' weights, where they differ."""
    seen: Counter[Class] = Counter()
    turns = []
    for trainer in sorted(trainers, key=rank):
        turn = (seen[class_of(trainer)] + 1) / weight_of(trainer.spec.user, weights)
        turns.append((-trainer.spec.priority, turn, rank(trainer), trainer))
        seen[class_of(trainer)] += 1
    return [trainer for *_, trainer in sorted(turns, key=lambda turn: turn[:3])]


class _Lines:
    """The trainers that could run and have no place: a line for each user and priority, by arrival."""

    def __init__(self, state: State, placed: Mapping[int, Trainer]) -> None:
        others: dict[Class, list[Trainer]] = {}
        for t in state.active.values():
            if t.id not in placed:
                others.setdefault(class_of(t), []).append(t)
        self._rest: dict[Class, Iterator[Trainer]] = {}
        self.heads: dict[Class, Trainer] = {}
        for own in state.waiting.users.keys() | others.keys():
            waiting = state.waiting.users.get(own, {}).values()
            line = heapq.merge(sorted(others.get(own, []), key=_turn), waiting, key=_turn)
            self._rest[own] = (t for t in line if _can_run(state, t))
            self._advance(own)

    def take(self, trainer: Trainer) -> Trainer:
        """Take the head of a line."""
        self._advance(class_of(trainer))
        return trainer

    def _advance(self, own: Class) -> None:
        self.heads.pop(own, None)
        head = next(self._rest[own], None)
        if head is not None:
            self.heads[own] = head


@dataclass(frozen=True, slots=True)
class _Turns:
    """The users' places, and the wait for the next one that follows."""

    count: Counter[str]
    weights: Mapping[str, float]

    def after(self, trainer: Trainer, more: int = 0) -> float:
        """The places of a trainer's user and `more`, by its weight: who has fewest is the next."""
        user = trainer.spec.user
        return (self.count[user] + more) / weight_of(user, self.weights)


def _next(lines: _Lines, placed: dict[int, Trainer], turns: _Turns, limit: int) -> Trainer | None:
    """Take the trainer that gets the next place out of its line; if no place is free, take it from another
    trainer. None if nobody gets one."""
    in_order = sorted(
        lines.heads.values(), key=lambda t: (t.yields, -t.spec.priority, turns.after(t, 1), rank(t))
    )
    for trainer in in_order:
        if len(placed) < limit:
            return lines.take(trainer)
        loser = _loser(placed, turns, trainer)
        if loser is not None:
            del placed[loser.id]
            turns.count[loser.spec.user] -= 1
            return lines.take(trainer)
    return None


def _loser(placed: Mapping[int, Trainer], turns: _Turns, trainer: Trainer) -> Trainer | None:
    """Return the trainer that gives up its place: of the user with most places for its weight, and more than
    the trainer's own would have with it, the one without nodes, or else the one that came last."""
    own = turns.after(trainer, 1)
    others = [t for t in placed.values() if t.spec.priority <= trainer.spec.priority and turns.after(t) > own]
    return max(others, key=lambda t: (turns.after(t), not t.nodes, rank(t)), default=None)


def _turn(trainer: Trainer) -> tuple[bool, float, float, int]:
    """Sorts a user's trainers of one priority: those that yield come last."""
    return trainer.yields, *rank(trainer)


def _can_run(state: State, trainer: Trainer) -> bool:
    never = why_never(trainer.spec, state.settings, state.machine, state.gpus)
    return not never and not state.set_aside(trainer)
