"""Keeps a site's promise to main jobs: where it is at risk, more idle nodes are left to them. Pure.

The promise is by how much the median and the 99th percentile of what main jobs wait may exceed those of jobs
with none of our nodes in their way. It is at risk where too many jobs wait longer than that, and those with
our nodes in their way do so more often than others. Then a larger share of what is idle or ours is left
alone, step by step, until jobs find enough. Less is left again only after a long calm, which doubles each
time that the promise comes to be at risk soon after.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bftrainer.model.main_jobs import STARTED, MainStart, others, quantile
from bftrainer.settings.headroom import Promise

LEVELS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
"""The shares of what is idle or ours that are left for the promise. The last one: no node is held."""
DWELL_S = 60.0
"""Seconds that a level has to show an effect before the next one."""
CALM_S, MOST_CALM_S = 1800.0, 8 * 3600.0
"""Seconds of calm before less is left: at first, and at most."""
RECENT = 300
"""Jobs that are judged: the last ones since the level has changed."""
ALONE = 1000
"""Jobs with none of our nodes in the way, which tell what the scheduler itself takes."""
LEAST_ALONE = 20
"""With fewer of them that counts as nothing: then we are the cautious ones."""
JUDGED = ((0.5, 10), (0.99, 100))
"""For each quantile of the promise: the share of jobs that it covers, and the fewest jobs to count by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """State of the promise: the present `level` (of `LEVELS`), since when, and why it was raised.

    `recent` has what jobs have waited since then, and whether our nodes were in the way; `alone` what
    jobs waited that had none. `calm_s` is how long all has to be well before less is left.
    """

    level: int = 0
    since: float = 0.0
    why: str = ""
    recent: tuple[tuple[float, bool], ...] = ()
    alone: tuple[float, ...] = ()
    calm_s: float = CALM_S
    lowered: bool = False  # whether the last change was to less

    @property
    def extra(self) -> float:
        """The share of what is idle or ours that is left for the promise."""
        return LEVELS[self.level]


def judged(before: Kept, starts: Iterable[MainStart], promise: Promise | None, now: float) -> Kept:
    """Return the promise's state after these starts of main jobs. Without one nothing is left for it."""
    if promise is None:
        return Kept()
    starts = tuple(starts)
    started = [(s.wait_s, True) for s in starts if s.affected in STARTED]
    alone = [s.wait_s for s in others(starts)]
    after = replace(
        before,
        recent=(*before.recent, *started, *((wait_s, False) for wait_s in alone))[-RECENT:],
        alone=(*before.alone, *alone)[-ALONE:],
    )
    stood_s = now - before.since
    if why := at_risk(after, promise):
        if after.level + 1 == len(LEVELS) or (after.level and stood_s < DWELL_S):
            return after
        relapse = after.lowered and stood_s < after.calm_s
        calm_s = min(MOST_CALM_S, 2 * after.calm_s) if relapse else after.calm_s
        return replace(
            after, level=after.level + 1, since=now, why=why, recent=(), calm_s=calm_s, lowered=False
        )
    if after.level and stood_s >= after.calm_s:
        why = after.why if after.level > 1 else ""
        return replace(after, level=after.level - 1, since=now, why=why, recent=(), lowered=True)
    if not after.level and after.calm_s > CALM_S and stood_s >= MOST_CALM_S:
        return replace(after, calm_s=CALM_S, since=now, lowered=False)
    return after


def at_risk(kept: Kept, promise: Promise) -> str:
    """Return why the promise is at risk, in words; "" if it is not."""
    usual = sorted(kept.alone) if len(kept.alone) >= LEAST_ALONE else [0.0]
    for (share, least), bound_s in zip(JUDGED, (promise.median_s, promise.p99_s), strict=True):
        limit_s = quantile(usual, share) + bound_s
        ours = [wait_s > limit_s for wait_s, in_the_way in kept.recent if in_the_way]
        alone = [wait_s > limit_s for wait_s, in_the_way in kept.recent if not in_the_way]
        count, over = len(ours) + len(alone), sum(ours) + sum(alone)
        if over > (1 - share) * max(count, least) + 1e-9 and _share(ours) > _share(alone):
            return (
                f"{over} of the last {count} main jobs waited more than {limit_s:.2f} s, and nodes of ours "
                f"were in the way of {sum(ours)} of them"
            )
    return ""


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found) if found else 0.0
