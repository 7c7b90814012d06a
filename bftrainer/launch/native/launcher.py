"""The native launcher: workers that use `bftrainer.elastic` and change membership in mid-run.

It publishes memberships to the workers and relays their rendezvous; everything else they agree on
among themselves, see docs/elastic.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from bftrainer.launch.launcher import AgentLauncher, LaunchedTrainer, WorkerView
from bftrainer.model.actions import Regroup
from bftrainer.model.events import Resync
from bftrainer.model.reports import Message

log = logging.getLogger(__name__)

RESYNC_AFTER_S = 1.0
"""How long to wait for news of a lost member before a broken group is simply published again."""


@dataclass(slots=True)
class NativeTrainer(LaunchedTrainer):
    """A trainer as the native launcher knows it."""

    told_broken: int = 0  # the last generation that is known to be broken
    tries: int = 0  # how often the same members have been published again in a row
    last: tuple[int, tuple[str, ...]] = (0, ())  # what was published, and when
    waiting: Regroup | None = None  # until the leavers have written the state down


class NativeLauncher(AgentLauncher[NativeTrainer]):
    """See `AgentLauncher`."""

    job_type = NativeTrainer

    def _carry_out(self, job: NativeTrainer, action: Regroup) -> None:
        job.waiting = None
        self._try_again(job, action)
        there = [node for node in action.leaving if node in job.workers]
        if (
            there
            and action.members
            and not any(job.workers[n].joined for n in action.members if n in job.workers)
        ):
            # nobody stays who knows the state: it goes through a checkpoint, which is written first
            self._publish(there, action, members=())
            job.waiting = action
        else:
            self._publish((*action.members, *there), action, members=action.members)

    def _try_again(self, job: NativeTrainer, action: Regroup) -> None:
        """When the same members are published a second time because their groups broke, who has said
        nothing of that hangs, and is killed."""
        last, job.last = job.last, (action.generation, action.members)
        if last != (job.told_broken, action.members):
            job.tries = 0
            return
        job.tries += 1
        if job.tries > 1:
            for node in action.members:
                if node in job.workers and job.workers[node].heard < job.told_broken:
                    order = {"type": "kill", "trainer": action.trainer, "reason": "it hung and was killed"}
                    self._link.send(node, order)

    def _publish(self, nodes: Iterable[str], action: Regroup, members: tuple[str, ...]) -> None:
        for node in nodes:
            if node in self._jobs[action.trainer].workers:
                self._link.send(
                    node,
                    {
                        "type": "regroup",
                        "trainer": action.trainer,
                        "generation": action.generation,
                        "members": list(members),
                        "leaving": list(action.leaving),
                        "grace_s": self._grace_s,
                    },
                )

    def _vacated(self, trainer: int, job: NativeTrainer) -> None:
        super()._vacated(trainer, job)
        held = job.waiting
        if held is not None and not any(node in job.workers for node in held.leaving):
            job.waiting = None
            self._publish(held.members, held, members=held.members)

    def _caught_up(self, trainer: int, job: NativeTrainer, node: str, found: Message) -> None:
        super()._caught_up(trainer, job, node, found)
        apart = found["joined"] != job.published and found["phase"] == "member"
        if job.workers[node].generation == found["generation"] and node in job.members and apart:
            self._emit(Resync(time=self._clock(), trainer=trainer, generation=job.published))

    def _heard(self, trainer: int, job: NativeTrainer, node: str, view: WorkerView, message: Message) -> None:
        super()._heard(trainer, job, node, view, message)
        if message["type"] == "kv":
            self._relay(job, node, message)
        elif message["type"] == "broken":
            self._broken(trainer, job, message)

    def _relay(self, job: NativeTrainer, node: str, message: Message) -> None:
        """An entry of the rendezvous goes to all other members of its generation."""
        if message["generation"] == job.published:
            for peer in job.members:
                if peer != node:
                    self._link.send(peer, message)

    def _broken(self, trainer: int, job: NativeTrainer, message: Message) -> None:
        """A group of the current generation broke: if nobody is seen to be lost, publish it anew."""
        if message["generation"] != job.published or job.told_broken >= job.published:
            return
        log.warning("trainer %d: generation %d broke: %s", trainer, job.published, message["reason"])
        job.told_broken = job.published
        self._emit(Resync(time=self._clock() + RESYNC_AFTER_S, trainer=trainer, generation=job.published))
