"""Gathers the workers of a published membership, until they can connect to each other. Pure.

Horovod's own driver decides by itself which hosts train: it polls for hosts, blacklists them, and ends the
job when all are replaced. Here the daemon has decided already. What is left is to wait until all workers of a
membership have asked for their place.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from bftrainer.elastic.horovod import slots


@dataclass(frozen=True, slots=True)
class HorovodWorld:
    """A membership: workers in the order of their ranks, by Horovod's names (see `slots`). Those of one host,
    which is a node and its start, come and go together."""

    generation: int = 0
    hosts: tuple[str, ...] = ()


@dataclass(slots=True)
class Assembly:
    """A driver's view of its trainer's workers."""

    target: HorovodWorld = HorovodWorld()  # the membership published last
    formed: HorovodWorld = HorovodWorld()  # the membership whose workers got their places last
    asking: set[str] = field(default_factory=set)  # hosts that wait for a place
    connected: set[str] = field(default_factory=set)  # hosts of `formed` that have connected to all others
    past: set[str] = field(default_factory=set)  # hosts that have ever had a place
    gone: set[str] = field(default_factory=set)  # hosts whose worker has ended

    def knows(self, host: str) -> bool:
        """True if any membership has named a host."""
        return host in self.target.hosts or host in self.past

    def publish(self, world: HorovodWorld) -> None:
        """Take in a published membership; one that is older than the last is ignored."""
        if world.generation >= self.target.generation:
            self.target = world
            if set(world.hosts) == set(self.formed.hosts) and not set(world.hosts) & (
                self.asking | self.gone
            ):
                self.formed = HorovodWorld(world.generation, self.formed.hosts)  # the same workers train on

    def lose(self, host: str) -> bool:
        """A worker has ended. Returns whether that tears a world whose workers are just connecting.

        Those that wait for its connection cannot be interrupted: Horovod ends them when they time out.
        """
        whole = not self.gone & set(self.formed.hosts)
        torn = host in self.formed.hosts and whole and not self.is_connected
        self.gone.add(host)
        return torn

    def lose_host(self, host: str) -> bool:
        """All workers of a host have ended, as `lose`."""
        known = {*self.target.hosts, *self.formed.hosts, *self.asking, *self.past}
        there = sorted(worker for worker in known if slots.host_of(worker) == host)
        torn = [self.lose(worker) for worker in there or [slots.worker_at(host, 0)]]
        return any(torn)

    @property
    def is_connected(self) -> bool:
        """True if all workers of the formed world have connected to each other."""
        return self.connected >= set(self.formed.hosts)

    def let_go(self) -> HorovodWorld | None:
        """The new world, once its workers wait for their places: they may connect to each other now. Else
        None.

        Members wait for each other, but never for a newcomer: one that is late comes with the next world.
        """
        waiting = [host for host in self.target.hosts if host in self.asking - self.gone]
        here = slots.whole(waiting, self.target.hosts)
        members = set(self.formed.hosts) & set(self.target.hosts)
        if not here or not (members or set(self.target.hosts)) <= set(here):
            return None
        self.formed, self.connected = HorovodWorld(self.target.generation, tuple(here)), set()
        self.asking -= set(here)
        self.past |= set(here)
        return self.formed

    def turn_away(self) -> Collection[str]:
        """The waiting hosts that are not members any more, or have ended; they stop to wait."""
        away = self.asking & (self.gone | (self.past - set(self.target.hosts)))
        self.asking -= away
        return away

    def to_be_told(self, *, patient: bool) -> str | None:
        """The host of rank 0, if it trains on in an outdated world that it should end now. Else None.

        It waits for newcomers if no member leaves; if one does, only while `patient`.
        """
        members, target = set(self.formed.hosts), set(self.target.hosts)
        if members == target or not members & target:
            return None
        leader = self.formed.hosts[0]
        if leader in self.asking | self.gone:
            return None
        ready = target - members <= self.asking - self.gone
        return leader if ready or (members - target and not patient) else None
