"""Reconciles the nodes' records with polls: pilots that are listed, nodes that come and go. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from bftrainer.model.events import NodesChanged
from bftrainer.model.machine import Node, NodeInfo, NodeState, Pilot, Snapshot
from bftrainer.nodes.lifecycle import (
    HELD,
    CancelPilots,
    Effect,
    NodeCleared,
    NodePhase,
    NodeRecord,
    PilotEnd,
    Records,
    VacateNodes,
    adopted,
    dropped,
    in_phase,
    moved,
    new_record,
    out_of_pool,
    released,
    without_pilot,
)

BEING_CLEARED = "completing"
"""A scheduler's word for a node on which a job is still ending."""
MOST_CLEARING_S = 120.0
"""A node that takes longer is not cleared but has a fault, and is waited for no longer."""
LISTED_S = 5.0
"""Seconds after the answer to its submission when an unlisted pilot does not exist."""
MOST_TAKERS = 16
"""Claims of which it is told which nodes are given back for them: there may be thousands."""
GONE = "its pilot is gone"
ASKED_BACK = "the scheduler asked for it back"


def landed(records: Records, snapshot: Snapshot) -> Records:
    """Some schedulers choose the node themselves: a pilot that runs on another one than it was submitted for
    is held where it is from now on. Our pilot that was to run there and does not yet is dropped."""
    shown = frozenset(snapshot.pilots)
    wished = {
        one.pilot.tag: one
        for one in records.nodes.values()
        if one.pilot is not None
        and one.phase in {NodePhase.ORDERED, NodePhase.STARTING}
        and one.pilot not in shown
    }
    running = [pilot for pilot in snapshot.pilots if not pilot.pending]
    elsewhere = {
        wish.name: pilot
        for pilot in running
        if (wish := wished.get(pilot.tag)) is not None
        and wish.pilot is not None
        and pilot.user == wish.pilot.user
        and pilot.node not in records.releasing
    }
    if not elsewhere:
        return records
    there = frozenset(running)
    kept = {
        name
        for name, pilot in records.pilots.items()
        if name not in elsewhere and (records.nodes[name].reported or pilot in there)
    }
    elsewhere = {name: pilot for name, pilot in elsewhere.items() if pilot.node not in kept}
    records = records.with_(without_pilot(records.nodes[name], snapshot.time) for name in elsewhere)
    for pilot in elsewhere.values():
        records = adopted(records, pilot, snapshot.time)
    return records


def reconciled(records: Records, snapshot: Snapshot) -> tuple[Records, tuple[Effect, ...]]:
    """Reconcile with the pilots that a poll has listed, and see which nodes are clear of ended ones.

    Any user can read a tag in the scheduler's list and submit a job that carries it: a pilot is ours only if
    its node and user are right, too. All others are to be ended, again and again while they are listed.
    """
    now, shown = snapshot.time, {pilot: pilot for pilot in snapshot.pilots}
    why = {node.name: node.why for node in snapshot.nodes}
    changed: list[NodeRecord | str] = []
    effects: list[Effect] = []
    for one in records.nodes.values():
        after = one
        listed = shown.get(one.pilot) if one.pilot is not None else None
        if listed is not None and not (one.listed and _is_the_same(one.pilot, listed)):
            after = in_phase(replace(one, pilot=listed, listed=True), now)
        if one.end is not None:
            after = _seen(after, one.end, snapshot, why.get(one.name), one.end.pilot in shown)
            if after.end is None and one.name in why and one.end.by_us:
                effects.append(NodeCleared(one.end.pilot, now - one.end.at))
        if after is not one:
            changed.append(after)
    records = records.with_(changed)
    ours = frozenset(records.pilots.values())
    ending = {pilot: tries for pilot, tries in records.ending.items() if pilot in shown}
    strays = tuple(
        pilot
        for pilot in shown.values()
        if pilot not in ours and (pilot not in ending or ending[pilot].until < now)
    )
    if strays:
        effects.append(CancelPilots(strays))
    return replace(records, ending=ending), tuple(effects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """On what terms nodes are ours. `given_up` nodes leave and do not join; main jobs are to get those of
    them that are `claimed`, and on those that are `barred` pilots have failed, with the reason, and are not
    `retried` before then (Unix s). No node joins while `closed`."""

    debounce_s: float = 0.0
    min_hole_s: float = 0.0
    rejoin_s: float = 0.0
    closed: bool = False
    given_up: frozenset[str] = frozenset()
    claimed: frozenset[str] = frozenset()
    barred: Mapping[str, str] = field(default_factory=dict)
    retried: Mapping[str, float] = field(default_factory=dict)


def polled(records: Records, snapshot: Snapshot, terms: Terms) -> tuple[Records, tuple[Effect, ...]]:
    """Nodes join and leave the pool by what a reconciled poll shows: all changes are one event, if any.

    A node joins only after it has been idle for `debounce_s`: between the end of one job and the start of the
    next a node is idle for a moment (the paper drops these records too, section 2.1). It leaves at once.
    """
    now, changed = snapshot.time, list[NodeRecord | str]()
    out = set(records.nodes)
    joined, gone = set[str](), set[str]()
    facts: dict[str, NodeInfo] = {}
    for node in snapshot.nodes:
        before = records.nodes.get(node.name)
        out.discard(node.name)
        after = _next(before, node, terms, now)
        if after is before:
            continue
        changed.append(after if after is not None else node.name)
        was, is_ = before is not None and before.pooled, after is not None and after.pooled
        if is_ and not was:
            joined.add(node.name)
        elif was and not is_:
            gone.add(node.name)
        if is_ and node.until != (before.until if was and before is not None else None):
            facts[node.name] = NodeInfo(until=node.until)
    for name in out:  # the scheduler does not show them
        one = records.nodes[name]
        if one.pooled:
            gone.add(name)
            changed.append(out_of_pool(one, now))
        elif one.pilot is None and one.end is None:
            changed.append(name)
    records = records.with_(changed) if changed else records
    vacated = frozenset(gone & terms.given_up)
    # one that was spared has not joined again yet, and nobody else would give it back
    going = vacated | {name for name in terms.given_up if _is_held_outside(records.nodes.get(name))}
    if not joined and not gone and not facts and not going:
        return records, ()
    event = NodesChanged(
        time=now,
        joined=frozenset(joined),
        left=frozenset(gone),
        vacated=vacated,
        reason="poll",
        facts=facts,
        jobs=_takers(gone, snapshot, terms.claimed),
    )
    records = released(records, going, now, claimed=bool(snapshot.claims))
    records, ends = dropped(records, gone - vacated, now)
    changes = (event,) if joined or gone or facts else ()
    return records, (*changes, VacateNodes(going), *ends)


def _takers(gone: Collection[str], snapshot: Snapshot, claimed: frozenset[str]) -> dict[str, frozenset[str]]:
    """Main job -> the nodes that are gone to it. The scheduler decides which claim gets which nodes: as long
    as it has not, each gets as many as it asks for, in turn."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for node in snapshot.nodes:
        if node.job and node.name in gone:
            found[node.job].add(node.name)
    left = claimed.intersection(gone).difference(*found.values())
    for claim in snapshot.claims[:MOST_TAKERS] if left else ():
        own = sorted(claim.nodes & left)[: claim.count]
        found[claim.job].update(own)
        left = left.difference(own)
    return {job: frozenset(own) for job, own in found.items() if own}


def lost(
    records: Records, snapshot: Snapshot, connected: Callable[[str], bool], start_s: float
) -> dict[str, str]:
    """The nodes whose pilots are gone or never began, with the reason. An agent that is there knows better;
    one that has been there and is gone may come back while its pilot is listed: see `Release.agent_down`."""
    shown, found = frozenset(snapshot.pilots), dict[str, str]()
    for name, pilot in records.pilots.items():
        one = records.nodes[name]
        age = snapshot.time - one.answered
        if connected(name):
            continue
        if pilot not in shown and (one.listed or age > LISTED_S):
            found[name] = GONE if one.listed else "its pilot was lost on its way"
        elif age > start_s and not one.reported:
            why = pilot.pending or "its agent did not report; do nodes reach `address`?"
            found[name] = f"its pilot did not start within {start_s:g} s: {why}"
    return found


def _is_held_outside(one: NodeRecord | None) -> bool:
    """Return whether we have a pilot on a node that is not in the pool, and do not give it back yet."""
    return one is not None and not one.pooled and one.phase in HELD


def _is_the_same(one: Pilot | None, other: Pilot) -> bool:
    """Return whether the scheduler says of a pilot what it has said before."""
    return one is not None and (one.job, one.ends, one.pending) == (other.job, other.ends, other.pending)


def _seen(one: NodeRecord, end: PilotEnd, seen: Snapshot, why: str | None, listed: bool) -> NodeRecord:
    """A record with an ended pilot after a poll; `why` is what the poll says of the node, None: nothing.

    A scheduler that names the pilots that it clears away has the last word: on such a node another user's job
    may be what ends, which is no reason to blame the pilot's user.
    """
    cleared_away = (
        BEING_CLEARED in (why or "").split("+") if seen.clearing is None else end.pilot in seen.clearing
    )
    clear = why is None or not (listed or cleared_away)
    if clear or seen.time - end.at > MOST_CLEARING_S:
        after = NodePhase.RESTING if one.phase is NodePhase.CLEARING else one.phase
        return moved(one, after, seen.time, end=None)
    return one if listed is end.listed else replace(one, end=replace(end, listed=listed))


def _next(one: NodeRecord | None, node: Node, terms: Terms, now: float) -> NodeRecord | None:
    """Return a node's record after a poll; None: it has none."""
    idle = node.state is NodeState.IDLE and node.name not in terms.given_up
    if one is not None and one.pooled:
        if idle:
            return one if one.until == node.until else replace(one, until=node.until)
        after = out_of_pool(one, now)
        one = None if isinstance(after, str) else after
    if one is not None and (one.phase is NodePhase.RELEASING or one.phase is NodePhase.CLEARING):
        return one
    if one is None or one.pilot is None:
        if node.name in terms.barred:
            one = one or new_record(node.name, NodePhase.QUARANTINED, now)
            why, until = terms.barred[node.name], terms.retried.get(node.name)
            return moved(one, NodePhase.QUARANTINED, now, reason=why, until=until, idle_since=None)
        if one is not None and one.handed is not None and now - one.handed < terms.rejoin_s:
            until = one.handed + terms.rejoin_s
            return one if one.until == until else replace(one, until=until)
    brief = node.until is not None and node.until - now < terms.min_hole_s
    if not idle or brief or terms.closed:
        return None if one is None or one.pilot is None else _not_idle(one)
    return _idle(one or new_record(node.name, NodePhase.RESTING, now), node, terms.debounce_s, now)


def _not_idle(one: NodeRecord) -> NodeRecord:
    return one if one.idle_since is None else replace(one, idle_since=None)


def _idle(one: NodeRecord, node: Node, debounce_s: float, now: float) -> NodeRecord:
    """The record of a node that may join, as soon as it has been idle for `debounce_s`."""
    first = now if one.idle_since is None else one.idle_since
    if now - first >= debounce_s:
        phase = NodePhase.FREE if one.pilot is None else one.phase
        joins = replace(
            one, pooled=True, idle_since=None, until=node.until, reason="", handed=None, taken=False
        )
        return moved(joins, phase, now)
    if one.pilot is not None:
        return one if one.idle_since == first else replace(one, idle_since=first)
    if one.idle_since == first:
        return one
    return moved(
        one, NodePhase.RESTING, now, idle_since=first, until=first + debounce_s, reason="", handed=None
    )
