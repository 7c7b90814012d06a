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
    assert costs.typical_costs({"ann": [found, Observations()]}, ASSUMED) == {"ann": known}


def test_one_users_tale_of_what_rescaling_costs_keeps_no_other_from_nodes() -> None:
    def told(seconds: float) -> list[Observations]:
        return [observe.with_costs(Observations(), Cost(stall_s=seconds, init_s=seconds), None)]

    two = costs.typical_costs({"liar": told(86_000.0), "new": [Observations()]}, ASSUMED)
    assert two["new"] == ASSUMED and two["liar"].up.stall_s == 86_000.0
    seen = {"liar": told(86_000.0), "ann": told(20.0), "bob": told(30.0), "new": [Observations()]}
    assert costs.typical_costs(seen, ASSUMED)["new"].up == Cost(stall_s=20.0, init_s=20.0)
