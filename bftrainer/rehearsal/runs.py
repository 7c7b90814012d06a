"""The runs of a rehearsal: on how many nodes each goes, and what happens to it at which step. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bftrainer.elastic.recorded.directions import Directions
from bftrainer.model.trainer import TrainerSpec

ALONE, AGAIN, SEED, TWO, JOINED, RESUMED = "alone", "again", "seed", "several", "changes", "resumed"
MOST_NODES = 4
PLAIN = Directions()
SOON_S = 1.0
"""Longest seconds between checkpoints in a rehearsal, which is short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """One run: on `nodes` nodes, with as many as `grows_to` after `joins_after` steps; after each of `stops`
    the trainer is cancelled and resumed. `batch`: samples of a step, under elastic.Run. `keys`: keys of the
    spec that this run has otherwise."""

    name: str
    title: str
    nodes: int
    grows_to: int = 0
    joins_after: int = 0
    stops: tuple[int, ...] = ()
    batch: int | None = None
    directions: Directions = PLAIN
    keys: Mapping[str, Any] = field(default_factory=dict)


def first(least: int, most_s: float) -> RunPlan:
    """The run in peace, on one node, with which all others are compared."""
    return RunPlan(
        name=ALONE, title="one process", nodes=1, directions=Directions(least=least, most_s=most_s)
    )


def others(
    spec: TrainerSpec, length: int, cut: int | None, changed: int = 0, batch: int | None = None
) -> list[list[RunPlan]]:
    """The runs that follow, in groups that go on at the same time, for a script of `steps` steps. `changed`:
    the step in which it has kept a value for the last time, after which it must be stopped."""
    late = _uneven(min(max(length * 4 // 5, changed + 1), length - 1), length - 1)
    stops = tuple(sorted({_uneven(length // 3, length - 2), late})) if length > 1 else ()
    plain = Directions(cut=cut)
    groups = [
        [
            RunPlan(name=AGAIN, title="again, rounded", nodes=1, directions=replace(plain, noise="rounding")),
            RunPlan(name=SEED, title="another seed", nodes=1, directions=replace(plain, noise="seed")),
            RunPlan(
                name=RESUMED,
                title="stopped and resumed",
                nodes=1,
                stops=stops,
                directions=replace(plain, holds=stops),
            ),
        ]
    ]
    few, more = sizes(spec)
    if few > 1:
        two = RunPlan(name=TWO, title=f"{few} processes", nodes=few, batch=batch, directions=plain)
        groups += [[two], [replace(_changes(few, more, length, plain), batch=batch)]]
    return groups


def _changes(few: int, more: int, length: int, plain: Directions) -> RunPlan:
    joins = _uneven(length // 5, length - 3)
    early = _uneven(max(joins + 1, length * 2 // 5), length - 2)
    late = _uneven(max(early + 1, length * 7 // 10), length - 1)
    kills = [(early, 1), (late, 0)] if length >= 5 else []
    begins = few if more > few else 1
    return RunPlan(
        name=JOINED,
        title=f"{begins}, then {max(few, more)}, killed",
        nodes=begins,
        grows_to=max(few, more),
        joins_after=joins,
        directions=replace(plain, holds=(joins,), kills=kills, kill_at_end=length),
    )


def _uneven(step: int, most: int) -> int:
    """A step, of up to `most`, after `step` that no small number divides: after every second, third or tenth
    step scripts have just done what they do seldom, and lose nothing."""
    step = max(1, step)
    return next((later for later in range(step, most + 1) if math.gcd(later, 2 * 3 * 5 * 7) == 1), step)


def sizes(spec: TrainerSpec) -> tuple[int, int]:
    """Nodes on which several processes train, before and after a change; 1: the spec allows no more."""
    allowed = [n for n in range(2, MOST_NODES + 1) if spec.allows(n)]
    few = allowed[0] if allowed else 1
    return few, allowed[1] if len(allowed) > 1 else few


def request(
    written: Mapping[str, Any], spec: TrainerSpec, plan: RunPlan, folder: Path, env: Mapping[str, str]
) -> dict[str, Any]:
    """The request to submit for a run: the user's spec, in a scratch folder, on the run's nodes, with curves
    by which it gets all of them. A step has as many samples as on one node, also where it would have more,
    and all gradients: with partial back-propagation the result would depend on the number of nodes."""
    batch = {"batch": {"global": plan.batch}} if plan.batch and not spec.batch else {}
    left_out = {"gpus", "curves", "across", "weight", "priority", "curve"}
    here, there = str(Path(spec.workdir)), str(folder)
    most = max(plan.nodes, plan.grows_to)
    return {
        **{key: value for key, value in written.items() if key not in left_out},
        "name": plan.name,
        "command": [_moved(word, here, there) for word in spec.command],
        "nodes": {"min": 1 if plan.grows_to else plan.nodes, "max": most, "workers": 1},
        "curve": [[n, 1000.0 * n] for n in sorted({1, plan.nodes, most})],
        "scalability": "given",
        "rescale": {"up": {"stall_s": 0.0, "init_s": 0.0}, "down": {"stall_s": 0.0}},
        "workdir": there,
        "env": {**{key: _moved(value, here, there) for key, value in spec.env}, **env},
        **batch,
        **({"partial": False} if spec.launcher == "native" else {}),
        "checkpoint": {"every_s": min(spec.checkpoint_every_s, SOON_S)},
        **plan.keys,
    }


def _moved(text: str, here: str, there: str) -> str:
    return text.replace(here, there) if here not in ("", "/", ".") else text


def lengths(plans: Sequence[RunPlan]) -> int:
    """Nodes that runs need which go on at the same time."""
    return sum(max(plan.nodes, plan.grows_to) for plan in plans)
