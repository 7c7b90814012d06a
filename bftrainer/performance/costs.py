"""Rescale costs, from measurements. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median, median_low

from bftrainer.model.trainer import Cost, Observations, Observed, RescaleCosts


def costs(seen: Observations, given: RescaleCosts | None, assumed: RescaleCosts) -> RescaleCosts:
    """Estimated costs of rescaling: medians of measurements (s).

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


def typical_costs(
    seen: Mapping[str, Sequence[Observations]], assumed: RescaleCosts
) -> dict[str, RescaleCosts]:
    """User -> what rescaling typically costs its trainers: the median over those of which it was measured.

    `seen` has the observations of each user's trainers. Where nothing was measured of a user, the lower
    median over the others and what is `assumed` counts: what one of them tells may be made up, and a cost too
    high would keep a new trainer from nodes, so that its own is never measured.
    """

    def over_all(pick: Callable[[Observations], Observed], otherwise: float) -> dict[str, float]:
        each = {
            user: [median(pick(one).recent) for one in own if pick(one).recent] for user, own in seen.items()
        }
        known = {user: median(values) for user, values in each.items() if values}
        return dict.fromkeys(seen, median_low([otherwise, *known.values()])) | known

    up_stall_s = over_all(lambda each: each.up_stall_s, assumed.up.stall_s)
    up_init_s = over_all(lambda each: each.up_init_s, assumed.up.init_s)
    down_stall_s = over_all(lambda each: each.down_stall_s, assumed.down.stall_s)
    return {
        user: RescaleCosts(
            up=Cost(stall_s=up_stall_s[user], init_s=up_init_s[user]), down=Cost(stall_s=down_stall_s[user])
        )
        for user in seen
    }
