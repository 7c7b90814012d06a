"""The use of each host, and the windows in which its slots are free. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lsf.emulator.core.model import State
from lsf.emulator.core.placing import Ints
from lsf.emulator.core.state import ClusterState


@dataclass(frozen=True, slots=True, eq=False)
class Usage:
    """Slots of every host by what the jobs are that have them; `reserved` wait for a job that has to wait."""

    run: Ints
    ssusp: Ints
    ususp: Ints
    reserved: Ints
    exclusive: Ints

    @property
    def jobs(self) -> Ints:
        """NJOBS: all of them."""
        found: Ints = self.run + self.ssusp + self.ususp + self.reserved
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Slots, and the time (s) for which nobody uses them; None: for ever. `slots` has them for each host."""

    length_s: float | None
    slots: Ints


def usage(state: ClusterState) -> Usage:
    """Return the present use of the hosts."""
    kinds = {kind: np.zeros_like(state.hosts.slots) for kind in (State.RUN, State.SSUSP, State.USUSP)}
    reserved, exclusive = np.zeros_like(state.hosts.slots), np.zeros_like(state.hosts.slots)
    for job in state.started():
        if job.placement is not None:
            kinds[job.state][job.placement.hosts] += job.placement.slots
            if job.request.exclusive:
                exclusive[job.placement.hosts] = 1
        if job.launch_host:
            kinds[job.state][state.hosts.index[job.launch_host]] += 1
    if (kept := state.reservation) is not None:
        at = kept.placement.hosts
        reserved[at] = np.minimum(np.where(state.open, state.free, 0)[at], kept.placement.taken)
    return Usage(kinds[State.RUN], kinds[State.SSUSP], kinds[State.USUSP], reserved, exclusive)


def statuses(state: ClusterState, found: Usage) -> list[str]:
    """The status of every host with its reason, as `ok`, `closed_Full` or `unavail`."""
    full, alone = (found.jobs >= state.hosts.slots).tolist(), found.exclusive.tolist()
    return [
        closed.value
        if (closed := state.closed.get(at)) is not None
        else "closed_Excl"
        if alone[at]
        else "closed_Full"
        if full[at]
        else "ok"
        for at in range(len(full))
    ]


def windows(state: ClusterState, now: float, *, launch: bool = True) -> list[Window]:
    """Free slots by how long they are, the longest first; each slot is in one window.

    Where slots are reserved, those that are needed are free until then.
    """
    free = np.where(state.open, state.free, 0)
    if launch:
        run = usage(state).run
        free = np.where(state.hosts.compute, free, np.maximum(state.hosts.slots - run, 0))
    closing = state.site.closes_at
    until = closing - now if closing > now else None
    kept = state.reservation
    if kept is None:
        found = [Window(until, free)]
    else:
        lasting = np.where(state.hosts.compute, np.clip(kept.spare, 0, free), free)
        found = [Window(until, lasting), Window(max(0.0, kept.start - now), free - lasting)]
    return [window for window in found if window.slots.any() and window.length_s != 0]


def cumulative(found: list[Window]) -> list[Window]:
    """Windows such that each one has the slots of the longer ones, too."""
    sums: list[Window] = []
    for window in found:
        sums.append(Window(window.length_s, window.slots + (sums[-1].slots if sums else 0)))
    return sums
