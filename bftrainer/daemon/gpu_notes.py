"""What a trainer's user should know of the GPUs of its nodes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from bftrainer.engine.gpus import kept_off
from bftrainer.engine.state import State
from bftrainer.model.machine import Node
from bftrainer.model.trainer import Trainer

NAMED = 3
"""So many nodes of each type are named."""


def gpu_note(trainer: Trainer, state: State, seen: Iterable[Node]) -> str:
    """Whether a trainer's GPUs are of different types, and which nodes have too few for it; empty if neither.
    `seen`: the nodes of the last poll."""
    notes = (mixed(seen, trainer.nodes), kept_off(state.gpus, trainer.spec, state.pool))
    return "; ".join(note for note in notes if note)


def mixed(seen: Iterable[Node], nodes: Collection[str]) -> str:
    """Which of `nodes` have GPUs of which types, in words; empty if all are of one, or it is not known."""
    on: defaultdict[str, list[str]] = defaultdict(list)
    for node in seen:
        if node.name in nodes:
            for kind in node.types:
                on[kind].append(node.name)
    if len(on) < 2:
        return ""
    named = "; ".join(f"{kind} on {_named(sorted(names))}" for kind, names in sorted(on.items()))
    return f"its workers have GPUs of different types ({named}): an admin can keep them apart (node_classes)"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
