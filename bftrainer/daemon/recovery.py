"""What a restarted daemon has to tell the engine: where agents and books differ. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bftrainer.engine.state import State
from bftrainer.launch.launcher import WorkerView
from bftrainer.model.events import Event, Resync, WorkerLost, WorkersReady
from bftrainer.model.trainer import Trainer


def missed(
    state: State, views: Callable[[int], Mapping[str, WorkerView]], present: frozenset[str], now: float
) -> list[Event]:
    """The events that happened while nobody listened, on the nodes that are `present`.

    `views` gives a trainer's workers by node, as their agents have just told. Nodes that are not
    present are the pool's business.
    """
    return [
        event
        for trainer in state.active.values()
        for event in _of(trainer, views(trainer.id), trainer.nodes & present, now)
    ]


def _of(t: Trainer, views: Mapping[str, WorkerView], nodes: frozenset[str], now: float) -> list[Event]:
    events: list[Event] = []
    apart = False
    for node in sorted(nodes):
        view, started = views.get(node), t.started.get(node, 0)
        if view is None or view.generation != started:
            events.append(
                WorkerLost(
                    time=now, trainer=t.id, node=node, generation=started, reason="gone after a restart"
                )
            )
        elif node not in t.members and view.phase == "ready":
            events.append(WorkersReady(time=now, trainer=t.id, generation=started, nodes=frozenset({node})))
        elif node in t.members and view.joined != t.published and view.phase != "finished":
            apart = True
    if apart:
        events.append(Resync(time=now, trainer=t.id, generation=t.published))
    return events
