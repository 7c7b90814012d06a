"""(state, event) -> (state, actions): every decision of bftrainer, and no side effect.

The daemon feeds it what schedulers and agents report, the replay what a log and a simulated launcher
say; nothing here knows which. Time comes with the event. The life of a change:

1. Nodes join or leave, a trainer arrives, ends or changes: `allocate` plans anew over the first
   `max_parallel` unfinished trainers (highest priority, then first come, first served), or over all.
2. Added nodes get `StartWorker`. Members train on until every worker that was started at the same
   moment reports ready; then one `Regroup` publishes the new membership (publish when ready).
3. Lost members are regrouped away at once, without waiting for anything.

A trainer's `generation` grows with every step that acts on it, `published` is the one of its current
membership; reports that carry another one are ignored (fencing).
"""

from __future__ import annotations

from dataclasses import replace

from bftrainer.engine.decide import decide
from bftrainer.engine.settle import dissolve, order, settle
from bftrainer.engine.state import Solve, State, Step
from bftrainer.engine.take import take
from bftrainer.model.actions import Action
from bftrainer.model.events import (
    Event,
)
from bftrainer.model.trainer import Trainer


def step(state: State, event: Event, solve: Solve) -> Step:
    """Take one event in. `solve` answers the allocation problem, see `allocate`."""
    taken = take(event, state)
    plan = None
    after = taken.active
    if taken.decide:
        plan, after = decide(state, taken, event.time, solve)
    actions: list[Action] = []
    active: dict[int, Trainer] = {}
    for id_, trainer in after.items():
        before = state.active.get(id_, taken.active[id_])
        force = id_ in taken.regroup
        if trainer is before and not force:
            active[id_] = trainer
            continue
        active[id_], own = settle(before, trainer, taken, force=force)
        actions += own
    if taken.ended is not None and (gone := state.active.get(taken.ended.trainer)) is not None:
        actions += dissolve(gone)
    return Step(
        state=replace(
            state,
            pool=taken.pool,
            active=active,
            waiting=taken.waiting,
            draining=taken.draining,
            since=taken.since,
            facts=taken.facts,
            survival=taken.survival,
            programs=taken.programs,
            estimates=taken.estimates,
        ),
        actions=tuple(sorted(actions, key=order)),
        plan=plan,
        ended=taken.ended,
    )
