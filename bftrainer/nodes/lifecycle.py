"""One life per node: the phase that it is in for us, and what polls, orders and ends make of it. Pure.

A node has a record while it is in the pool, has our pilot, or must stay away for a while; without one it is
the main scheduler's. Every function takes the records and returns new ones, some with effects, which `hold`,
`release` and `pilots` perform. `pool` has what polls make of them. A poll is reconciled, never believed: it
may be older than what an agent said, it may miss a pilot that was submitted a moment ago, and a node that it
calls free may still be on its way.

    from         event                                                       to
    (no record)  idle for `debounce_s`                                       FREE
    (no record)  idle since a moment                                         RESTING
    (no record)  our pilot runs there: after a restart, or it landed         STARTING
    FREE         a trainer is to run there                                   ORDERED
    ORDERED      a poll lists its pilot                                      STARTING
    ORDERED      its submission is refused                                   FREE
    STARTING     its agent comes (of ORDERED as well: before any poll)       UP
    held         a main job or the site wants it, while workers are there    RELEASING
    RELEASING    the scheduler has taken another node instead                ORDERED, STARTING or UP
    held         its pilot ends, and the node has left the pool              CLEARING
    held         its pilot ends, and the node stays in the pool              FREE
    CLEARING     neither the pilot nor its epilog are shown any more         RESTING
    RESTING      `rejoin_s` or `debounce_s` is over, and it is idle          FREE
    any unheld   pilots have failed there                                    QUARANTINED
    any unheld   not idle, and nothing else keeps it                         (no record)

ORDERED, STARTING and UP are "held"; these and FREE are in the pool, but for a moment after a pilot has landed
elsewhere or was spared: such a node joins again like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import inf
from typing import Any

from bftrainer.model.events import NodesChanged
from bftrainer.model.machine import Pilot
from bftrainer.nodes.quarantine import Refusals


class NodePhase(StrEnum):
    """Phases of a node's life with us; `NEXT` has the allowed successors."""

    FREE = "free"  # in the pool, without a pilot
    ORDERED = "ordered"  # its pilot is being submitted, or no poll has listed it yet
    STARTING = "starting"  # its pilot is listed, its agent has not come
    UP = "up"  # its agent has come
    RELEASING = "releasing"  # out of the pool; its workers leave, then its pilot ends
    CLEARING = "clearing"  # out of the pool; its pilot has ended, and may still be shown, or its epilog
    RESTING = "resting"  # it went to main jobs a moment ago, or is idle since a moment
    QUARANTINED = "quarantined"  # pilots failed there: nobody gets one for a while


NEXT: Mapping[NodePhase | None, str] = {
    None: "free starting resting quarantined",
    NodePhase.FREE: "ordered starting clearing quarantined none",
    NodePhase.ORDERED: "free starting up releasing clearing none",
    NodePhase.STARTING: "free up releasing clearing none",
    NodePhase.UP: "free releasing clearing",
    NodePhase.RELEASING: "ordered starting up clearing none",
    NodePhase.CLEARING: "starting resting",
    NodePhase.RESTING: "free starting quarantined none",
    NodePhase.QUARANTINED: "free starting resting none",
}
"""Phase -> those that one event may lead to; None, and none: no record."""
HELD = frozenset({NodePhase.ORDERED, NodePhase.STARTING, NodePhase.UP})


@dataclass(frozen=True, slots=True)
class PilotEnd:
    """The end of a node's last pilot, until the node is seen to be clear of it."""

    pilot: Pilot
    at: float
    by_us: bool = True  # else the scheduler has ended it, maybe for a job that has the node now
    listed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """One node's life at present. `since`: when its phase began. `pooled`: whether trainers may get it.

    `until`: when the scheduler will probably take a node of the pool, or when a rest or a quarantine ends;
    None: not known.
    `handed`: when it went to a main job; `taken`: whether the scheduler has taken it itself.
    """

    name: str
    phase: NodePhase
    since: float
    pooled: bool = False
    pilot: Pilot | None = None
    reason: str = ""
    until: float | None = None
    answered: float = inf  # when the pilot's submission was answered
    listed: bool = False  # whether a poll has shown the pilot
    reported: bool = False  # whether its agent has come
    unused: float | None = None  # since when no trainer needs the pilot
    idle_since: float | None = None  # while it may join soon
    end: PilotEnd | None = None
    handed: float | None = None
    taken: bool = False

    @property
    def user(self) -> str | None:
        """As whom its pilot runs, or ran last; None: it has had none."""
        pilot = self.pilot or (self.end.pilot if self.end else None)
        return pilot.user if pilot else None


@dataclass(frozen=True)
class Records:
    """The records of all nodes by name, and the pilots that are to end while the scheduler lists them, with
    how often that was tried."""

    nodes: Mapping[str, NodeRecord] = field(default_factory=dict)
    ending: Mapping[Pilot, Refusals] = field(default_factory=dict)

    @cached_property
    def pool(self) -> frozenset[str]:
        """The nodes of the pool."""
        return frozenset(name for name, one in self.nodes.items() if one.pooled)

    @cached_property
    def pilots(self) -> dict[str, Pilot]:
        """Node -> its pilot, that is to end or not."""
        return {name: one.pilot for name, one in self.nodes.items() if one.pilot is not None}

    @cached_property
    def releasing(self) -> frozenset[str]:
        """The nodes that we give back, as long as the scheduler may still count them as ours."""
        return frozenset(
            name
            for name, one in self.nodes.items()
            if one.phase is NodePhase.RELEASING
            or (one.phase is NodePhase.CLEARING and one.end is not None and one.end.listed)
        )

    @cached_property
    def clearing(self) -> dict[str, PilotEnd]:
        """The nodes that are not clear yet of a pilot that we have ended."""
        return {name: one.end for name, one in self.nodes.items() if one.end and one.end.by_us}

    @cached_property
    def users(self) -> dict[str, str]:
        """The nodes with our pilots, also past ones not yet cleared -> the user as which they run, or ran."""
        ran = {name: end.pilot.user for name, end in self.clearing.items()}
        return ran | {name: pilot.user for name, pilot in self.pilots.items()}

    def awaits(self, tag: str) -> bool:
        """Return whether a pilot with this tag was submitted whose agent has not come yet: a scheduler may
        have put it on another node than we asked for, and the next poll will tell."""
        return any(
            one.pilot.tag == tag and not one.reported
            for one in self.nodes.values()
            if one.pilot is not None and one.phase is not NodePhase.RELEASING
        )

    def with_(self, changed: Iterable[NodeRecord | str]) -> Records:
        """These records with others in their place; a name alone: without its record."""
        nodes = dict(self.nodes)
        for one in changed:
            if isinstance(one, str):
                nodes.pop(one, None)
            else:
                nodes[one.name] = one
        return replace(self, nodes=nodes)


@dataclass(frozen=True, slots=True)
class SubmitPilots:
    """Submit these pilots."""

    pilots: tuple[Pilot, ...]


@dataclass(frozen=True, slots=True)
class CancelPilots:
    """End these pilots."""

    pilots: tuple[Pilot, ...]


@dataclass(frozen=True, slots=True)
class ExitAgents:
    """Tell the agents on these nodes to end, and the launcher that the nodes are gone."""

    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class VacateNodes:
    """Have the workers leave these nodes; then their pilots are to end."""

    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class NodeCleared:
    """A node is clear of our pilot, so long after its end."""

    pilot: Pilot
    took_s: float


Effect = SubmitPilots | CancelPilots | ExitAgents | VacateNodes | NodeCleared | NodesChanged


# what is ordered, and what becomes of it


def ordered(records: Records, pilots: Iterable[Pilot], now: float) -> tuple[Records, SubmitPilots]:
    """Pilots are to be submitted. Those whose nodes have left the pool meanwhile, or have one, are not."""
    wanted = tuple(
        p for p in pilots if p.node in records.nodes and records.nodes[p.node].phase is NodePhase.FREE
    )
    begun = [moved(records.nodes[p.node], NodePhase.ORDERED, now, pilot=p, unused=None) for p in wanted]
    return records.with_(begun), SubmitPilots(wanted)


def answered(records: Records, pilot: Pilot, now: float) -> Records:
    """A submission was accepted, or its answer is given up."""
    one = records.nodes.get(pilot.node)
    return records if one is None or one.pilot != pilot else records.with_([replace(one, answered=now)])


def refused(records: Records, pilot: Pilot, now: float) -> Records:
    """A submission was refused: there is no such pilot."""
    one = records.nodes.get(pilot.node)
    return records if one is None or one.pilot != pilot else records.with_([without_pilot(one, now)])


def adopted(records: Records, pilot: Pilot, now: float) -> Records:
    """A pilot runs that an earlier daemon submitted, or that landed where it was not asked for."""
    before = records.nodes.get(pilot.node) or new_record(pilot.node, NodePhase.STARTING, now)
    return records.with_(
        [moved(before, NodePhase.STARTING, now, pilot=pilot, answered=now, listed=True, reported=False)]
    )


def reported(records: Records, name: str, now: float) -> Records:
    """The agent of a node's pilot has come."""
    return records.with_([in_phase(replace(records.nodes[name], listed=True, reported=True), now)])


def needed(records: Records, wanted: Mapping[str, str], now: float) -> Records:
    """Note which pilots no trainer needs; `wanted` is node -> user."""
    unused = {name: None if wanted.get(name) == pilot.user else now for name, pilot in records.pilots.items()}
    changed = [
        replace(one, unused=since)
        for name, since in unused.items()
        if (since is None) != ((one := records.nodes[name]).unused is None)
    ]
    return records.with_(changed) if changed else records


# how nodes go


def left(records: Records, names: Iterable[str], now: float) -> tuple[Records, frozenset[str]]:
    """Nodes leave the pool; a pilot that is there is still to be ended. Returns those that were in it."""
    gone = [records.nodes[name] for name in frozenset(names) & records.pool]
    return records.with_(out_of_pool(one, now) for one in gone), frozenset(one.name for one in gone)


def released(records: Records, names: Iterable[str], now: float, *, claimed: bool) -> Records:
    """Workers are to leave these nodes, which are out of the pool; `claimed`: for main jobs that wait."""
    going = [one for name in names if (one := records.nodes.get(name)) is not None and one.phase in HELD]
    more: dict[str, Any] = {"handed": now} if claimed else {}
    return records.with_(
        moved(one, NodePhase.RELEASING, now, pooled=False, idle_since=None, **more) for one in going
    )


def spared(records: Records, names: Iterable[str], now: float) -> Records:
    """These nodes, which were to be released, stay ours. They join the pool again like any other."""
    stay = [
        one
        for name in names
        if (one := records.nodes.get(name)) is not None and one.phase is NodePhase.RELEASING
    ]
    return records.with_(in_phase(replace(one, handed=None), now, spared=True) for one in stay)


def taken(records: Records, names: Iterable[str], now: float) -> Records:
    """The scheduler takes these nodes itself: it has told their pilots to end."""
    there = [one for name in names if (one := records.nodes.get(name)) is not None]
    return records.with_(replace(one, handed=now, taken=True) for one in there)


def taken_since(records: Records, moment: float) -> frozenset[str]:
    """The nodes that the scheduler has taken itself since a moment."""
    return frozenset(
        name
        for name, one in records.nodes.items()
        if one.taken and one.handed is not None and one.handed >= moment
    )


def ended(
    records: Records, names: Iterable[str], now: float, *, by_us: bool = True
) -> tuple[Records, CancelPilots]:
    """The pilots of these nodes end now."""
    there = [records.nodes[name] for name in sorted(names) if name in records.pilots]
    pilots = tuple(records.pilots[one.name] for one in there)
    return records.with_(without_pilot(one, now, by_us=by_us, ended=True) for one in there), CancelPilots(
        pilots
    )


def dropped(
    records: Records, names: Iterable[str], now: float
) -> tuple[Records, tuple[ExitAgents, CancelPilots]]:
    """The pilots of these nodes end at once: the nodes are gone, or nobody needs the pilots."""
    nodes = frozenset(names)
    records, cancel = ended(records, nodes, now)
    return records, (ExitAgents(nodes), cancel)


def cancelled(records: Records, pilots: Iterable[Pilot], now: float) -> Records:
    """The scheduler is asked to end these pilots, perhaps not for the first time."""
    tries = {pilot: records.ending.get(pilot, Refusals()).more(now, "") for pilot in pilots}
    return replace(records, ending={**records.ending, **tries})


def begun(records: Records, present: Iterable[str], now: float) -> Records:
    """Exactly these nodes are in the pool, as the engine was told when it began."""
    there = frozenset(present)
    out = [out_of_pool(one, now) for name, one in records.nodes.items() if one.pooled and name not in there]
    return records.with_([*out, *(replace(_at(records, name, now), pooled=True) for name in there)])


# single records


def new_record(name: str, phase: NodePhase, now: float) -> NodeRecord:
    """A record without a pilot, in this phase from now on."""
    return NodeRecord(name=name, phase=phase, since=now)


def _at(records: Records, name: str, now: float) -> NodeRecord:
    return records.nodes.get(name) or new_record(name, NodePhase.FREE, now)


def moved(one: NodeRecord, phase: NodePhase, now: float, **changes: Any) -> NodeRecord:
    """A record in a phase, which begins now unless it was in it, with other changes."""
    since = one.since if phase is one.phase else now
    return replace(one, phase=phase, since=since, **changes)


def in_phase(one: NodeRecord, now: float, *, spared: bool = False) -> NodeRecord:
    """A record with a pilot, in the phase that follows from what is known of that."""
    if one.phase is NodePhase.RELEASING and not spared:
        return one
    return moved(
        one, NodePhase.UP if one.reported else NodePhase.STARTING if one.listed else NodePhase.ORDERED, now
    )


def without_pilot(
    one: NodeRecord, now: float, *, by_us: bool = True, ended: bool = False
) -> NodeRecord | str:
    """The record of a node without its pilot, which has `ended` or never was; its name if none is left."""
    end = PilotEnd(one.pilot, now, by_us) if ended and one.pilot is not None else one.end
    bare = replace(one, pilot=None, answered=inf, listed=False, reported=False, unused=None, end=end)
    if one.pooled:
        return moved(bare, NodePhase.FREE, now)
    return one.name if end is None else moved(bare, NodePhase.CLEARING, now, idle_since=None)


def out_of_pool(one: NodeRecord, now: float) -> NodeRecord | str:
    """The record of a node that leaves the pool; its name if none is left."""
    if one.pilot is not None:
        return replace(one, pooled=False, until=None)
    return one.name if one.end is None else moved(one, NodePhase.CLEARING, now, pooled=False, until=None)
