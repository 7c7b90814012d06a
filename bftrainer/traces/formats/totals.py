"""A batch system's own totals of nodes and jobs, in recorded snapshots: means over time. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bftrainer.traces.formats.lines import BrokenLineError, shown

KEY = "totals"
NAMES = frozenset({"running", "eligible", "blocked", "wanted", "used", "nodes"})


@dataclass
class SeriesTotals:
    """The sums of a series so far; `now` are the last ones, which hold until others come, None: there are
    none."""

    now: Mapping[str, float] | None = None
    _sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def take(self, found: Mapping[str, object]) -> None:
        """Take over what a snapshot says, if it says anything.

        Raises:
            BrokenLineError: these are no numbers.
        """
        if KEY not in found:
            return
        told = found[KEY]
        if told is None:
            self.now = None
        elif isinstance(told, dict) and all(_is_count(told[name]) for name in NAMES & told.keys()):
            self.now = {name: float(told[name]) for name in NAMES & told.keys()}
        else:
            raise BrokenLineError(f"`{KEY}` {shown(str(told))} are no numbers of jobs and nodes")

    def last(self, seconds: float) -> None:
        """The last ones have held for `seconds`."""
        for name, value in (self.now or {}).items():
            self._sums[name] += value * seconds
            self._seconds[name] += seconds

    def notes(self, idle: float, seconds: float) -> Iterator[str]:
        """Notes for a reader of the series; `idle` nodes were idle in `seconds`, in node-seconds."""
        mean = {name: self._sums[name] / self._seconds[name] for name in self._sums if self._seconds[name]}
        if mean.get("nodes") and "used" in mean:
            yield (
                f"by the batch system's own count {mean['used'] / mean['nodes']:.1%} of {mean['nodes']:,.0f} "
                f"nodes are in use, over time; {idle / max(seconds, 1e-9):,.1f} are idle here in the mean"
            )
        if "eligible" in mean:
            yield (
                f"jobs in the mean: {mean.get('running', 0):,.1f} run, {mean['eligible']:,.1f} are eligible "
                f"and ask for {mean.get('wanted', 0):,.1f} nodes, {mean.get('blocked', 0):,.1f} are blocked"
            )


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
