"""Chooses the hosts of a job. Pure: arrays of slots go in, a placement comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lsf.emulator.core.model import Demand, Host

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """The hosts of a job by their place in the cluster: the slots that it shows, and those that it takes (all
    of a host, if nobody else may use it)."""

    hosts: Ints
    slots: Ints
    taken: Ints

    @property
    def total(self) -> int:
        """Slots that it takes."""
        return int(self.taken.sum())


class Hosts:
    """The fixed facts of a cluster's hosts as arrays."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        """`hosts` in the order in which they are tried."""
        self.all = tuple(hosts)
        self.names = tuple(host.name for host in hosts)
        self.index: Mapping[str, int] = {name: at for at, name in enumerate(self.names)}
        self.slots: Ints = np.array([host.slots for host in hosts], dtype=np.int64)
        self.gpus: Ints = np.array([host.gpus for host in hosts], dtype=np.int64)
        self.compute: Bools = np.array([not host.launch for host in hosts], dtype=np.bool_)
        self.launch: Ints = np.flatnonzero(~self.compute)
        self._allowed: dict[tuple[frozenset[str] | None, frozenset[str]], Bools] = {}

    def allowed(self, demand: Demand) -> Bools:
        """Return which hosts a job may use, whatever runs there."""
        if demand.only is None and not demand.never:
            return self.compute
        key = (demand.only, demand.never)
        found = self._allowed.get(key)
        if found is None:
            found = self.compute.copy()
            if demand.only is not None:
                named = np.zeros_like(found)
                named[self._places(demand.only)] = True
                found &= named
            found[self._places(demand.never)] = False
            if len(self._allowed) > 10_000:
                self._allowed.clear()
            self._allowed[key] = found
        return found

    def _places(self, names: frozenset[str]) -> list[int]:
        return [self.index[name] for name in names if name in self.index]


def place(
    hosts: Hosts, free: Ints, demand: Demand, last: Bools | None = None, gpus: Ints | None = None
) -> Placement | None:
    """The hosts for a job where `free` slots and `gpus` (None: all) are left; None: they do not suffice.

    A job that fits somewhere is always placed, and one that fits still does when more is free. Hosts where
    `last` holds are taken only if the others do not suffice.
    """
    usable = hosts.allowed(demand) & (free > 0)
    if demand.gpus:
        usable &= (hosts.gpus if gpus is None else gpus) >= demand.gpus
    if demand.whole:
        usable &= free >= hosts.slots
    each = demand.per_host or (demand.slots if demand.one_host else 0)
    if not each:
        return _as_they_come(hosts, free, demand, usable, last)
    count, rest = divmod(demand.slots, each)
    chosen = _first(usable & (free >= each), count, last)
    if chosen is None:
        return None
    slots = np.full(count, each, dtype=np.int64)
    if rest:
        usable = usable & (free >= rest)
        usable[chosen] = False
        more = _first(usable, 1, last)
        if more is None:
            return None
        chosen, slots = np.concatenate([chosen, more]), np.append(slots, rest)
    return Placement(chosen, slots, hosts.slots[chosen] if demand.whole else slots)


def _first(usable: Bools, count: int, last: Bools | None) -> Ints | None:
    places = np.flatnonzero(usable)
    if len(places) < count:
        return None
    if last is not None:
        places = places[np.argsort(last[places], kind="stable")]
    return places[:count]


def _as_they_come(
    hosts: Hosts, free: Ints, demand: Demand, usable: Bools, last: Bools | None
) -> Placement | None:
    places = np.flatnonzero(usable)
    if last is not None:
        places = places[np.argsort(last[places], kind="stable")]
    sums = np.cumsum(free[places])
    if not len(sums) or sums[-1] < demand.slots:
        return None
    count = int(np.searchsorted(sums, demand.slots)) + 1
    chosen = places[:count]
    slots = free[chosen].copy()
    slots[-1] -= sums[count - 1] - demand.slots
    return Placement(chosen, slots, hosts.slots[chosen] if demand.whole else slots)
