"""Rescale costs, from measurements. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median

from bftrainer.model.trainer import Cost, Observations, Observed, RescaleCosts


def costs(seen: Observations, given: RescaleCosts | None, assumed: RescaleCosts) -> RescaleCosts:
    """What rescaling is estimated to cost: medians of what was measured (s).

    Costs that the spec gives count as one more measurement, assumed ones only where there is none.
    """

    def estimated(observed: Observed, *prior: float, otherwise: float) -> float:
        values = (*prior, *observed.recent)
        return median(values) if values else otherwise

    known = [] if given is None else [given]
    return RescaleCosts(
        up=Cost(
            stall_s=estimated(seen.up_stall_s, *(c.up.stall_s for c in known), otherwise=assumed.up.stall_s),
            init_s=estimated(seen.up_init_s, *(c.up.init_s for c in known), otherwise=assumed.up.init_s),
        ),
        down=Cost(
            stall_s=estimated(
                seen.down_stall_s, *(c.down.stall_s for c in known), otherwise=assumed.down.stall_s
            )
        ),
    )


def typical_costs(seen: Iterable[Iterable[Observations]], assumed: RescaleCosts) -> RescaleCosts:
    """What rescaling typically costs: the median over users of the median over their trainers, as far as it
    was measured. `seen` has the trainers' observations of one user after the other.

    `assumed` costs where it was measured of none.
    """
    found = [list(own) for own in seen]

    def over_all(pick: Callable[[Observations], Observed], otherwise: float) -> float:
        each = [[median(pick(one).recent) for one in own if pick(one).recent] for own in found]
        return median([median(own) for own in each if own] or [otherwise])

    return RescaleCosts(
        up=Cost(
            stall_s=over_all(lambda each: each.up_stall_s, assumed.up.stall_s),
            init_s=over_all(lambda each: each.up_init_s, assumed.up.init_s),
        ),
        down=Cost(stall_s=over_all(lambda each: each.down_stall_s, assumed.down.stall_s)),
    )
