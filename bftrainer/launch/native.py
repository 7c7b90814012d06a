"""The native launcher: workers that use `bftrainer.elastic` and change membership in mid-run.

It publishes memberships to the workers and relays their rendezvous; everything else they agree on
among themselves, see docs/elastic.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from bftrainer.launch.agents import AgentLauncher, Job, WorkerView
from bftrainer.model import Regroup, Resync
from bftrainer.ports import Message

log = logging.getLogger(__name__)

RESYNC_AFTER_S = 1.0
"""How long to wait for news of a lost member before a broken group is simply published again."""


@dataclass(slots=True)
class NativeJob(Job):
    """A trainer as the native launcher knows it."""

    told_broken: int = 0  # the last generation that is known to be broken
    republished: int = 0  # a broken generation after which the same members are tried again
    waiting: Regroup | None = None  # until the leavers have written the state down


class NativeLauncher(AgentLauncher[NativeJob]):
    """See `AgentLauncher`."""

    job_type = NativeJob

    def _carry_out(self, job: NativeJob, action: Regroup) -> None:
        job.waiting = None
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

    def _vacated(self, trainer: int, job: NativeJob) -> None:
        super()._vacated(trainer, job)
        held = job.waiting
        if held is not None and not any(node in job.workers for node in held.leaving):
            job.waiting = None
            self._publish(held.members, held, members=held.members)

    def _caught_up(self, trainer: int, job: NativeJob, node: str, found: Message) -> None:
        super()._caught_up(trainer, job, node, found)
        apart = found["joined"] != job.published and found["phase"] == "member"
        if job.workers[node].generation == found["generation"] and node in job.members and apart:
            self._emit(Resync(time=self._clock(), trainer=trainer, generation=job.published))

    def _heard(self, trainer: int, job: NativeJob, node: str, view: WorkerView, message: Message) -> None:
        super()._heard(trainer, job, node, view, message)
        if message["type"] == "kv":
            self._relay(job, node, message)
        elif message["type"] == "broken":
            self._broken(trainer, job, message)

    def _relay(self, job: NativeJob, node: str, message: Message) -> None:
        """An entry of the rendezvous goes to all other members of its generation."""
        if message["generation"] == job.published:
            for peer in job.members:
                if peer != node:
                    self._link.send(peer, message)

    def _broken(self, trainer: int, job: NativeJob, message: Message) -> None:
        """A group of the current generation broke: if nobody is seen to be lost, publish it anew.

        Who has said nothing by the time that this has failed as well hangs, and is killed.
        """
        if message["generation"] != job.published or job.told_broken >= job.published:
            return
        log.warning("trainer %d: generation %d broke: %s", trainer, job.published, message["reason"])
        if job.republished and job.republished < job.published:
            silent = [n for n in job.members if n in job.workers and job.workers[n].heard < job.republished]
            for node in silent:
                self._link.send(node, {"type": "kill", "trainer": trainer, "reason": "it hung"})
            job.republished = 0
        else:
            job.republished = job.published
        job.told_broken = job.published
        self._emit(Resync(time=self._clock() + RESYNC_AFTER_S, trainer=trainer, generation=job.published))
