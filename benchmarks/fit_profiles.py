"""Fits the profiles of generated logs to real ones: prints what stands in
bftrainer/traces/synthetic/profiles.py.

python benchmarks/fit_profiles.py LOG [--machine-nodes N] [--step SECONDS]
"""

from __future__ import annotations

import argparse
import math
import textwrap
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from bftrainer.traces.characteristics import Table1, characterise, course, lengths
from bftrainer.traces.formats.idle_intervals import found
from bftrainer.traces.logs import Log, LogOptions, load
from bftrainer.traces.synthetic.generate import HOUR, generate
from bftrainer.traces.synthetic.profile import MachineProfile, Quantiles

KNOTS = {"group_nodes": 12, "fragment_s": 24, "pool_share": 12}
"""Knots of each quantile function, put where the logarithm is furthest off."""
EDGE = 0.15
"""Share: values in the lowest share by number, or in the highest by sum, matter less."""
FINEST = 5e-5
"""The last knot before the end leaves so much of the distribution."""
WIDTH = 108
HARD = "\xa0"
"""A blank at which no line is broken."""
ROUNDS = 2
SEEDS = (101, 102, 103)
"""Not those that anything is tested with."""


def main() -> None:
    """Read, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--machine-nodes", type=int)
    parser.add_argument("--step", type=int, default=1)
    given = parser.parse_args()
    print(shown(fit(load(given.log, LogOptions(machine_nodes=given.machine_nodes)), given.step)))


def fit(log: Log, step_s: int) -> MachineProfile:
    """The profile whose logs are like `log`; its rates are corrected by what generated logs show."""
    real = characterise(log)
    hours = real.table1.hours
    within = ((max(i.start, log.begin), min(i.end, log.end)) for i in log.intervals)
    groups = Counter(within)
    size = np.array(list(groups.values()), dtype=float)
    length = np.array([end - start for start, end in groups])
    pool = course(log)
    profile = MachineProfile(
        nodes=log.machine_nodes,
        step_s=step_s,
        groups_per_h=size.size / hours,
        join_moments_per_h=real.join_events_per_h,
        leave_moments_per_h=real.leave_events_per_h,
        group_nodes=quantiles(size, np.ones(size.size), KNOTS["group_nodes"]),
        fragment_s=quantiles(*lengths(log), KNOTS["fragment_s"]),
        pool_share=quantiles(
            np.maximum(pool.sizes, 0.2) / log.machine_nodes, np.diff(pool.times), KNOTS["pool_share"]
        ),
        size_matters=round(float(np.corrcoef(np.log(size), np.log(length))[0, 1]), 3),
        most_node_h=float((size * length).max()) / HOUR,
        relax_h=relaxation_h(log),
    )
    for _ in range(ROUNDS):
        rows = [characterise(generated(profile, hours, seed)).table1 for seed in SEEDS]
        ours = {name: float(np.mean([getattr(row, name) for row in rows])) for name in Table1.__slots__}
        profile = replace(
            profile,
            groups_per_h=profile.groups_per_h * real.table1.equivalent_nodes / ours["equivalent_nodes"],
            join_moments_per_h=profile.join_moments_per_h * real.table1.inc_per_h / ours["inc_per_h"],
            leave_moments_per_h=profile.leave_moments_per_h * real.table1.dec_per_h / ours["dec_per_h"],
        )
    return profile


def generated(profile: MachineProfile, hours: float, seed: int) -> Log:
    """A log of the profile's own machine."""
    made = found(iter(generate(profile, profile.nodes, hours, seed)))
    return Log([*made.intervals], made.nodes, profile.nodes, "intervals", 0, 0, (), (), 0.0, made.end)


def quantiles(values: np.ndarray, weights: np.ndarray, knots: int) -> Quantiles:
    """A quantile function with few knots that is close to that of the values, and has their mean."""
    value, which = np.unique(values, return_inverse=True)
    weight = np.bincount(which, weights=weights) / weights.sum()
    middle = np.cumsum(weight) - weight / 2  # steps between whole numbers become slopes
    share = np.concatenate([np.linspace(0, 0.99, 199), 1 - np.geomspace(0.01, FINEST, 30)[1:], [1.0]])
    real = np.interp(share, middle, np.log(value))
    beyond = 1 - np.interp(share, middle, np.cumsum(value * weight) / (value * weight).sum())
    matters = np.clip(np.minimum(share, beyond) / EDGE, 0.02, 1.0)
    chosen = [0, share.size - 1]
    while len(chosen) < knots:
        off = np.abs(np.interp(share, share[chosen], real[chosen]) - real) * matters
        chosen = sorted({*chosen, int(off.argmax())})
    points = [(float(share[k]), float(np.exp(real[k]))) for k in chosen]
    return with_mean(points, float((value * weight).sum()), float(value[-1]))


def with_mean(points: list[tuple[float, float]], mean: float, largest: float) -> Quantiles:
    """The same with the last value, and if that is not enough with all, such that it has the mean."""
    low, high = points[-2][1], largest
    for _ in range(60):
        last = math.sqrt(low * high)
        found = Quantiles((*points[:-1], (1.0, last)))
        reached = found.integral(np.array([1.0]))[0]
        low, high = (last, high) if reached < mean else (low, last)
    scale = mean / reached
    return Quantiles(tuple((float(f"{u:.5g}"), float(f"{v * scale:.4g}")) for u, v in found.points))


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


def shown(profile: MachineProfile) -> str:
    """As Python source."""
    lines = []
    for name in MachineProfile.__slots__:
        value = getattr(profile, name)
        if isinstance(value, Quantiles):
            points = ", ".join(f"({u:g},{HARD}{v:g})" for u, v in value.points)
            filled = textwrap.fill(points, WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8)
            lines.append(f"{name}=Quantiles((\n{filled},\n    )),".replace(HARD, " "))
        else:
            lines.append(f"{name}={value:.5g},")
    return "Profile(\n    " + "\n    ".join(lines) + "\n)"


if __name__ == "__main__":
    main()
