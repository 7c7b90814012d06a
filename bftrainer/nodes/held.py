"""The pilots that were submitted, each for a node, and what becomes of those that a scheduler puts
elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bftrainer.model.machine import Pilot


@dataclass(slots=True)
class Held:
    """A pilot that was submitted for a node, or is about to be."""

    pilot: Pilot
    since: float  # when its submission was answered or given up; inf before
    listed: bool = False
    reported: bool = False  # its agent has been there
    unused: float | None = None  # since when no trainer needs it


def users_of(held: Mapping[str, Held]) -> dict[str, str]:
    """Node -> the user of its pilot."""
    return {node: one.pilot.user for node, one in held.items()}


def awaited(held: Mapping[str, Held], tag: str) -> bool:
    """Whether a pilot with this tag was submitted whose agent has not come yet: a scheduler may have put it
    on another node than we asked for, and the next poll will tell."""
    return any(one.pilot.tag == tag and not one.reported for one in held.values())


def landed(held: dict[str, Held], listed: Collection[Pilot], releasing: Collection[str], now: float) -> None:
    """Some schedulers choose the node themselves: a pilot that runs on another one than it was submitted for
    is held where it is from now on. A pilot of ours that was to run there and does not yet is dropped."""
    shown = frozenset(listed)
    running = {pilot for pilot in listed if not pilot.pending}
    wished = {
        one.pilot.tag: node for node, one in held.items() if not one.reported and one.pilot not in shown
    }
    moved = {
        wished[pilot.tag]: pilot
        for pilot in running
        if pilot.tag in wished
        and pilot.user == held[wished[pilot.tag]].pilot.user
        and pilot.node not in releasing
    }

    def is_taken(node: str) -> bool:
        there = None if node in moved else held.get(node)
        return there is not None and (there.reported or there.pilot in running)

    moved = {node: pilot for node, pilot in moved.items() if not is_taken(pilot.node)}
    for node in moved:
        del held[node]
    for pilot in moved.values():
        held[pilot.node] = Held(pilot, now, listed=True)
