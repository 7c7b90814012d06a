"""The phases of a worker. Apart from `messages`, so that agents need not import pydantic for it."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """A worker's phase: starting -> ready -> member -> finished, and leaving from any of them.

    Agents report these five. The launchers keep three more for themselves: joining, done and stopped.
    """

    STARTING = "starting"
    """Its agent has been told to start it, or will be when it connects."""
    READY = "ready"
    """It is up, and waits to become a member."""
    JOINING = "joining"
    """Horovod: its script runs, and the first step with the other members has not been reported."""
    MEMBER = "member"
    """It trains."""
    FINISHED = "finished"
    """It has done the trainer's work; its script runs what comes after that."""
    LEAVING = "leaving"
    """It has been told to leave, or to end."""
    DONE = "done"
    """Its process has ended by itself, and rank 0 has yet to end; its node stays a member."""
    STOPPED = "stopped"
    """torchrun: its process was ended for a new run; its node stays a member."""


OF_AGENTS = frozenset({Phase.STARTING, Phase.READY, Phase.MEMBER, Phase.FINISHED, Phase.LEAVING})
"""The phases that an agent may report."""
ENDED = frozenset({Phase.DONE, Phase.STOPPED})
"""The phases of a worker without a process, on a node that stays."""
