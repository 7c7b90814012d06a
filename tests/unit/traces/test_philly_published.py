"""The published log of Philly, where it is beside this checkout: what evidence/evaluation.md says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrainer.traces.characteristics import characterise
from bftrainer.traces.logs import LogOptions, cut, load

PHILLY = Path(__file__).resolve().parents[4] / "shared/traces/pollux-osdi21/traces/philly.csv.xz"
OCTOBER_4 = 1_507_075_200.0


@pytest.mark.skipif(not PHILLY.is_file(), reason="the published log of Philly is not beside this checkout")
@pytest.mark.parametrize(("share", "idle"), [("node", 0.191), ("gpu", 0.261)])
def test_a_third_more_is_idle_as_gpus_than_as_nodes(share: str, idle: float) -> None:
    options = LogOptions(share=share, gpus_per_node=8, gpu_jobs="first-fit", machine_nodes=100)
    month = cut(load(PHILLY, options), OCTOBER_4, 720.0, None)
    assert characterise(month).table1.ratio == pytest.approx(idle, abs=5e-4)
