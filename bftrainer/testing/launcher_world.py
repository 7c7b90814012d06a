"""The world in which the launchers' contract is tested: a daemon with its store, nodes and one trainer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from bftrainer.model.reports import Row
from bftrainer.model.trainer import TrainerStatus

Moment = Literal["start", "step"]
"""Moments at which a worker can be held: before it is ready to join, or in its first step as a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTrainer:
    """The trainer as `bftrainer show` describes it: `members` in rank order, `workers` node -> phase."""

    status: TrainerStatus
    samples: int
    work: int
    members: tuple[str, ...]
    workers: Mapping[str, str]
    ended: bool


class LauncherWorld(Protocol):
    """Verbs act at once; `until` waits for what follows. Nodes are a, b, c and d; none is idle at first.

    `keeps_steps`: whether the members that stay keep every step when another joins, leaves or dies. A
    launcher that restarts its workers instead repeats what came after the last checkpoint.
    """

    keeps_steps: bool

    # the user

    def submit(self) -> None:
        """Submit the trainer: 1 to 4 nodes, as many as there are; slow until `finish`."""
        ...

    def cancel(self) -> None:
        """Cancel the trainer."""
        ...

    def finish(self) -> None:
        """From now on steps take no longer than they must."""
        ...

    def rival(self, size: int) -> None:
        """Submit another trainer that needs `size` nodes, and far heavier: the plan takes them from ours."""
        ...

    def rival_ends(self) -> None:
        """End the other trainer, so that its nodes are free."""
        ...

    # the main scheduler

    def change(self, *, give: Collection[str] = (), take: Collection[str] = ()) -> None:
        """Nodes become idle, and others are taken with all that runs there, without notice. One change."""
        ...

    # faults

    def kill_worker(self, *nodes: str) -> None:
        """SIGKILL."""
        ...

    def kill_agent(self, node: str) -> None:
        """SIGKILL; the node stays idle."""
        ...

    def freeze(self, node: str) -> None:
        """SIGSTOP the worker."""
        ...

    def end_early(self, *nodes: str) -> None:
        """Have the workers' programs end with exit code 0, whatever work is left."""
        ...

    def kill_daemon(self) -> None:
        """SIGKILL."""
        ...

    def start_daemon(self) -> None:
        """Start the daemon again."""
        ...

    # moments

    def hold(self, node: str, moment: Moment) -> None:
        """Hold the next worker on `node` when it comes to `moment`."""
        ...

    def held(self, node: str, moment: Moment) -> bool:
        """Return whether a worker is being held there now."""
        ...

    def release(self, node: str, moment: Moment) -> None:
        """Let a held worker go on, and hold none there any more."""
        ...

    def until(self, condition: Callable[[], object], what: str, *, at_once: bool = False) -> None:
        """Let time pass until the condition holds. Fails after a reasonable time, saying `what` and why.

        `at_once`: what follows in the story has to happen before the world has gone much further.
        """
        ...

    # what there is to see

    def trainer(self) -> ShownTrainer:
        """The trainer as it is now."""
        ...

    def events(self) -> list[Row]:
        """The store's events, oldest first."""
        ...

    def pauses(self) -> list[Row]:
        """The store's pauses of the trainer, oldest first."""
        ...

    def audit(self) -> None:
        """Assert from the workers' own notes, where there are any, that every sample was used once."""
        ...

    def stop(self) -> None:
        """Stop the daemon as an operator would, and wait until it has gone."""
        ...

    def processes(self) -> Collection[object]:
        """The processes of this world that run now: agents, workers, their children."""
        ...
