"""Why a trainer has no nodes now, in words for its user. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from bftrainer.engine.question import by_user
from bftrainer.engine.queueing.places import why_never
from bftrainer.engine.state import State
from bftrainer.model.gpus import node_of
from bftrainer.model.machine import NodeInfo
from bftrainer.model.trainer import Trainer, TrainerSpec
from bftrainer.performance.estimate import costs_of

NAMED = 3
"""Trainers named that hold nodes, at most."""
FIRST = "bftrainer priority makes it the first of those that wait"
WEIGHT = "weight in its spec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """The pool's nodes as shared out at one moment, for `why` of any number of trainers.

    Attributes:
        state: That of the engine.
        pool: How many nodes of each class trainers may use.
        free: How many of them nobody holds.
        held: How many nodes of each class each trainer holds, those that hold most first.
        taken: The nodes that somebody holds.
        of_users: How many nodes each user's trainers hold.
        portions: The same in what users share, see `Ledger`.
        beside: How many free GPUs of each class are on nodes of each user's trainers, where GPUs of a node
            are for one user at a time: others cannot have them.
        beside_all: The same of all users.
    """

    state: State
    pool: Mapping[str, int]
    free: Mapping[str, int]
    held: tuple[tuple[Trainer, Mapping[str, int]], ...]
    taken: frozenset[str]
    of_users: Mapping[str, int]
    portions: Mapping[str, int]
    beside: Mapping[str, Counter[str]]
    beside_all: Counter[str]

    @classmethod
    def of(cls, state: State) -> Shortage:
        """Return the shortage in this state."""

        def by_class(nodes: frozenset[str]) -> Counter[str]:
            return Counter(state.node_info.get(node, NodeInfo()).node_class for node in nodes)

        holders = sorted((t for t in state.active.values() if t.nodes), key=lambda t: (-len(t.nodes), t.id))
        taken = frozenset[str]().union(*(t.nodes for t in holders))
        user_of = {node: t.spec.user for t in holders for node in t.nodes}
        of_users, beside = Counter(user_of.values()), dict[str, Counter[str]]()
        if state.portion.whole:
            there = {node_of(gpu): user for gpu, user in user_of.items()}
            left: dict[str, set[str]] = {}
            for gpu in state.pool - taken:
                if (user := there.get(node_of(gpu))) is not None:
                    left.setdefault(user, set()).add(gpu)
            beside = {user: by_class(frozenset(gpus)) for user, gpus in left.items()}
        return cls(
            state=state,
            pool=by_class(state.pool),
            free=by_class(state.pool - taken),
            held=tuple((t, by_class(t.nodes)) for t in holders),
            taken=taken,
            of_users=of_users,
            portions={user: state.ledger.portion.held(own) for user, own in by_user(holders).items()},
            beside=beside,
            beside_all=sum(beside.values(), Counter()),
        )

    def why(self, trainer: Trainer, left: Callable[[Trainer], str] = lambda holder: "") -> str:
        """Return why a trainer without nodes has none. Only trainers of its own user are named; `left` says
        for how long one of them will keep its nodes."""
        if found := self.hindrance(trainer):
            return found
        usable = self._usable(trainer.spec)
        free = self._most(trainer.spec)[1]
        needs = f"{self._needs(trainer.spec)}, {free:,} free"
        if others := sum(self._beside_others(trainer.spec).values()):
            needs += f" ({others:,} more on nodes of other users, share_nodes)"
        if free >= trainer.spec.n_min:
            slow = _after_comma(self._slow(trainer))
            return f"{needs}: the last plan gave it none{slow}, see bftrainer events"
        if used := self._share_used(trainer.spec):
            return f"{needs}; {used}"
        holders = [t for t, own in self.held if not usable.isdisjoint(own)]
        return needs + self._held_by(trainer.spec.user, holders, left)

    def remedy(self, trainer: Trainer) -> str:
        """Return what would make a trainer without nodes run, in words: the first obstacle."""
        spec, state = trainer.spec, self.state
        cap, own = state.settings.user_max_nodes, self.of_users.get(spec.user, 0)
        over = 0 if cap is None else own + spec.n_min - cap
        idle, free = self._most(spec)
        short = max(0, spec.n_min - idle)
        share_used = self._share_used(spec, more=short)
        others = f"another trainer of its user ends ({FIRST}), or other users want fewer"
        ways: tuple[tuple[object, str], ...] = (
            (
                why_never(spec, state.settings, state.machine, state.gpus),
                _ask_for_less(spec, state),
            ),
            (spec.user in state.barred, "pilots of its user start again, which is tried by itself"),
            (state.draining, "an admin says bftrainer admin resume"),
            (
                self._without_place(trainer),
                f"a trainer with a place ends ({FIRST}), or an admin raises max_parallel",
            ),
            (over > 0, f"its user's other trainers give up {self._counted(over)}"),
            (short, f"{self._counted(short)} more become idle" + (f", and {others}" if share_used else "")),
            (free < spec.n_min and share_used, others),
            (
                free < spec.n_min,
                f"another trainer ends or gives up {self._counted(spec.n_min - free)} ({FIRST}); or a higher "
                + ("priority, or weight in its spec" if "priority" in state.settings.objective else WEIGHT),
            ),
        )
        if slow := self._slow(trainer):
            ways += ((slow, f"an admin raises t_fwd_s above {self._start_s(trainer):.0f} s"),)
        nothing = "the next plan gives it some: nothing else is in its way"
        return next((way for hindered, way in ways if hindered), nothing)

    def hindrance(self, trainer: Trainer) -> str:
        """Return what keeps a trainer from nodes under any sharing; empty if nothing is known."""
        return (
            self._refused(trainer.spec) or self._without_place(trainer) or self._short_of_nodes(trainer.spec)
        )

    def blocked(self, trainer: Trainer) -> str:
        """Return what keeps a trainer from nodes even if others end; empty if nothing is known."""
        return self._refused(trainer.spec) or self._short_of_nodes(trainer.spec)

    def _refused(self, spec: TrainerSpec) -> str:
        state = self.state
        if never := why_never(spec, state.settings, state.machine, state.gpus):
            return f"can never run: {never}"
        if why := state.barred.get(spec.user):
            return f"its user gets no pilots for a while: {why}"
        if state.draining:
            return "the site gives nodes to no trainer until an admin says bftrainer admin resume"
        return ""

    def _without_place(self, trainer: Trainer) -> str:
        state, limit = self.state, self.state.settings.max_parallel
        has_place = trainer.id in state.active and trainer.id not in state.displaced
        if limit is not None and not has_place and len(state.active) - len(state.displaced) >= limit:
            return f"all {limit:,} places are taken (max_parallel)"
        return ""

    def _short_of_nodes(self, spec: TrainerSpec) -> str:
        cap = self.state.settings.user_max_nodes
        needs, own = self._needs(spec), self.of_users.get(spec.user, 0)
        if cap is not None and own + spec.n_min > cap:
            return f"{needs}; its user's trainers hold {own:,} of at most {cap:,} (user_max_nodes)"
        idle, _ = self._most(spec)
        if idle >= spec.n_min:
            return ""
        return f"{needs}, and {f'only {idle:,}' if idle else 'none'} of the machine's can be had now"

    def _slow(self, trainer: Trainer) -> str:
        """Return why a start may not pay; empty if it takes less time than nodes are assumed to stay."""
        t_fwd_s, start_s = self.state.settings.t_fwd_s, self._start_s(trainer)
        if t_fwd_s is None or start_s < t_fwd_s:
            return ""
        return f"as a start takes {start_s:.0f} s, and nodes are assumed to stay {t_fwd_s:.0f} s (t_fwd_s)"

    def _start_s(self, trainer: Trainer) -> float:
        return costs_of((trainer,), self.state.programs)[0].up.init_s

    def _held_by(self, user: str, holders: list[Trainer], left: Callable[[Trainer], str]) -> str:
        """Return the holders of the other nodes: this user's trainers by name, those of others by number."""
        mine = [t for t in holders if t.spec.user == user]
        words = [
            f"{t.spec.name} ({self._counted(len(t.nodes))}{_after_comma(left(t))})" for t in mine[:NAMED]
        ]
        rest = len(holders) - len(words)
        if rest:
            words.append(f"{rest:,} other trainer{'s' if rest > 1 else ''}" if words else _trainers(rest))
        return f": held by {', '.join(words)}" if words else ""

    def _share_used(self, spec: TrainerSpec, more: int = 0) -> str:
        """Say that a user holds all of its share of the pool, or would with `more` nodes, while other users
        want nodes; empty if not so."""
        ledger, portion = self.state.ledger, self.state.ledger.portion
        own, share = self.portions.get(spec.user, 0), ledger.shares.get(spec.user)
        least = portion.needed(spec.n_min)
        if share is None or len(ledger.shares) < 2:
            return ""
        share *= 1 + more / max(1, sum(self.pool.values()))
        if own + least < share + 1:  # it may be rounded up
            return ""
        unit = "node" if portion.whole else self.state.settings.unit
        return f"its user holds {own:,} of a share of {share:.3g} {unit}s (user_shares)"

    def _counted(self, count: int) -> str:
        """Return `count` nodes in words, or GPUs where these are shared out."""
        return f"{count:,} {self.state.settings.unit}{'' if count == 1 else 's'}"

    def _needs(self, spec: TrainerSpec) -> str:
        """Return how many nodes a trainer needs, and what they have to have."""
        some = self.state.gpus.too_few(spec, self.state.pool)
        return f"needs {self._counted(spec.n_min)}" + (f" with {spec.workers} GPUs each" if some else "")

    def _most(self, spec: TrainerSpec) -> tuple[int, int]:
        """Return how many nodes of one class in the pool a trainer can use, and how many of one are free."""
        usable = self._usable(spec)
        pool, free = ({name: of.get(name, 0) for name in usable} for of in (self.pool, self.free))
        for node in self.state.gpus.too_few(spec, self.state.pool):
            name = self.state.node_info.get(node, NodeInfo()).node_class
            if name in usable:
                pool[name] -= 1
                free[name] -= node not in self.taken
        for name, count in self._beside_others(spec).items():
            free[name] -= count
        return max(pool.values(), default=0), max(free.values(), default=0)

    def _beside_others(self, spec: TrainerSpec) -> Counter[str]:
        """Return how many free GPUs of each class that a trainer can use are on nodes of other users."""
        found = self.beside_all - self.beside.get(spec.user, Counter())
        return Counter({name: found[name] for name in self._usable(spec) & found.keys()})

    def _usable(self, spec: TrainerSpec) -> frozenset[str]:
        """The classes of nodes in the pool that a trainer can use."""
        return frozenset(self.pool) - {name for name, points in spec.curves if not points}


def why_queued(state: State, id_: int, spec: TrainerSpec, now: float) -> str:
    """Return why a newly submitted trainer will wait; empty if the next plan may give it nodes."""
    trainer = state.trainer(id_) or Trainer(id=id_, spec=spec, submitted_at=now)
    return "" if trainer.nodes else Shortage.of(state).hindrance(trainer)


def _ask_for_less(spec: TrainerSpec, state: State) -> str:
    """Return what a trainer that can never run must ask for instead."""
    if why_never(replace(spec, workers=0), state.settings, state.machine, state.gpus):
        return "ask for fewer nodes: lower nodes.min, or its sizes"
    return "ask for fewer workers on each node: nodes.workers: auto, or a lower number"


def _after_comma(text: str) -> str:
    return f", {text}" if text else ""


def _trainers(count: int) -> str:
    return f"{count:,} trainers of other users" if count > 1 else "a trainer of another user"
