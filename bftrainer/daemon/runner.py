"""The engine, live: takes events from the mailbox, and has decisions stored and carried out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import ParamSpec, TypeVar

from bftrainer.allocate import decide
from bftrainer.daemon.index import Index
from bftrainer.daemon.mailbox import Mailbox
from bftrainer.daemon.storage.journal import StoreJournal
from bftrainer.daemon.storage.writes import StoredDecision
from bftrainer.daemon.systemd import Pulse
from bftrainer.engine.contain import Contained, contained
from bftrainer.engine.due import PlansDue
from bftrainer.engine.state import State
from bftrainer.model.actions import Action
from bftrainer.model.events import Event, PriorityChanged, TrainerEnded
from bftrainer.model.problem import Plan, Problem
from bftrainer.model.text import shown
from bftrainer.model.trainer import Points, Trainer, TrainerStatus
from bftrainer.performance.curve import linear
from bftrainer.performance.estimate import estimates_of
from bftrainer.ports import Launcher
from bftrainer.settings.live import LiveSettings
from bftrainer.telemetry.telemetry import Telemetry
from bftrainer.threads import no_collection

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
MOST = 400
"""Characters of an error that are told, at most."""


class Runner:
    """Owns the engine's state and the last plan.

    Events are taken one at a time. For each: the engine decides, the decision is stored, then the launcher
    carries it out (write-ahead; a store that does not answer is not waited for). The engine has a thread of
    its own, so that nothing else can keep it waiting. `decided` is called whenever trainers may have other
    nodes than before.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        journal: StoreJournal,
        launcher: Launcher,
        settings: LiveSettings,
        telemetry: Telemetry,
        index: Index,
    ) -> None:
        self._index = index
        self._mailbox, self._journal, self._launcher = mailbox, journal, launcher
        self._settings, self._telemetry = settings, telemetry
        self.state = State(settings=settings.current.engine)
        self.last_plan: Plan | None = None
        self.stored = 0
        """Events that have been taken and stored since the daemon began."""
        self.pulse = Pulse()
        self.decided: Callable[[], None] = lambda: None
        self.ended: Callable[[int], None] = lambda trainer: None
        """Called with each trainer that the engine has ended."""
        self._engine = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._plans_due = PlansDue()

    def trainers(self) -> tuple[Trainer, ...]:
        """The trainers that may hold nodes, as the last decision left them."""
        return tuple(self.state.active.values())

    def user_of(self, trainer: int) -> str:
        """Return the user of an unfinished trainer; empty: there is none with this number."""
        found = self.state.trainer(trainer)
        return "" if found is None else found.spec.user

    def curves(self, trainers: Sequence[Trainer]) -> dict[int, Points]:
        """Trainer -> its estimated samples/s by nodes; any thread may ask.

        If that fails, all are taken to be as fast: nodes are given back in any case.
        """
        active = tuple(trainers)
        try:
            estimated = estimates_of(active, self.state.programs, goodput=False)
            return {t.id: found[None].points for t, found in zip(active, estimated, strict=True)}
        except Exception:  # a bug, or observations that nobody has thought of
            log.exception("the speeds of trainers cannot be estimated")
            return {t.id: linear(1.0, t.spec.n_max) for t in active}

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
        loop = asyncio.get_running_loop()
        result, changed = await loop.run_in_executor(self._engine, self._step, before, event)
        self._tell(event, result)
        outcome = result.step
        self.state = outcome.state
        if outcome.plan is not None:
            self.last_plan = outcome.plan
        if (plan_due := self._plans_due.after(event, self.state)) is not None:
            self._mailbox.emit(plan_due)
        self._telemetry.took(event, outcome.plan, outcome.actions, outcome.ended)
        ended = outcome.ended
        self._index.took(event, ended, None if ended is None else self._journal.latest(ended.trainer))
        stored = await self._journal.decided(
            StoredDecision(
                event=event,
                trainers=changed,
                plan=outcome.plan,
                actions=outcome.actions,
                ended=outcome.ended,
                pool=outcome.state.pool,
            )
        )
        stored.stored.add_done_callback(self._count)
        self._perform(outcome.actions)
        self._journal.performed(stored)
        if outcome.actions or outcome.ended:
            self.decided()
        if outcome.ended is not None:
            self._launcher.forget(outcome.ended.trainer)
            self.ended(outcome.ended.trainer)

    def _count(self, done: Future[None]) -> None:
        self.stored += 1  # the writer's thread alone calls it, or the event loop where it was done before

    async def aside(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what takes long in the engine's thread; before `run`, when the engine has nothing to do."""
        call = partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._engine, call)

    def close(self) -> None:
        """Let go of the engine's thread; `run` has ended."""
        self._engine.shutdown(wait=False, cancel_futures=True)

    def _step(self, before: State, event: Event) -> tuple[Contained, list[Trainer]]:
        """Return the result of an event, and the trainers that it changed."""
        with no_collection():
            result = contained(before, event, self._solve)
        after = result.step.state
        changed = [t for t in after.active.values() if before.active.get(t.id) is not t]
        if isinstance(event, PriorityChanged) and (waits := after.waiting.get(event.trainer)):
            changed.append(waits)
        return result, changed

    def _tell(self, event: Event, result: Contained) -> None:
        """Tell of an event that the engine could not take or plan for, and end the trainers that cause it."""
        if result.error is None:
            return
        log.error("the engine fails on %.1000r", event, exc_info=result.error)
        what = f"no plan could be made: {type(result.error).__name__}; see the log"
        self._telemetry.happened("engine", what)
        for id_, why in result.culprits:
            trainer = self.state.trainer(id_)
            if trainer is not None:
                reason = shown(f"the engine cannot plan with it: {why}")[:MOST]
                self._mailbox.emit(
                    TrainerEnded(
                        time=event.time,
                        trainer=id_,
                        generation=trainer.published,
                        status=TrainerStatus.FAILED,
                        reason=reason,
                    )
                )

    def _perform(self, actions: Sequence[Action]) -> None:
        """Carry out actions; one that fails keeps none of the others."""
        for action in actions:
            try:
                self._launcher.perform((action,))
            except Exception:  # a bug in a launcher
                log.exception("cannot carry out %r", action)
                self._telemetry.happened("engine", "an action could not be carried out; see the log")

    def _solve(self, problem: Problem) -> Plan:
        started = time.perf_counter()
        own = self._settings.current.engine
        try:
            plan = decide(problem, own)
        except (
            Exception
        ) as error:  # a bug, or a solver that raises what it likes; told as the plan's fallback
            log.exception("the allocator %s fails", own.allocator)
            plan = decide(problem, replace(own, allocator="knapsack"))
            plan = replace(plan, fallback=f"{type(error).__name__}: {error}"[:MOST])
        return replace(plan, solve_s=time.perf_counter() - started)
