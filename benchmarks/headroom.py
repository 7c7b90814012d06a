"""Costs and savings of headroom: plays the starts of main jobs of a log, with idle nodes left to them.

    python benchmarks/headroom.py LOG [--hours 168] [--back 1]

LOG is any that `bftrainer trace info` reads. Counts nodes, and simulates no trainer: they are taken to want
all that is left. A main job takes idle nodes first. Nodes that it needs from us it has `--back` seconds
later; then others are given back for those that were left, as the daemon does it, which takes as long. A job
that finds fewer idle nodes than it needs is late by that time, and all its nodes with it.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bftrainer.model.events import NodesChanged
from bftrainer.model.main_jobs import quantile
from bftrainer.nodes.headroom import headroom
from bftrainer.nodes.headroom.demand import REMEMBERED, Arrival, need
from bftrainer.nodes.headroom.headroom import SETTLE_S, Kind, wanted
from bftrainer.nodes.headroom.reserve import REPLACED_S
from bftrainer.settings.headroom import headroom_of
from bftrainer.traces import intervals, logs
from bftrainer.traces.formats.options import LogOptions

KIND: Kind = ((), "")
CURVE = ("0", "1", "2", "4", "5%", "10%", "15%", "20%", "25%", "30%", "auto")


@dataclass
class Machine:
    """Idle nodes: `free` ones, those that are `held`, and those that are given back now."""

    setting: str
    back_s: float
    free: int = 0
    held: int = 0
    node_s: float = 0.0
    given_back: int = 0
    delays: list[float] = field(default_factory=list)
    _now: float = 0.0
    _back: list[tuple[float, int]] = field(default_factory=list)
    _arrivals: list[Arrival] = field(default_factory=list)
    _target: int = 0
    _lower_since: float | None = None
    _learnt: tuple[int, int, int] = (0, 0, 0)

    def until(self, time: float) -> None:
        """Let time pass."""
        while self._back and self._back[0][0] <= time:
            at, count = heapq.heappop(self._back)
            self._pass(at)
            self.free += count
            self._balance()
        if self._lower_since is not None and self._lower_since + SETTLE_S <= time:
            self._pass(max(self._now, self._lower_since + SETTLE_S))
            self._balance()
        self._pass(time)

    def starts(self, nodes: int) -> None:
        """Main jobs start on `nodes` of the idle nodes."""
        self._arrivals = [*self._arrivals, Arrival(time=self._now, nodes=nodes)][-REMEMBERED:]
        short = max(0, nodes - self.free)
        self.free -= nodes - short
        self.delays.append(self.back_s if short else 0.0)
        while short and self._back:  # on their way already
            at, count = heapq.heappop(self._back)
            if count > short:
                heapq.heappush(self._back, (at, count - short))
            short -= min(count, short)
        self.held -= short
        self.given_back += short
        self._balance()

    def ends(self, nodes: int) -> None:
        """`nodes` nodes become idle."""
        self.free += nodes
        self._balance()

    def _pass(self, time: float) -> None:
        self.node_s += self.held * (time - self._now)
        self._now = time

    def _balance(self) -> None:
        coming = sum(count for _, count in self._back)
        usable = self.free + self.held + coming
        fresh = wanted(headroom_of(self.setting), {KIND: usable}, {KIND: self._need(usable)})[KIND]
        if fresh >= min(self._target, usable):
            self._target, self._lower_since = fresh, None
        elif self._lower_since is None:
            self._lower_since = self._now
        elif self._now - self._lower_since >= SETTLE_S:
            self._target, self._lower_since = fresh, None
        target = min(self._target, usable)
        missing = min(self.held, target - self.free - coming)
        if missing > 0:
            self.held -= missing
            self.given_back += missing
            heapq.heappush(self._back, (self._now + self.back_s, missing))
        elif (spare := self.free + coming - target) > 0:
            self.held += (more := min(spare, self.free))
            self.free -= more

    def _need(self, usable: int) -> int:
        if self.setting != "auto":
            return 0
        most, seen = headroom.most(usable), len(self._arrivals)
        if self._learnt[:2] != (most, id(self._arrivals)):
            self._learnt = most, id(self._arrivals), need(self._arrivals, REPLACED_S, most) if seen else 0
        return self._learnt[2]


def play(changes: Sequence[NodesChanged], setting: str, back_s: float) -> Machine:
    """Play a log with this headroom left to main jobs."""
    machine = Machine(setting, back_s, _now=changes[0].time)
    for change in changes:
        machine.until(change.time)
        if change.left:
            machine.starts(len(change.left))
        if change.joined:
            machine.ends(len(change.joined))
    return machine


def main() -> None:
    """Print the curve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--hours", type=float, default=168.0)
    parser.add_argument(
        "--back", type=float, default=1.0, help="seconds until a node that is given back is idle"
    )
    parser.add_argument("--cores-per-node", type=int, default=None)
    own = parser.parse_args()
    log = logs.load(own.log, LogOptions(cores_per_node=own.cores_per_node or 1))
    names = frozenset(i.node for i in log.intervals)
    changes = intervals.changes(log.intervals, names, log.begin, log.begin + 3600 * own.hours)
    print("| headroom | late starts | mean delay | p99 delay | harvested node-hours | nodes given back |")
    print("|---|---|---|---|---|---|")
    most = None
    for setting in CURVE:
        found = play(changes, setting, own.back)
        late, hours = [d for d in found.delays if d], found.node_s / 3600
        most = most or hours or 1.0
        print(
            f"| {setting} | {len(late) / len(found.delays):.1%} of {len(found.delays):,} "
            f"| {sum(late) / len(found.delays):.3f} s | {quantile(sorted(found.delays), 0.99):.2f} s "
            f"| {hours:,.0f} ({hours / most:.1%}) | {found.given_back:,} |"
        )


if __name__ == "__main__":
    main()
