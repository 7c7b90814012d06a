"""The interface between the training loop and the processes that it trains with; a process that trains
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from bftrainer.elastic.loop.observers import TrainerFails
from bftrainer.elastic.members import default_group
from bftrainer.elastic.members.group import Group, GroupBroken
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.state.training_state import TrainingState


class FailureTold:
    """Within it, `give_up` reports what makes the trainer fail: another start would be as wrong."""

    def __init__(self, give_up: Callable[[str], None]) -> None:
        self._give_up = give_up

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: object, trace: object) -> None:
        if isinstance(error, TrainerFails):
            self._give_up(str(error))


class SingleProcess:
    """One process, started by hand: no peers, no daemon, no orders. `MemberGroup` overrides all of it.

    Args:
        state: the training state of this process.
        joined: called whenever a group has been entered, or more ranks share the samples, before the next
        step.
    """

    budget: int | None = None
    """Samples after which the run is over; None: the script decides."""

    def __init__(self, state: TrainingState, joined: Callable[[], None]) -> None:
        self.group = Group(0, 0, 1)
        self.is_stopped = False
        """True if all ranks have agreed that the run ends, before its work is done."""
        self._state, self._joined = state, joined
        self.failure_told = FailureTold(self.give_up)

    @property
    def size(self) -> int:
        """Number of ranks that share the samples."""
        return 1

    @property
    def nodes(self) -> int:
        """Number of their nodes."""
        return 1

    @property
    def working(self) -> tuple[int, ...]:
        """The group's ranks that share the samples."""
        return (0,)

    @property
    def place(self) -> int | None:
        """This rank's place among those; None while it has no state."""
        return 0

    @property
    def has_state(self) -> bool:
        """True if this rank has the whole training state. It can be a step or two before it has a place."""
        return True

    def enter(self) -> None:
        """Wait until this process is a member.

        Raises:
            Leave: it must leave instead.
        """
        default_group.install(self.group)
        self._joined()

    def let_go(self) -> None:
        """Close the group's connections, so that peers that wait for this rank learn of it at once."""
        default_group.remove()
        self.group.close()

    def begin_step(self) -> bool:
        """Begin a step. False: a member was lost, and the step must be shared out again.

        Raises:
            Leave: this process must leave.
        """
        return True

    def agree(self) -> None:
        """Begin to exchange the values to agree on, once a step: with the gradients, or before the update.
        `taken` needs the result; so it costs next to nothing, and is as recent as it can be."""

    def settle(self) -> None:
        """Wait for background transfers, because parameters are about to change.

        Raises:
            GroupBroken: on a rank that must not take the step.
        """

    def lost(self, error: GroupBroken) -> None:
        """Leave the broken group and wait for the next one.

        Raises:
            Leave: this process must leave.
            GroupBroken: there will be no next group.
        """
        raise error

    def taken(self, before: Position) -> None:
        """This rank has taken the step after `before`. May change the group.

        Raises:
            Leave: this process must leave.
        """

    def busy(self, seconds: float) -> None:
        """Tell the others that this rank is busy for `seconds` at most; 0: not any more."""

    def stop(self) -> None:
        """Have all ranks end the run, after the next step at the latest."""
        self.is_stopped = True

    def report(self, metrics: Mapping[str, float], *, now: bool) -> None:
        """Report figures, by name; without `now` they go along with the next progress."""

    def give_up(self, reason: str) -> None:
        """Have the trainer fail for a reason: it must not begin again."""

    def finish(self) -> bool:
        """Agree with all members that the work is done. False: a member was lost meanwhile, go on.

        Raises:
            Leave: this process must leave.
        """
        return True

    def broke_off(self) -> None:
        """The script has left its loop by itself."""

    def leave(self) -> NoReturn:
        """End the process, as ordered.

        Raises:
            SystemExit: always, with code 0.
        """
        raise SystemExit(0)
