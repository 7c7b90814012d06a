"""The speeds and rescale costs that a plan assumes of each trainer, from specs and observations. Pure.

Four sources say something about a trainer, the most specific first: what was observed of it; what was
observed of its user's others that run the same program (`TrainerSpec.program`: trials that differ in options
only); what its spec gives; what is typical of the others. Each serves as the prior of the one before it,
see `fit`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from statistics import median

from bftrainer.model.events import Measured
from bftrainer.model.sizes import EVERY_SIZE, AllowedSizes
from bftrainer.model.trainer import (
    ASSUMED_COSTS,
    Observations,
    Points,
    RescaleCosts,
    Scalability,
    Trainer,
    TrainerSpec,
)
from bftrainer.performance import adapting, costs, curve, fit, observe
from bftrainer.performance.fit import Estimate, Levels

Estimates = Mapping[str | None, Estimate]
"""Estimates of one trainer by node class; None: all classes without a curve of their own."""
SharedObservations = Mapping[tuple[str, ...], Observations]
"""Observations of all trainers of a program together, by user, see `TrainerSpec.program`."""

NOTHING = Observations()
MOST_PROGRAMS = 256
"""Programs of each user to remember."""
MOST_HALVINGS = 32
"""Halvings after which any number of nodes is 0."""
GAIN = 1.25
"""If a doubling of nodes speeds a trainer up by less than this factor, larger sizes are not profiled."""


def next_profiling_size(
    seen: Levels, n_min: int, n_max: int, steps: int, sizes: AllowedSizes = EVERY_SIZE
) -> int | None:
    """The next size on which a new program is measured: n_min, twice that, ..., `steps` sizes in all. Of
    `sizes`, it is the one next to twice the size before.

    None if all are measured, or if the last doubling gained so little that larger sizes would not pay.
    """
    rates = {n: rate for n, rate, _ in seen}
    before, last, n = n_min // 4, n_min // 2, n_min
    for _ in range(steps):
        if not 0 < n <= n_max or rates.get(last, math.inf) < GAIN * rates.get(before, 0.0):
            return None
        if n not in rates:
            return n
        before, last, n = last, n, sizes.doubled(n)
    return None


def with_measurement(
    trainer: Trainer, programs: SharedObservations, event: Measured, node_class: str
) -> tuple[Trainer, SharedObservations]:
    """A trainer and the programs after a measurement on nodes of a class ("": nodes of no class)."""
    name = node_class if node_class in dict(trainer.spec.curves) else None
    n, rate = event.point or (0, 0.0)

    def after(seen: Observations) -> Observations:
        seen = observe.with_costs(seen, event.up, event.down)
        if event.batch is not None and n <= trainer.spec.n_max:
            seen = observe.with_step(seen, name, n, event.batch, rate)
        return observe.with_speed(seen, name, n, rate) if n <= trainer.spec.n_max else seen

    key = trainer.spec.program
    seen = after(programs.get(key, NOTHING))
    programs = {**_room_for(key, programs), key: seen}
    after_it = replace(trainer, observed=after(trainer.observed), batch=event.batch or trainer.batch)
    return after_it, programs


def _room_for(key: tuple[str, ...], programs: SharedObservations) -> SharedObservations:
    """The programs without the one of `key`'s user that was first measured, if the user has too many."""
    if key in programs:
        return programs
    own = [other for other in programs if other[0] == key[0]]
    if len(own) < MOST_PROGRAMS:
        return programs
    return {other: seen for other, seen in programs.items() if other != own[0]}


def observations_by_program(trainers: Iterable[Trainer]) -> SharedObservations:
    """These trainers' own observations, joined by program."""
    programs: dict[tuple[str, ...], Observations] = {}
    for t in trainers:
        key = t.spec.program
        programs[key] = observe.merged(programs.get(key, NOTHING), t.observed)
    return programs


def given_curves(spec: TrainerSpec) -> dict[str | None, Points]:
    """The spec's curves by node class, as for `Estimates`. A class that the trainer cannot use has no
    points."""
    return {None: spec.curve or (), **dict(spec.curves)}


# --- speeds --------------------------------------------------------------------------------------


def estimates_of(
    trainers: tuple[Trainer, ...], programs: SharedObservations, *, goodput: bool = True
) -> tuple[Estimates, ...]:
    """The estimates of each trainer, in order. Without `goodput` they say nothing of it: a model of what its
    steps take is fitted to each version of a program, in 0.03 s, and users may have a thousand.

    A trainer of which nothing is known is assumed to be as fast on one node as is typical of the others,
    so that it is neither starved nor preferred before it has run.
    """
    unknown = any(_unknown(t, programs) and not observe.sizes(t.observed) for t in trainers)
    typical = typical_speed(trainers, programs) if unknown else 1.0
    seen = {key: _Seen(programs.get(key, NOTHING)) for key in {t.spec.program for t in trainers}}
    speeds = [_speeds(t, seen[t.spec.program], typical) for t in trainers]
    return _with_goodputs(trainers, speeds, seen) if goodput else tuple(speeds)


def competing(
    trainers: tuple[Trainer, ...], found: tuple[Estimates, ...], programs: SharedObservations
) -> tuple[Estimates, ...]:
    """The estimates with which trainers compete for nodes, in order: those `found` by `estimates_of`, but one
    that was measured counts as no slower than it would if it had not been, where one competes that was not.

    Else it would lose its nodes by being measured, to trainers of which nothing worse is known, and its place
    in the queue would mean nothing: a first window is often slow, and half of all are below the median.
    """
    auto = [t for t in trainers if t.spec.scalability is Scalability.AUTO]
    unmeasured = [t for t in auto if not observe.sizes(t.observed)]
    if not unmeasured or len(unmeasured) == len(trainers):
        return found
    peers = {t.spec.program for t in unmeasured}
    unknown = any(_unknown(t, programs) for t in unmeasured)
    typical = typical_speed(trainers, programs)
    return tuple(
        _no_slower(t, own, programs, typical, like=t.spec.program in peers, unknown=unknown)
        if t.spec.scalability is Scalability.AUTO and observe.sizes(t.observed)
        else own
        for t, own in zip(trainers, found, strict=True)
    )


def _unknown(t: Trainer, programs: SharedObservations) -> bool:
    """True if neither a trainer's spec nor its program says how fast it is."""
    if t.spec.curve or t.spec.scalability is Scalability.GIVEN:
        return False
    return not observe.sizes(programs.get(t.spec.program, NOTHING))


def _no_slower(
    t: Trainer, own: Estimates, programs: SharedObservations, typical: float, *, like: bool, unknown: bool
) -> Estimates:
    """The estimates of a trainer as if it were as fast as it would count unmeasured, if it is slower: beside
    one that is `like` it, and beside one of which nothing is known (`unknown`)."""
    now = curve.rate(own[None].points, 1)
    floor = typical if unknown else 0.0
    if like:
        before = estimates(replace(t, observed=NOTHING, batch=None), programs, typical)
        floor = max(floor, curve.rate(before[None].points, 1))
    if not 0 < now < floor:
        return own

    def raised(points: Points) -> Points:
        return tuple((n, rate * floor / now) for n, rate in points)

    return {
        name: replace(found, points=raised(found.points), goodput=raised(found.goodput))
        for name, found in own.items()
    }


def typical_speed(trainers: Iterable[Trainer], programs: SharedObservations) -> float:
    """The samples/s on one node of a typical trainer of which anything is known; 1 if there is none.

    It is the median of the users' medians: however many trainers a user has, they count as one user's.
    """
    known: dict[str, list[float]] = {}
    for t in trainers:
        prior = t.spec.curve or ()
        for seen in (t.observed, programs.get(t.spec.program, NOTHING)):
            rate = fit.one(fit.levels(observe.sizes(seen)), prior, t.spec.n_max)
            if rate is not None:
                known.setdefault(t.spec.user, []).append(rate)
                break
    return median([median(rates) for rates in known.values()] or [1.0])


def estimates(t: Trainer, programs: SharedObservations, typical: float, *, goodput: bool = True) -> Estimates:
    """The estimates of one trainer, by node class, with `goodput` as for `estimates_of`.

    `typical` are the samples/s on one node that are assumed where nothing is known.
    """
    seen = _Seen(programs.get(t.spec.program, NOTHING))
    own = _speeds(t, seen, typical)
    return _with_goodputs((t,), [own], {t.spec.program: seen})[0] if goodput else own


class _Seen:
    """Observations of a program, as estimates of all its trainers need them."""

    def __init__(self, seen: Observations) -> None:
        self.levels = cache(lambda name: fit.levels(observe.sizes(seen, name)))
        self.times = cache(lambda name: adapting.times_of(seen, name))


def _with_goodputs(
    trainers: Sequence[Trainer], speeds: Sequence[Estimates], seen: Mapping[tuple[str, ...], _Seen]
) -> tuple[Estimates, ...]:
    """The estimates with goodputs where batches adapt."""
    found, places, asked = [dict(own) for own in speeds], [], []
    for t, own in zip(trainers, found, strict=True):
        if t.batch is None or t.spec.scalability is Scalability.GIVEN:
            continue
        for name, estimate in own.items():
            shared, own_times = seen[t.spec.program].times(name), adapting.times_of(t.observed, name)
            version = adapting.version_of(shared, own_times)
            asked.append(adapting.AskedGoodput(t.batch, version, tuple(n for n, _ in estimate.points)))
            places.append((own, name))
    for (own, name), goodput in zip(places, adapting.goodputs(asked), strict=True):
        own[name] = replace(own[name], goodput=goodput)
    return tuple(found)


def _speeds(t: Trainer, shared: _Seen, typical: float) -> Estimates:
    """The estimates of one trainer without goodputs."""
    spec = t.spec
    if spec.scalability is Scalability.GIVEN:
        return {name: Estimate(points, spec.n_max) for name, points in given_curves(spec).items()}

    def on(name: str | None, points: Points) -> Estimate:
        if name is not None and not points:
            return Estimate((), 0)  # it cannot use this class
        for here in (shared.levels(name), fit.levels(observe.sizes(t.observed, name))):
            estimate = fit.estimated(here, points, spec.n_min, spec.n_max, typical, spec.sizes)
            points = estimate.points
        return estimate

    return {name: on(name, points) for name, points in given_curves(spec).items()}


def known_speeds(t: Trainer, programs: SharedObservations) -> tuple[Points, int] | None:
    """A trainer's estimated speeds on nodes of no class of their own, and the most nodes that it may ask for;
    None if neither its spec nor any observation says anything of it."""
    spec = t.spec
    prior = spec.curve or ()
    seen = (programs.get(spec.program, NOTHING), t.observed)
    if not prior and not any(fit.levels(observe.sizes(own)) for own in seen):
        return None
    found = estimates(t, programs, 1.0, goodput=False)
    return found[None].points, max(estimate.n_max for estimate in found.values())


def limits(
    t: Trainer, estimates: Estimates, programs: SharedObservations, profile_sizes: int, now: float
) -> tuple[int, int]:
    """The fewest and the most nodes that a trainer may be given at the time `now`.

    It may get no more than the estimates allow, but keeps what it has. While its program is profiled on
    `profile_sizes` sizes, it goes from one size to the next, and stays on each until it is measured.
    """
    spec, held = t.spec, len(t.nodes)
    if profile_sizes and spec.scalability is Scalability.AUTO and spec.curve is None:
        here = fit.levels(observe.sizes(programs.get(spec.program, NOTHING)))
        size = next_profiling_size(here, spec.n_min, spec.n_max, profile_sizes, spec.sizes)
        if size is not None:
            return (size if held == size else spec.n_min), _put_off(t, max(held, size), now)
    return spec.n_min, _put_off(t, max(held, *(estimate.n_max for estimate in estimates.values())), now)


def _put_off(t: Trainer, most: int, now: float) -> int:
    """The most nodes of a trainer that a restart takes back to a checkpoint of its script's own.

    After a change it does not grow until there has been time for a checkpoint. If its memberships, one after
    the other, ended before, it restarts with fewer nodes: fewer nodes leave less often.
    """
    if not t.spec.checkpoint_interval_s:
        return most
    least = max(len(t.nodes), t.spec.n_min)
    if t.members:
        return most if now - t.changed_at >= t.spec.checkpoint_interval_s else least
    return max(least, most >> min(t.fruitless, MOST_HALVINGS))


# --- costs ---------------------------------------------------------------------------------------


def costs_of(trainers: tuple[Trainer, ...], programs: SharedObservations) -> tuple[RescaleCosts, ...]:
    """Estimated costs of rescaling each trainer, in order; typical ones where nothing is known.

    Where a restart takes a trainer back to a checkpoint of its script's own, it costs the repeated work, too:
    all of the spec's `checkpoint_interval_s`, as the nodes must stay that long for the next one.
    """
    return tuple(
        _repeating(t.spec.checkpoint_interval_s, own)
        for t, own in zip(trainers, _pauses_of(trainers, programs), strict=True)
    )


def _repeating(repeated_s: float, own: RescaleCosts) -> RescaleCosts:
    if not repeated_s:
        return own
    return RescaleCosts(
        up=replace(own.up, stall_s=own.up.stall_s + repeated_s),
        down=replace(own.down, stall_s=own.down.stall_s + repeated_s),
    )


def _pauses_of(trainers: tuple[Trainer, ...], programs: SharedObservations) -> tuple[RescaleCosts, ...]:
    """Costs of rescaling each trainer without repeated work."""
    if all(t.spec.costs is not None and t.spec.scalability is Scalability.GIVEN for t in trainers):
        return tuple(t.spec.costs or ASSUMED_COSTS for t in trainers)
    by_user: dict[str, list[Observations]] = {}
    for t in trainers:
        by_user.setdefault(t.spec.user, []).append(t.observed)
    typical = costs.typical_costs(by_user, ASSUMED_COSTS)
    return tuple(_costs_of_one(t, programs, typical[t.spec.user]) for t in trainers)


def _costs_of_one(t: Trainer, programs: SharedObservations, typical: RescaleCosts) -> RescaleCosts:
    if t.spec.costs is not None and t.spec.scalability is Scalability.GIVEN:
        return t.spec.costs
    shared = costs.costs(programs.get(t.spec.program, NOTHING), None, typical)
    return costs.costs(t.observed, t.spec.costs, shared)
