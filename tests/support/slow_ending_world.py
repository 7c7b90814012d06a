"""`EndingWorld` in which every message takes its time: what happens next is drawn by lot.

Between a decision and the moment when it is carried out the store is waited for, as in the daemon; orders and
reports of a node keep their order, those of two nodes do not.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from bftrainer.engine.state import Step
from bftrainer.model.events import Event, NodesChanged
from bftrainer.model.reports import Message
from tests.support.ending_world import EndingWorld, Worker
from tests.support.engine_world import step_of
from tests.support.messages import report
from tests.support.remembering_ports import RememberingPorts

MANY = 5_000
"""So much may happen before all is quiet."""


class SlowEndingWorld(EndingWorld):
    """See above. `draw` says what is next."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._decided: Step | None = None  # and not carried out yet
        self._reports: dict[str, deque[Message]] = defaultdict(deque)
        self._orders: dict[str, deque[Message]] = defaultdict(deque)
        super().__init__(until_exit=False)
        for node in "ab":
            self.settle()
            self.take(NodesChanged(time=self.timers.now(), joined=frozenset({node})))
            self.launcher.agent_up(node, [], {1})
        self.settle()

    def take(self, event: Event) -> None:
        """The engine takes an event."""
        self._decided = step_of(self.state, event)
        self.state = self._decided.state

    def send(self, node: str, message: Message) -> None:
        RememberingPorts.send(self, node, message)
        self._orders[node].append(message)

    def run(self) -> None:
        """Nothing happens at once: see `settle`."""

    def settle(self) -> None:
        """Go on until all is quiet."""
        for _ in range(MANY):
            if not self.go_on():
                return
        raise AssertionError("it never comes to rest")

    def go_on(self) -> bool:
        """Let one thing happen that may be next; whether there was any."""
        self.timers.advance(0.001)
        choices: list[Callable[[], object]] = []
        if self._decided is not None:
            choices.append(self._carry_out)
        elif any(event.time <= self.timers.now() for event in self.events):
            choices.append(self._take_next)
        choices += [lambda n=node: self._hear(n) for node, waiting in self._reports.items() if waiting]
        choices += [lambda n=node: self._do_next(n) for node, waiting in self._orders.items() if waiting]
        if not choices:
            return self._meet()
        if self._draw.random() < 0.2:
            self._meet()
        self._draw.choice(choices)()
        return True

    def _carry_out(self) -> None:
        found, self._decided = self._decided, None
        assert found is not None
        for action in found.actions:
            self.launcher.perform(action)
        if found.ended is not None:
            self.ended = found.ended
            self.launcher.known.forget(1)

    def _take_next(self) -> None:
        due = [event for event in self.events if event.time <= self.timers.now()]
        first = min(due, key=lambda event: (event.time, event.priority))
        self.events.remove(first)
        self.take(first)

    def _hear(self, node: str) -> None:
        message = self._reports[node].popleft()
        self.launcher.reported(node, report(**message))

    def _do_next(self, node: str) -> None:
        self._obey(node, self._orders[node].popleft())

    def _said(self, node: str, worker: Worker, kind: str, **fields: Any) -> None:
        self._reports[node].append({"kind": kind, "started": worker.started, **fields})
