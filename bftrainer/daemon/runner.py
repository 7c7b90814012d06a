"""The engine, live: takes events from the mailbox, and has decisions stored and carried out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from bftrainer.allocate import decide
from bftrainer.daemon.journal import Decision, Journal
from bftrainer.daemon.mailbox import Mailbox
from bftrainer.daemon.systemd import Pulse
from bftrainer.engine.state import State
from bftrainer.engine.step import step
from bftrainer.model.events import Event
from bftrainer.model.problem import Plan, Problem
from bftrainer.model.trainer import Points, Trainer
from bftrainer.performance.estimate import estimates_of
from bftrainer.ports import Launcher
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry


class Runner:
    """Owns the engine's state and the last plan.

    Events are taken one at a time. For each: the engine decides, the decision is stored, then the launcher
    carries it out (write-ahead). `decided` is called whenever trainers may have other nodes than before.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        journal: Journal,
        launcher: Launcher,
        settings: LiveSettings,
        telemetry: Telemetry,
    ) -> None:
        self._mailbox, self._journal, self._launcher = mailbox, journal, launcher
        self._settings, self._telemetry = settings, telemetry
        self.state = State(settings=settings.current.engine)
        self.last_plan: Plan | None = None
        self.pulse = Pulse()
        self.decided: Callable[[], None] = lambda: None

    def trainers(self) -> tuple[Trainer, ...]:
        """The trainers that may hold nodes, as the last decision left them."""
        return tuple(self.state.active.values())

    def curves(self) -> dict[int, Points]:
        """Trainer -> its estimated samples/s by nodes, of each of `trainers`."""
        active = self.trainers()
        estimated = estimates_of(active, self.state.programs)
        return {t.id: found[None].points for t, found in zip(active, estimated, strict=True)}

    async def run(self) -> None:
        """Take events, for ever."""
        while True:
            for event in await self._mailbox.batch():
                with self.pulse.at_work():
                    await self.take(event)

    async def take(self, event: Event) -> None:
        """Decide on one event, store the decision, carry it out."""
        # settings may have been reloaded since the last event
        before = replace(self.state, settings=self._settings.current.engine)
        outcome = await asyncio.to_thread(step, before, event, self._solve)
        self.state = outcome.state
        if outcome.plan is not None:
            self.last_plan = outcome.plan
        self._telemetry.took(event, outcome.plan, outcome.actions, outcome.ended)
        stored = self._journal.decided(
            Decision(
                event=event,
                trainers=[t for t in outcome.state.active.values() if before.active.get(t.id) is not t],
                plan=outcome.plan,
                actions=outcome.actions,
                ended=outcome.ended,
                pool=outcome.state.pool,
            )
        )
        self._launcher.perform(outcome.actions)
        self._journal.performed(stored)
        if outcome.actions or outcome.ended:
            self.decided()
        if outcome.ended is not None:
            self._launcher.forget(outcome.ended.trainer)
            self._journal.flush()

    def _solve(self, problem: Problem) -> Plan:
        started = time.perf_counter()
        plan = decide(problem, self._settings.current.engine)
        return replace(plan, solve_s=time.perf_counter() - started)
