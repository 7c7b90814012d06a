"""Generated logs are like the real ones that their profiles were fitted to."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrainer.errors import BftrainerError
from bftrainer.traces.characteristics import Characteristics, characterise
from bftrainer.traces.intervals import Interval
from bftrainer.traces.logs import Log, LogOptions, load
from bftrainer.traces.synthetic.generate import HOUR, generate
from bftrainer.traces.synthetic.profile import MachineProfile, Quantiles
from bftrainer.traces.synthetic.profiles import PROFILES

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces"
WITHIN = 0.10
AT_LEAST = 0.01
"""Shares below 10 % may differ by this much."""
PERCENTS = (5, 10, 25, 50, 75, 90, 95, 99)


class Target(NamedTuple):
    """Figures of a real log.

    `shorter` and `node_time`: shares in fragments shorter than 1, 2, 5, 10, 30 min, 1, 2, 6, 24 h.
    """

    inc_per_h: float
    dec_per_h: float
    ratio: float
    equivalent_nodes: float
    mean_fragment_s: float
    percentiles_s: tuple[float, ...]
    shorter: tuple[float, ...]
    node_time: tuple[float, ...]


TARGETS = {
    "summit": Target(
        39.62,
        27.93,
        0.07321,
        346.6,
        997,
        (81, 91, 142, 386, 1092, 2512, 4153, 8590),
        (0, 0.1852, 0.4382, 0.5952, 0.844, 0.9374, 0.986, 0.9998, 1),
        (0, 0.01639, 0.06444, 0.1331, 0.3958, 0.6255, 0.8616, 0.9881, 0.9938),
    ),
    "theta": Target(
        2.593,
        2.554,
        0.24,
        1046,
        4418,
        (69, 98, 123, 172, 609, 4396, 1.418e04, 9.663e04),
        (0.03776, 0.216, 0.6708, 0.7494, 0.8385, 0.8883, 0.9262, 0.9588, 0.9838),
        (0.0002709, 0.004267, 0.02222, 0.0294, 0.05447, 0.08309, 0.1272, 0.2141, 0.4458),
    ),
    "small": Target(
        3.494,
        3.499,
        0.314,
        31.4,
        4188,
        (62, 111, 257, 655, 2555, 9755, 1.764e04, 5.053e04),
        (0.04725, 0.112, 0.2856, 0.473, 0.6989, 0.7936, 0.8735, 0.9609, 0.9966),
        (0.0003677, 0.001801, 0.01016, 0.02975, 0.08396, 0.142, 0.2395, 0.4986, 0.821),
    ),
}
LOGS = {
    "summit": ("summit-2021/idle_intervals_2021-02-10_16.csv.xz", 167.15),
    "theta": ("theta-2022/theta_2022.swf.xz", 8719.7),
    "small": ("pwa/KTH-SP2-1996-2.1-cln.swf.gz", 7988.7),
}


def target(found: Characteristics) -> Target:
    row = found.table1
    return Target(
        row.inc_per_h,
        row.dec_per_h,
        row.ratio,
        row.equivalent_nodes,
        found.mean_fragment_s,
        tuple(found.fragment_percentiles_s[p] for p in PERCENTS),
        tuple(s.fragments for s in found.shorter),
        tuple(s.node_time for s in found.shorter),
    )


def generated(profile: MachineProfile, nodes: int, hours: float, seed: int) -> Log:
    made = generate(profile, nodes, hours, seed)
    names = frozenset(i.node for i in made)
    return Log(made, names, nodes, "intervals", 0, 0, (), (), 0.0, hours * HOUR)


def off(real: Target, made: Target) -> list[str]:
    """What of `made` is further from `real` than it may be."""
    found = [
        f"{name} {a:.4g}, not {b:.4g}"
        for name, a, b in zip(Target._fields[:5], made[:5], real[:5], strict=True)
        if abs(a - b) > WITHIN * b
    ]
    found += [
        f"percentile {percent}: {a:.4g} s, not {b:.4g}"
        for percent, a, b in zip(PERCENTS, made.percentiles_s, real.percentiles_s, strict=True)
        if abs(a - b) > WITHIN * b
    ]
    for name in ("shorter", "node_time"):
        found += [
            f"{name}[{i}] {a:.4f}, not {b:.4f}"
            for i, (a, b) in enumerate(zip(getattr(made, name), getattr(real, name), strict=True))
            if abs(a - b) > max(WITHIN * b, AT_LEAST)
        ]
    return found


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real logs are not beside this checkout")
@pytest.mark.parametrize("name", TARGETS)
def test_the_targets_are_the_real_logs_figures(name: str) -> None:
    log = load(TRACES / LOGS[name][0], LogOptions(machine_nodes=PROFILES[name].nodes))
    for a, b in zip(target(characterise(log)), TARGETS[name], strict=True):
        assert np.allclose(a, b, rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(("name", "hours"), [("summit", 167.15), ("theta", 2000.0), ("small", 7988.7)])
def test_generated_logs_match_the_real_ones(name: str, hours: float, seed: int) -> None:
    profile = PROFILES[name]
    log = generated(profile, profile.nodes, hours, seed)
    assert not off(TARGETS[name], target(characterise(log)))


def test_the_comparison_sees_differences() -> None:
    real = TARGETS["summit"]
    assert not off(real, real)
    assert len(off(real, real._replace(ratio=real.ratio * 1.11, dec_per_h=real.dec_per_h * 0.89))) == 2
    assert len(off(real, TARGETS["theta"])) > 20


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_are_a_few_dozen_numbers(name: str) -> None:
    profile = PROFILES[name]
    knots = [profile.group_nodes, profile.fragment_s, profile.pool_share]
    assert sum(len(quantiles.points) for quantiles in knots) <= 48


@pytest.mark.parametrize("share", [0.25, 2.0])
def test_rates_are_in_proportion_to_the_nodes(share: float) -> None:
    profile = PROFILES["summit"]
    real = TARGETS["summit"]
    row = characterise(generated(profile, round(profile.nodes * share), 167.0, seed=1)).table1
    assert row.ratio == pytest.approx(real.ratio, rel=WITHIN)
    assert row.inc_per_h == pytest.approx(real.inc_per_h * share, rel=0.15)
    assert row.dec_per_h == pytest.approx(real.dec_per_h * share, rel=0.15)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(PROFILES)),
    st.integers(1, 60),
    st.floats(0.01, 60.0),
    st.integers(0, 2**32),
)
def test_any_size_gives_a_possible_log(name: str, nodes: int, hours: float, seed: int) -> None:
    made = generate(PROFILES[name], nodes, hours, seed)
    own: dict[str, list[Interval]] = defaultdict(list)
    for interval in made:
        assert 0 <= interval.start < interval.end <= hours * HOUR
        own[interval.node].append(interval)
    assert len(own) <= nodes
    for stays in own.values():  # no node is idle twice at once, or leaves and joins in one moment
        assert all(a.end < b.start for a, b in pairwise(stays))
    assert made == sorted(made, key=lambda i: i.start)


def test_a_log_shorter_than_a_step_is_refused() -> None:
    with pytest.raises(
        BftrainerError, match=r"--hours 1e-05 cannot be used. Give more: the profile has steps of 1 s"
    ):
        generate(PROFILES["small"], 10, 1e-5, 0)


def test_quantiles_integrate_exactly() -> None:
    some = Quantiles(((0.0, 1.0), (0.4, 1.0), (0.9, 50.0), (1.0, 2000.0)))
    fine = np.linspace(0.0, 1.0, 200_001)
    middle = (fine[1:] + fine[:-1]) / 2
    value = np.exp(np.interp(middle, [p[0] for p in some.points], np.log([p[1] for p in some.points])))
    for share in (0.0, 0.2, 0.4, 0.65, 0.9, 1.0):
        summed = value[middle < share].sum() / 200_000
        assert some.integral(np.array([share]))[0] == pytest.approx(summed, rel=1e-4, abs=1e-9)
    assert some.share(np.array([50.0, 1e9, 0.5])) == pytest.approx([0.9, 1.0, 0.0])
