"""Pairs of trainers that take turns on the same nodes (`share: time`). Pure.

The second of a pair, its guest, has the nodes of the first, its host: a plan counts both as one candidate,
with what both do together by turns. A pair stands or falls with the plan's objective. Two trainers may be one
if they are one user's, both want it, their sizes agree, and their memory is known and fits. What sharing
gains is expected from how long each has its turn in a step alone, until it is measured. A pair that is
measured to gain too little is parted, for good.

After Jigsaw (Kumar et al. 2021), which admits trainers to a device by their memory and iteration times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from bftrainer.model.events import Measured
from bftrainer.model.problem import Candidate, Problem
from bftrainer.model.sizes import AllowedSizes
from bftrainer.model.trainer import DeviceUse, Trainer
from bftrainer.performance import curve

LEAST_GAIN = 1.05
"""The sum of both speeds, each beside its own alone, below which turns gain nothing: a pair has that to spare
for what its measurement is wrong by."""
MORE, MOVES, STAYS = 1.02, 1.2, 1.0 / 1.1
"""Factors of the worth without a pair that a plan with it must reach: for a new pair, as it costs a start;
for a new one whose guest runs elsewhere, and restarts from a checkpoint; and for an existing one."""
ROOM = 1.1
"""Factor on the measured memory of a trainer, which it may need."""
KEPT = 16
"""Other trainers beside which a trainer's measured speed is kept, at most."""
MOST = 8
"""New pairs that a plan tries, at most: each is a problem of its own."""


class Sized(Protocol):
    """A spec or a candidate, as far as its numbers of nodes go."""

    @property
    def sizes(self) -> AllowedSizes:
        """Those between the least and the most that it may have."""
        ...

    @property
    def n_min(self) -> int:
        """The fewest nodes."""
        ...

    @property
    def n_max(self) -> int:
        """The most nodes."""
        ...


@dataclass(frozen=True, slots=True)
class Pair:
    """Two trainers on the same nodes, and how fast each is there beside its speed alone. `margin`: the factor
    by which the plan with the pair must exceed the one without."""

    host: int
    guest: int
    host_speed: float
    guest_speed: float
    margin: float

    @property
    def gain(self) -> float:
        """The sum of both speeds; 1 is that of one alone."""
        return self.host_speed + self.guest_speed


def hosts_of(active: Mapping[int, Trainer]) -> dict[int, int]:
    """Guest -> its host, of the trainers that are on the same nodes. The earlier is the host."""
    on: dict[str, int] = {}
    found: dict[int, int] = {}
    for id_ in sorted(t.id for t in active.values() if t.spec.takes_turns):
        for node in active[id_].nodes:
            if (host := on.setdefault(node, id_)) != id_:
                found[id_] = host
    return found


def proposed(trainers: Sequence[Trainer], active: Mapping[int, Trainer]) -> list[Pair]:
    """The pairs that a plan may have: those that there are already first, then those that gain most."""
    sharing = [t for t in trainers if t.spec.takes_turns]
    known, taken = {t.id: t for t in sharing}, set[int]()
    pairs: list[Pair] = []
    for guest, host in hosts_of(active).items():
        if guest in known and host in known:
            pair = pair_of(known[host], known[guest], STAYS)
            if pair is not None:
                pairs.append(pair)
                taken |= {guest, host}
    rest = [t for t in sharing if t.id not in taken]
    others = (
        pair_of(host, guest, MOVES if guest.nodes else MORE)
        for i, host in enumerate(rest)
        if host.members
        for guest in rest[:i] + rest[i + 1 :]
        if not guest.nodes or guest.id > host.id
    )
    for pair in sorted((pair for pair in others if pair is not None), key=lambda pair: -pair.gain):
        if len(pairs) < MOST and not taken & {pair.host, pair.guest}:
            pairs.append(pair)
            taken |= {pair.host, pair.guest}
    return pairs


def pair_of(host: Trainer, guest: Trainer, margin: float) -> Pair | None:
    """The pair of two trainers; None if they cannot share nodes, or gain too little."""
    alike = host.spec.user == guest.spec.user and host.spec.workers == guest.spec.workers
    if not alike or _common(host.spec, guest.spec) is None or not fits(host, guest):
        return None
    speeds = speeds_of(host, guest)
    if speeds is None or sum(speeds) < LEAST_GAIN:
        return None
    return Pair(host.id, guest.id, *speeds, margin)


def fits(host: Trainer, guest: Trainer) -> bool:
    """Return whether the memory of both is known, declared or measured, and a device has room for it."""
    there = next((t.use.memory for t in (host, guest) if t.use is not None and t.use.memory), 0)
    needs = [_memory(t) for t in (host, guest)]
    return 0 not in needs and sum(needs) <= there


def _memory(t: Trainer) -> float:
    return max(float(t.spec.memory), ROOM * t.use.peak if t.use is not None else 0.0)


def speeds_of(host: Trainer, guest: Trainer) -> tuple[float, float] | None:
    """Return both speeds by turns, relative to those alone: as measured, or else as expected.

    Of a guest that has never run nothing is known: it is taken to be like its host, until it is measured.
    None: of neither anything is known.
    """
    measured = host.shared.get(guest.id), guest.shared.get(host.id)
    if measured[0] is not None and measured[1] is not None:
        return measured[0], measured[1]
    uses = host.use or guest.use, guest.use or host.use
    if uses[0] is None or uses[1] is None:
        return None
    return expected(uses[0], uses[1])


def expected(one: DeviceUse, other: DeviceUse) -> tuple[float, float]:
    """Return how fast two trainers are that compute in turn, step by step, beside their speeds alone: a step
    of both takes as long as both compute, or as the longer step alone."""
    cycle = max(one.held_s + other.held_s, one.alone_s, other.alone_s)
    if cycle <= 0.0:
        return 1.0, 1.0
    return one.alone_s / cycle, other.alone_s / cycle


def paired(question: Problem, pairs: Sequence[Pair]) -> Problem | None:
    """The problem in which each pair is one candidate, its host; None if no size is left for one of them."""
    known = {c.trainer: c for c in question.candidates}
    both = {pair.host: _joint(known[pair.host], known[pair.guest], pair) for pair in pairs}
    guests = {pair.guest for pair in pairs}
    candidates = [both.get(c.trainer, c) for c in question.candidates if c.trainer not in guests]
    caps = tuple(replace(cap, trainers=cap.trainers - guests) for cap in question.caps)
    found = tuple(c for c in candidates if c is not None)
    return replace(question, candidates=found, caps=caps) if len(found) == len(candidates) else None


def _joint(host: Candidate, guest: Candidate, pair: Pair) -> Candidate | None:
    """Both trainers as one: what they are worth together, on sizes that both allow; None: there is none."""
    common = _common(host, guest)
    if common is None:
        return None
    sizes, least, most = common
    weight = host.weight + guest.weight
    parts = ((host, host.weight * pair.host_speed), (guest, guest.weight * pair.guest_speed))
    points = tuple(
        (n, sum(share * curve.rate(c.curve, n) for c, share in parts) / weight)
        for n in sorted({n for n, _ in (*host.curve, *guest.curve)})
    )
    return replace(host, curve=points, weight=weight, n_min=least, n_max=most, sizes=sizes)


def _common(one: Sized, other: Sized) -> tuple[AllowedSizes, int, int] | None:
    """The sizes that two allow, with the smallest and the largest; None if that is not told easily, or there
    are none."""
    if not (one.sizes.every or other.sizes.every or one.sizes == other.sizes):
        return None
    sizes = other.sizes if one.sizes.every else one.sizes
    least = sizes.above(max(one.n_min, other.n_min) - 1)
    most = sizes.floor(min(one.n_max, other.n_max))
    return (sizes, least, most) if 0 < least <= most else None


def alone(trainer: Trainer, nodes: int) -> float | None:
    """Return the measured speed of a trainer alone on `nodes` (samples/s); None: not measured."""
    for _, n, seen in trainer.observed.speeds:
        if n == nodes and seen.recent:
            return float(median(seen.recent))
    return None


def with_use(trainer: Trainer, event: Measured) -> Trainer:
    """A trainer with what was measured of its turns."""
    use = event.use
    if use is None or event.point is None:
        return trainer
    if not use.beside:
        return replace(trainer, use=use)
    n, rate = event.point
    before = alone(trainer, n)
    speed = rate / before if before else use.alone_s / use.step_s if use.step_s else 1.0
    known = trainer.use or replace(use, step_s=use.alone_s, waited_s=0.0, beside=0)
    peak = max(known.peak, use.peak)
    others = [other for other in trainer.shared if other != use.beside][-(KEPT - 1) :]
    speed = (min(speed, 1.0) + trainer.shared.get(use.beside, min(speed, 1.0))) / 2  # one may be an outlier
    shared = {other: trainer.shared[other] for other in others} | {use.beside: speed}
    return replace(trainer, use=replace(known, peak=peak), shared=shared)


def differs(before: Trainer, after: Trainer) -> bool:
    """Return whether a trainer's measured turns have changed enough to alter a plan."""
    if (before.use is None) is not (after.use is None) or before.shared.keys() != after.shared.keys():
        return True
    return any(abs(after.shared[other] - speed) > MORE - 1.0 for other, speed in before.shared.items())


def words_of(trainer: Trainer, active: Mapping[int, Trainer]) -> str:
    """With whom a trainer takes turns and what that gains, or why it is alone, for its user."""
    if not trainer.spec.takes_turns:
        return ""
    own = {t.id: t for t in active.values() if t.spec.user == trainer.spec.user and t.id != trainer.id}
    other = next((t for t in own.values() if t.nodes & trainer.nodes), None)
    if other is not None:
        speeds = trainer.shared.get(other.id), other.shared.get(trainer.id)
        if speeds[0] is None or speeds[1] is None:
            return f"with {other.spec.name}; what that gains is being measured"
        mine, its = speeds
        return f"with {other.spec.name}: {mine:.0%} of its speed alone, and the other {its:.0%} of its"
    if not _memory(trainer):
        return "with nobody: its memory is not known until it has run; give memory_gb"
    poor = [own[id_].spec.name for id_ in trainer.shared if id_ in own]
    return "with nobody" + (f": turns with {', '.join(poor)} gained too little" if poor else "")
