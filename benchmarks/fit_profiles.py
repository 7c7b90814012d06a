"""Fits the profiles of generated logs to real ones: prints what stands in bftrainer/replay/profiles.py.

python benchmarks/fit_profiles.py LOG [--machine-nodes N] [--step SECONDS]
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from bftrainer.replay.characteristics import characterise, course, lengths
from bftrainer.replay.generate import HOUR, Profile, Quantiles, generate
from bftrainer.replay.logs import Log, LogOptions, load
from bftrainer.replay.logs.idle_intervals import found

POINTS = 22
"""Knots of a quantile function at most."""
CLOSE = 0.02
"""Knots are added until the logarithm is nowhere further off than this."""
ROUNDS = 3


def main() -> None:
    """Read, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--machine-nodes", type=int)
    parser.add_argument("--step", type=int, default=1)
    given = parser.parse_args()
    print(shown(fit(load(given.log, LogOptions(machine_nodes=given.machine_nodes)), given.step)))


def fit(log: Log, step_s: int) -> Profile:
    """The profile whose logs are like `log`; its rates are corrected by what generated logs show."""
    real = characterise(log)
    hours = real.table1.hours
    within = ((max(i.start, log.begin), min(i.end, log.end)) for i in log.intervals)
    groups = Counter(within)
    size = np.array(list(groups.values()), dtype=float)
    length = np.array([end - start for start, end in groups])
    pool = course(log)
    profile = Profile(
        nodes=log.machine_nodes,
        step_s=step_s,
        groups_per_h=size.size / hours,
        join_moments_per_h=real.join_events_per_h,
        leave_moments_per_h=real.leave_events_per_h,
        group_nodes=quantiles(size, np.ones(size.size)),
        fragment_s=quantiles(*lengths(log)),
        pool_share=quantiles(np.maximum(pool.sizes, 0.2) / log.machine_nodes, np.diff(pool.times)),
        size_matters=round(float(np.corrcoef(np.log(size), np.log(length))[0, 1]), 3),
        relax_h=relaxation_h(log),
    )
    for _ in range(ROUNDS):
        ours = characterise(generated(profile, hours))
        scale = real.table1.equivalent_nodes / ours.table1.equivalent_nodes
        profile = replace(
            profile,
            groups_per_h=profile.groups_per_h * scale,
            join_moments_per_h=profile.join_moments_per_h * real.table1.inc_per_h / ours.table1.inc_per_h,
            leave_moments_per_h=profile.leave_moments_per_h * real.table1.dec_per_h / ours.table1.dec_per_h,
        )
    return profile


def generated(profile: Profile, hours: float, seed: int = 0) -> Log:
    """A log of the profile's own machine."""
    made = found(iter(generate(profile, profile.nodes, hours, seed)))
    return Log([*made.intervals], made.nodes, profile.nodes, "intervals", 0, 0, (), (), 0.0, made.end)


def quantiles(values: np.ndarray, weights: np.ndarray) -> Quantiles:
    """A quantile function with few knots that is close to that of the values, and has their mean."""
    order = np.argsort(values, kind="stable")
    value, reached = values[order], np.cumsum(weights[order]) / weights.sum()
    share = np.concatenate([np.linspace(0, 0.99, 199), 1 - np.geomspace(0.01, 1e-6, 60)[1:], [1.0]])
    real = np.log(value[np.minimum(np.searchsorted(reached, share), value.size - 1)])
    knots = [0, share.size - 1]
    while len(knots) < POINTS:
        off = np.abs(np.interp(share, share[knots], real[knots]) - real)
        if off.max() < CLOSE:
            break
        knots = sorted({*knots, int(off.argmax())})
    points = [(float(f"{share[k]:.6g}"), float(f"{np.exp(real[k]):.4g}")) for k in knots]
    return with_mean(points, float((values * weights).sum() / weights.sum()))


def with_mean(points: list[tuple[float, float]], mean: float) -> Quantiles:
    """The same with the upper tail, 10 % of the mass, stretched to give the mean."""
    low, high = 0.0, 2.0
    for _ in range(60):
        factor = (low + high) / 2
        stretched = Quantiles(tuple((u, v * factor if u > 0.9 else v) for u, v in points))
        if stretched.integral(np.array([1.0]))[0] < mean:
            low = factor
        else:
            high = factor
    return Quantiles(tuple((u, float(f"{v * factor if u > 0.9 else v:.4g}")) for u, v in points))


def relaxation_h(log: Log) -> float:
    """After how many hours the autocorrelation of the pool size's ranks falls below 1/e."""
    pool = course(log)
    at = np.arange(log.begin, log.end, HOUR / 4)
    sizes = pool.sizes[np.searchsorted(pool.times, at, side="right") - 1]
    ranks = np.argsort(np.argsort(sizes, kind="stable")) / sizes.size - 0.5
    for lag in range(1, sizes.size // 4):
        if np.corrcoef(ranks[:-lag], ranks[lag:])[0, 1] < np.exp(-1):
            return lag / 4
    return sizes.size / 16


def shown(profile: Profile) -> str:
    """As Python source."""
    lines = []
    for name in Profile.__slots__:
        value = getattr(profile, name)
        if isinstance(value, Quantiles):
            lines.append(f"{name}=Quantiles(({', '.join(f'({u:g}, {v:g})' for u, v in value.points)})),")
        else:
            lines.append(f"{name}={value:.5g},")
    return "Profile(\n    " + "\n    ".join(lines) + "\n)"


if __name__ == "__main__":
    main()
