"""Who trains with whom: the members of a published membership are gathered, then let go together. Pure.

Horovod's own driver decides that by itself: it polls for hosts, blacklists them, and ends the job when
all are replaced. Here the daemon has decided already, so all that is left is to wait until everybody of
a membership stands at the door.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class World:
    """A membership: hosts in the order of their ranks. A host is one worker: a node and its start."""

    generation: int = 0
    hosts: tuple[str, ...] = ()


@dataclass(slots=True)
class Assembly:
    """What the driver of one trainer knows."""

    target: World = World()  # as published last
    formed: World = World()  # whose workers were let go last
    asking: set[str] = field(default_factory=set)  # who stands at the door
    connected: set[str] = field(default_factory=set)  # of `formed`, who has reached all others
    past: set[str] = field(default_factory=set)  # everybody who has ever been let in
    gone: set[str] = field(default_factory=set)

    def publish(self, world: World) -> None:
        """There is a new membership; an older one than the last is ignored."""
        if world.generation >= self.target.generation:
            self.target = world
            if set(world.hosts) == set(self.formed.hosts) and not set(world.hosts) & (
                self.asking | self.gone
            ):
                self.formed = World(world.generation, self.formed.hosts)  # it is what there is

    def lose(self, host: str) -> bool:
        """A worker has ended. Whether that tears a world whose workers are connecting to each other.

        Those that wait for its connection cannot be called back: Horovod ends them when they time out.
        """
        whole = not self.gone & set(self.formed.hosts)
        torn = host in self.formed.hosts and whole and not self.is_connected
        self.gone.add(host)
        return torn

    @property
    def is_connected(self) -> bool:
        return self.connected >= set(self.formed.hosts)

    def let_go(self) -> World | None:
        """The new world, once its workers are at the door: they may connect to each other now.

        Members wait for each other, but never for a newcomer: it comes with the next world.
        """
        here = [host for host in self.target.hosts if host in self.asking - self.gone]
        members = set(self.formed.hosts) & set(self.target.hosts)
        if not here or not (members or set(self.target.hosts)) <= set(here):
            return None
        self.formed, self.connected = World(self.target.generation, tuple(here)), set()
        self.asking -= set(here)
        self.past |= set(here)
        return self.formed

    def turn_away(self) -> Collection[str]:
        """Those at the door who are not members any more, or dead."""
        away = self.asking & (self.gone | (self.past - set(self.target.hosts)))
        self.asking -= away
        return away

    def to_be_told(self, *, patient: bool) -> str | None:
        """The host of rank 0 while it trains on in an outdated world that it should leave now.

        Newcomers are waited for where nobody leaves; so long as there is patience, otherwise as well.
        """
        members, target = set(self.formed.hosts), set(self.target.hosts)
        if members == target or not members & target:
            return None
        leader = self.formed.hosts[0]
        if leader in self.asking | self.gone:
            return None
        ready = target - members <= self.asking - self.gone
        return leader if ready or (members - target and not patient) else None
