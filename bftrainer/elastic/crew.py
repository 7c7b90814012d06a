"""Those who train together: `MemberGroup` through the daemon, `SingleProcess` by hand. What a loop needs."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from bftrainer.elastic.members import default_group
from bftrainer.elastic.members.channel import Orders
from bftrainer.elastic.members.group import Group, GroupBroken
from bftrainer.elastic.members.membership import Membership
from bftrainer.elastic.state.checkpoint import Checkpoints
from bftrainer.elastic.state.handover import HandOver, TornError
from bftrainer.elastic.state.state import TrainingState
from bftrainer.elastic.train.sampler import Position

log = logging.getLogger(__name__)

REPORT_EVERY_S = 0.5


class SingleProcess:
    """One process started by hand: nobody to ask, nobody to lose, no orders.

    `joined` is called whenever a group has been entered, before anything is done in it.
    """

    budget: int | None = None
    """Samples after which the run is over; None: the script's own affair."""

    def __init__(self, state: TrainingState, joined: Callable[[], None]) -> None:
        self.group = Group(0, 0, 1)
        self._state, self._joined = state, joined

    @property
    def size(self) -> int:
        """How many ranks share the samples."""
        return 1

    @property
    def place(self) -> int | None:
        """This rank's place among those; None as long as it has no state."""
        return 0

    def enter(self) -> None:
        """Wait to become a member."""
        default_group.install(self.group)
        self._joined()

    def let_go(self) -> None:
        """Hold on to none of the group's connections: peers that wait for this rank learn of it at once."""
        default_group.remove()
        self.group.close()

    def begin_step(self) -> bool:
        """A step begins. False: not with these members, one was lost. May raise `Leave`."""
        return True

    def settle(self) -> None:
        """Parameters are about to change. Raises `GroupBroken` on a rank that must not take the step."""

    def lost(self, error: GroupBroken) -> None:
        """The group is of no use any more: wait for the next one. Raises `Leave` if there is none."""
        raise error

    def taken(self, before: Position) -> None:
        """This rank has taken the step after `before`. May raise `Leave`, and may change the group."""

    def report(self, metrics: Mapping[str, float], *, now: bool) -> None:
        """Make figures known; those that are not for `now` go along with the next progress."""

    def finish(self) -> bool:
        """The work is done. False: not by all, because a member was lost in the last moment."""
        return True

    def broke_off(self) -> None:
        """The script has left its loop by itself."""

    def leave(self) -> NoReturn:
        """Not wanted any more: the script ends here."""
        raise SystemExit(0)


class MemberGroup(SingleProcess):
    """The members of one generation after the other, as the daemon publishes them."""

    def __init__(
        self,
        orders: Orders,
        state: TrainingState,
        joined: Callable[[], None],
        *,
        streams: bool,
        device: torch.device,
    ) -> None:
        super().__init__(state, joined)
        self.budget = orders.samples
        self._membership = Membership(orders, device)
        self._checkpoints = Checkpoints(orders.checkpoint_dir)
        self._checkpoint_every_s = orders.checkpoint_every_s
        self._hand_over = HandOver(state, streams=streams, resume=self._resume)
        self._is_broken = False
        self._flag: Any = None
        self._step_done_at = self._reported_at = self._saved_at = time.monotonic()
        self._reported: Position | None = None
        self._metrics: dict[str, float] = {}

    @property
    def size(self) -> int:
        return len(self._hand_over.working)

    @property
    def place(self) -> int | None:
        working = self._hand_over.working
        return working.index(self.group.rank) if self.group.rank in working else None

    # one step together

    def begin_step(self) -> bool:
        """Bring a hand-over forward, and start to exchange which generation everybody could switch to;
        that overlaps with the step."""
        was_shadow = self.place is None
        try:
            caught_up = self._hand_over.advance(self.group)
        except GroupBroken as error:
            self.lost(error)
            return False
        if caught_up is not None:
            self._joined()
            if was_shadow:
                self._say("caught_up", bytes=caught_up.bytes, seconds=caught_up.seconds)
        offer = self._membership.offer(self.group.generation)
        flag = torch.tensor([offer, -offer, self._hand_over.offer()], dtype=torch.int64)
        try:
            self._flag = (flag, self.group.begin_all_reduce(flag, dist.ReduceOp.MIN))
        except GroupBroken:
            self._flag = None  # the gradients' exchange will fail as well and be handled
        return True

    def settle(self) -> None:
        self._hand_over.settle()

    def taken(self, before: Position) -> None:
        """Report, save, and change generation if all offered the same newer one when the step began."""
        self._step_done_at = time.monotonic()
        self._housekeep(self._state.position if self.group.size == 1 else before)
        if self._flag is None:
            return
        (flag, pending), self._flag = self._flag, None
        try:
            pending.wait()
            lowest, highest = int(flag[0]), -int(flag[1])
            self._hand_over.agreed(int(flag[2]))
            if lowest == highest > self.group.generation:
                self._join(self._membership.switch(lowest))
        except GroupBroken as error:
            self.lost(error)

    # changing membership

    def enter(self) -> None:
        """Report ready and wait to become a member."""
        self._membership.channel.start()
        self._membership.channel.send("ready")
        self._step_done_at = time.monotonic()
        self._rejoin()

    def lost(self, error: GroupBroken) -> None:
        """The group is of no use any more: wait for the next one, however often it takes."""
        self._flag = None
        self._is_broken = True
        generation = self.group.generation
        self.let_go()
        self._hand_over.close()
        self._membership.channel.send("broken", generation=generation, reason=str(error)[:300])
        self._rejoin()

    def _rejoin(self) -> None:
        seen = self.group.generation
        while True:
            group = self._membership.next(seen)
            seen = group.generation
            try:
                self._join(group)
                return
            except GroupBroken as error:
                group.close()
                self._membership.channel.send("broken", generation=seen, reason=str(error)[:300])

    def _join(self, group: Group) -> None:
        """Enter a group: find out who has the latest state and hand it to whoever has not."""
        survivor = self._hand_over.has_state
        default_group.remove()
        self.group.retire()  # all have left it, or it is closed already
        self.group = group
        try:
            self._hand_over.enter(group)
        except TornError as error:
            log.error("%s: this process ends, for another to start anew", error)
            os.kill(os.getpid(), signal.SIGKILL)  # nothing is wrong with the program
        self._is_broken = False
        default_group.install(group)
        self._joined()
        now = time.monotonic()
        self._membership.channel.send(
            "joined",
            generation=group.generation,
            step=self._state.position.step,
            size=group.size,
            survivor=survivor,
            pause_s=now - self._step_done_at,
        )
        self._step_done_at = self._reported_at = now
        self._reported = None

    def _resume(self) -> bool:
        snapshot = self._checkpoints.load()
        if snapshot is not None:
            self._state.restore(snapshot)
        return snapshot is not None

    def leave(self) -> NoReturn:
        """If nobody stays, rank 0 writes the state down; of a broken group, who is left, since rank 0
        may be what broke it."""
        last = self._membership.dissolved and self._hand_over.has_state
        if last and (self.place == 0 or self._is_broken):
            self._save_now()
        self._say("left")
        raise SystemExit(0)

    def finish(self) -> bool:
        """Rank 0 writes the final state, and all agree that it is written."""
        if self.place == 0:
            self._save_now()
        try:
            self.group.all_reduce(torch.zeros(1))
        except GroupBroken as error:
            self.lost(error)
            return False
        self._say("finished")
        return True

    def broke_off(self) -> None:
        """The script's own end, if nobody has said how much is to be done."""
        if self.budget is None:
            self._save_now()
            self._say("finished")

    # what goes on besides

    def report(self, metrics: Mapping[str, float], *, now: bool) -> None:
        self._metrics |= metrics
        if now and self.place == 0:
            self._say("metrics")

    def _housekeep(self, committed: Position) -> None:
        """Rank 0 reports the last step that all members have taken, and writes checkpoints."""
        if self.place != 0:
            return
        now = self._step_done_at
        if now - self._reported_at >= REPORT_EVERY_S:
            self._report_progress(committed, now)
        if now - self._saved_at >= self._checkpoint_every_s and not self._checkpoints.busy:
            self._checkpoints.save_in_background(self._state.snapshot(), self.group.generation)
            self._saved_at = now

    def _report_progress(self, committed: Position, now: float) -> None:
        rate = None
        if self._reported is not None:
            rate = (committed.samples - self._reported.samples) / (now - self._reported_at)
        self._say("progress", committed, rate=rate, problem=self._checkpoints.error)
        self._reported, self._reported_at = committed, now

    def _save_now(self) -> None:
        self._checkpoints.finish()
        self._checkpoints.save(self._state.snapshot(), self.group.generation)

    def _say(self, kind: str, at: Position | None = None, **more: Any) -> None:
        """Tell the agent something, with where training stands and the latest figures."""
        position = at or self._state.position
        self._membership.channel.send(
            kind,
            generation=self.group.generation,
            size=self.size,
            step=position.step,
            samples=position.samples,
            epoch=position.epoch,
            metrics=self._metrics,
            **more,
        )
