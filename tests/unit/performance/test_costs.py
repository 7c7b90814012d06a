"""What rescaling is estimated to cost."""

from __future__ import annotations

from bftrainer.model.trainer import Cost, Observations, RescaleCosts
from bftrainer.performance import costs, observe

ASSUMED = RescaleCosts(up=Cost(stall_s=1.0, init_s=2.0), down=Cost(stall_s=3.0))


def test_costs_are_medians_and_given_ones_count_once() -> None:
    found = Observations()
    assert costs.costs(found, None, ASSUMED) == ASSUMED
    for stall in (4.0, 5.0, 600.0):  # one rescale took exceptionally long
        found = observe.with_costs(found, Cost(stall_s=stall, init_s=9.0), None)
    known = costs.costs(found, None, ASSUMED)
    assert known == RescaleCosts(up=Cost(stall_s=5.0, init_s=9.0), down=ASSUMED.down)
    assert costs.costs(found, RescaleCosts(), ASSUMED).up.stall_s == 4.5
    assert costs.typical_costs([[found, Observations()], [Observations()]], ASSUMED) == known
