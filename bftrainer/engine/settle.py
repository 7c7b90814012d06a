"""From the allocation that is wanted to what is to be done: generations, memberships, actions. Pure."""

from __future__ import annotations

from dataclasses import replace

from bftrainer.engine.state import Draft
from bftrainer.model.actions import Action, Regroup, StartWorker, StopWorker
from bftrainer.model.trainer import Trainer


def settle(
    before: Trainer, now: Trainer, draft: Draft, time: float, *, force: bool
) -> tuple[Trainer, list[Action]]:
    """The actions that lead a trainer from `before` to `now`, and the trainer with them under way, at `time`.

    All actions of one step carry one generation. With `force`, the membership is published even if it is
    the same as before.
    """
    generation = now.generation + 1
    restart = [node for id_, node in draft.restart if id_ == now.id]
    new = sorted(now.nodes - now.started.keys())
    now = replace(now, started={**now.started, **dict.fromkeys(new, generation)})
    members, warm = _publish(now)
    gone = before.nodes - now.nodes - frozenset(restart)
    released = gone & draft.state.pool | gone & draft.vacated
    leaving = tuple(n for n in before.members if n in released)
    stopping = {n for n in before.joining if n in released}
    enough = now.spec.allows(len(members))
    regroup = force or members != before.members
    if not enough and members:  # survivors that wait for more nodes keep the state: the others may just go
        stopping |= set(leaving)
        regroup = False
    actions: list[Action] = [
        StopWorker(trainer=now.id, generation=generation, node=node) for node in sorted(stopping)
    ]
    if regroup and (members or leaving):
        actions.append(Regroup(trainer=now.id, generation=generation, members=members, leaving=leaving))
        now = replace(now, published=generation)
    actions += [
        StartWorker(
            trainer=now.id,
            generation=generation,
            node=node,
            attempt=now.failures if node in restart else 0,
        )
        for node in new
    ]
    now = replace(
        now,
        members=members,
        warm=warm,
        late=now.late and not members,
        served_s=before.served(time),
        counted_at=time,
    )
    if members != before.members:
        now = _changed(before, now, time)
    return (replace(now, generation=generation), actions) if actions else (now, [])


def _changed(before: Trainer, now: Trainer, time: float) -> Trainer:
    """A trainer with other members from `time` on; those before had too little time if that was not enough
    for a checkpoint."""
    fruitless = now.fruitless
    if before.members:
        short = time - before.changed_at < now.spec.checkpoint_interval_s
        fruitless = fruitless + 1 if short else 0
    return replace(now, changed_at=time, fruitless=fruitless)


def _publish(trainer: Trainer) -> tuple[tuple[str, ...], frozenset[str]]:
    """Members and warm after every complete batch of newcomers has become members.

    A batch is what one generation started; it is complete when all of it that is left is warm. The latest
    ones go on waiting, warm, while with them the members are too few to run (n_min), or of a size that is not
    allowed.
    """
    joining = trainer.joining
    cold = {generation for node, generation in joining.items() if node not in trainer.warm}
    whole = sorted((generation, node) for node, generation in joining.items() if generation not in cold)
    for latest in sorted({generation for generation, _ in whole}, reverse=True):
        batches = sorted(node for generation, node in whole if generation <= latest)
        if trainer.spec.allows(len(trainer.members) + len(batches)):
            return (*trainer.members, *batches), trainer.warm - frozenset(batches)
    return trainer.members, trainer.warm


def dissolve(trainer: Trainer) -> list[Action]:
    """The actions for a trainer that is over: its members checkpoint and leave, its other workers stop."""
    generation = trainer.generation + 1
    actions: list[Action] = [
        StopWorker(trainer=trainer.id, generation=generation, node=node) for node in sorted(trainer.joining)
    ]
    if trainer.members:
        actions.append(
            Regroup(trainer=trainer.id, generation=generation, members=(), leaving=trainer.members)
        )
    return actions


def order(action: Action) -> tuple[int, int]:
    """Sorts a step's actions: nodes are vacated before others take them."""
    return {StopWorker: 0, Regroup: 1, StartWorker: 2}[type(action)], action.trainer
