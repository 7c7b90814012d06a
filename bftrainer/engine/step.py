"""(state, event) -> (state, actions): every decision of bftrainer, and no side effect.

The daemon feeds in reports of schedulers and agents, a replay those of a log and a simulated launcher; the
engine cannot tell which. Time comes with the event. A change goes through three stages:

1. Nodes join or leave, a trainer arrives, ends or changes: `allocate` plans again over the first
   `max_parallel` unfinished trainers (highest priority, then first come, first served), or over all.
2. Added nodes get `StartWorker`. Members train on until every worker that was started at the same
   moment reports ready; then one `Regroup` publishes the new membership (publish when ready).
3. Lost members are regrouped away at once, without waiting for anything.

A trainer's `generation` grows with every step that acts on it, `published` is the one of its current
membership; the engine ignores reports that carry another one (fencing).
"""

from __future__ import annotations

from dataclasses import replace

from bftrainer.engine.decide import decide, reduced
from bftrainer.engine.settle import dissolve, order, settle
from bftrainer.engine.state import Solve, State, Step
from bftrainer.engine.take import take
from bftrainer.model.actions import Action
from bftrainer.model.events import Event
from bftrainer.model.trainer import Trainer


def step(state: State, event: Event, solve: Solve, *, plan: bool = True) -> Step:
    """Take one event in, and return the next state with the actions to perform.

    `solve` answers the allocation problem, see `allocate.decide`; it is called once, and once more if
    trainers cannot use the nodes that it leaves them. Without `plan`, nothing is planned again: trainers keep
    the nodes that the event leaves them, as far as they can use them.

    Raises:
        TypeError: `event` is not an event.
    """
    draft = take(event, state)
    draft.state = _counted(state, draft.state, event.time)
    made, decided = None, draft.state
    if draft.decide:
        made, decided = decide(decided, event.time, solve) if plan else (None, reduced(decided))
    actions: list[Action] = []
    active: dict[int, Trainer] = {}
    for id_, trainer in decided.active.items():
        before = state.active.get(id_) or draft.state.trainer(id_) or trainer
        force = id_ in draft.regroup
        if trainer is before and not force:
            active[id_] = trainer
            continue
        active[id_], own = settle(before, trainer, draft, event.time, force=force)
        actions += own
    if draft.ended is not None and (gone := state.active.get(draft.ended.trainer)) is not None:
        actions += dissolve(gone)
    return Step(
        state=replace(decided, active=active),
        actions=tuple(sorted(actions, key=order)),
        plan=made,
        ended=draft.ended,
    )


def _counted(before: State, after: State, now: float) -> State:
    """The state in which the service of trainers that an event has changed is counted up to `now`, with the
    nodes that they had until then: a decision may depend on it."""
    changed = {
        id_: replace(t, served_s=earlier.served(now), counted_at=now)
        for id_, t in after.active.items()
        if (earlier := before.active.get(id_)) is not None and earlier is not t
    }
    return replace(after, active={**after.active, **changed}) if changed else after
