"""The processes that train together: one generation of members after the other, as the daemon says."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from bftrainer.elastic.loop.observers import Observers
from bftrainer.elastic.loop.peers import SingleProcess
from bftrainer.elastic.loop.progress import Progress
from bftrainer.elastic.members import default_group
from bftrainer.elastic.members.group import Group, GroupBroken, Pending
from bftrainer.elastic.members.membership import Membership
from bftrainer.elastic.members.patience import Occupied, Patience
from bftrainer.elastic.process import startup_times
from bftrainer.elastic.process.channel import Orders
from bftrainer.elastic.recorded import watcher
from bftrainer.elastic.state.handover import HandOver, TornError
from bftrainer.elastic.state.position import Position
from bftrainer.elastic.state.training_state import TrainingState
from bftrainer.elastic.train.stopped import Stopped
from bftrainer.messages.state import BEGINS_ANEW


class MemberGroup(SingleProcess):
    """The members of one generation after the other, as the daemon publishes them.

    Args:
        orders: the agent's message to this worker at its start.
        state, joined: as of `SingleProcess`.
        streams: whether newcomers can receive the state while the members train on.
        device: where the model is.
        observers: compare the members by their digests, which ride on an exchange before each update.
        patience: with the other members.
        stopped: whether the script has ended the run, a part of the state.
        of: the samples of the whole run, as far as is known at a position; None: not known.
    """

    def __init__(
        self,
        orders: Orders,
        state: TrainingState,
        joined: Callable[[], None],
        *,
        streams: bool,
        device: torch.device,
        observers: Observers,
        patience: Patience,
        stopped: Stopped,
        of: Callable[[Position], int | None] | None = None,
    ) -> None:
        super().__init__(state, joined)
        self._stopped, self.budget = stopped, orders.samples or orders.progress
        self._membership = Membership(orders, device, patience)
        self._occupied = Occupied(self._membership.busy, patience.timeout_s)
        self._progress = Progress(state, self._membership.channel, orders, of)
        self._membership.on_written = self._progress.saver.written
        self._observers, self._is_broken = observers, False
        self._hand_over = HandOver(state, streams=streams, resume=self._progress.resume)
        self._committed: Position | None = None  # the last position that all members have reached for sure
        self._flag: tuple[torch.Tensor, Pending] | None = None
        self._step_done_at = time.monotonic()

    @property
    def size(self) -> int:
        """Number of ranks that share the samples: those with the state."""
        return len(self._hand_over.working)

    @property
    def working(self) -> tuple[int, ...]:
        """See `SingleProcess.working`."""
        return self._hand_over.working

    @property
    def nodes(self) -> int:
        """See `SingleProcess.nodes`: the daemon counts these."""
        return self._membership.nodes(self.working)

    @property
    def place(self) -> int | None:
        """This rank's place among those; None while it has no state."""
        working = self._hand_over.working
        return working.index(self.group.rank) if self.group.rank in working else None

    @property
    def has_state(self) -> bool:
        """See `SingleProcess.has_state`."""
        return self._hand_over.is_complete

    def begin_step(self) -> bool:
        """See `SingleProcess.begin_step`: a hand-over under way goes on."""
        was_shadow = self.place is None
        try:
            caught_up = self._hand_over.advance(self.group)
        except GroupBroken as error:
            self.lost(error)
            return False
        if caught_up is not None:
            self._joined()
            if was_shadow:
                startup_times.reached("state")
                self._tell("caught_up", bytes=caught_up.bytes, seconds=caught_up.seconds)
        return True

    def agree(self) -> None:
        """See `SingleProcess.agree`: on the next generation, and on the end of the run."""
        if self._flag is not None:
            return  # they have begun to, in this step
        offer = self._membership.offer(self.group.generation, self.working)
        flag = torch.tensor([offer, -offer, int(not self._stopped.is_said), *self._digests()])
        with contextlib.suppress(GroupBroken):  # the next exchange of gradients fails as well, and is handled
            self._flag = (flag, self.group.begin_all_reduce(flag, dist.ReduceOp.MIN))

    def settle(self) -> None:
        """See `SingleProcess.settle`: wait for the chunk of a hand-over that is under way."""
        self._hand_over.settle()

    def taken(self, before: Position) -> None:
        """See `SingleProcess.taken`: report, save, and switch if all offered the same newer generation.

        Raises:
            Leave: this process must leave.
            TrainerFails: the members have gone apart.
        """
        self._step_done_at = time.monotonic()
        if self.place is not None:
            startup_times.arrived(self._state.position.step)
        if self.place == 0:  # what rank 0 reports is what all members have taken for sure
            committed = self._committed = self._state.position if self.group.size == 1 else before
            self._progress.after_step(committed, self._step_done_at, self.group.generation, self.nodes)
        if self._flag is None:
            return
        (flag, pending), self._flag = self._flag, None
        try:
            pending.wait()
            lowest, highest = int(flag[0]), -int(flag[1])
            self.is_stopped = not flag[2] or _hooks_stop(self.group, self._stopped, before, self._state)
            self._stopped.is_said |= self.is_stopped
            self._observers.compare(flag[3:].tolist(), self.group, self.working)
            if lowest == highest > self.group.generation:
                self._join(self._membership.switch(lowest))
        except GroupBroken as error:
            self.lost(error)

    def _digests(self, *, is_over: bool = False) -> list[int]:
        takes_part = self.group.size > 1 and self.place is not None
        return self._observers.digests(takes_part=takes_part, is_over=is_over)

    def enter(self) -> None:
        """Report ready and wait until this process is a member.

        Raises:
            Leave: it must leave instead.
        """
        startup_times.reached("ready")
        self._membership.channel.start()
        self._membership.channel.send("ready")
        self._step_done_at = time.monotonic()
        self._rejoin()

    def lost(self, error: GroupBroken) -> None:
        """Leave the broken group and wait for the next one, as often as that breaks, too.

        Raises:
            Leave: this process must leave.
        """
        self._flag, self._is_broken = None, True
        self.let_go()
        self._hand_over.close()
        self._membership.channel.send("broken", generation=self.group.generation, reason=str(error)[:300])
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
        """Enter a group: find out which ranks have the latest state, and hand it to the others."""
        survivor = self._hand_over.has_state
        default_group.remove()
        self.group.retire()  # all have left it, or it is closed already
        self.group = group
        try:
            waited_s = time.monotonic() - self._step_done_at
            roll = self._hand_over.enter(group, is_stopped=self.is_stopped, waited_s=waited_s)
            self.is_stopped = self._stopped.told() if roll.latest is None else roll.is_stopped
        except TornError as error:
            begin_anew(str(error))
        self._is_broken = False
        default_group.install(group)
        self._joined()
        now = time.monotonic()
        pause_s = now - (self._step_done_at if roll.latest is None else roll.at - roll.waited_s)
        self._membership.channel.send(
            "joined",
            generation=group.generation,
            step=self._state.position.step,
            size=self._membership.nodes(range(group.size)),
            survivor=survivor,
            pause_s=pause_s,
        )
        self._step_done_at = now
        self._progress.restart(now)
        startup_times.reached("entered")

    def leave(self) -> NoReturn:
        """End the process. If no member stays, rank 0 saves first; after a loss, all survivors do."""
        last = self._membership.dissolved and self._hand_over.has_state
        if last and (self.place == 0 or self._is_broken):
            self._progress.saver.save(self.group.generation, wait=False)  # the agent tells when it is written
        self._tell("left")
        raise SystemExit(0)

    def finish(self) -> bool:
        """See `SingleProcess.finish`: all compare their states, and rank 0's is saved before any goes on."""
        try:
            digests = torch.tensor(self._digests(is_over=True), dtype=torch.int64)
            self.group.all_reduce(digests, dist.ReduceOp.MIN)
            self._observers.compare(digests.tolist(), self.group, self.working)
            if self.place == 0:
                self._progress.saver.save(self.group.generation, wait=True)
            self.group.all_reduce(torch.zeros(1))
        except GroupBroken as error:
            self.lost(error)
            return False
        self._tell_finished()
        return True

    def broke_off(self) -> None:
        """The script has left its loop, by a `break` or an error: that ends the run, unless the spec has a
        `work`. The process's exit code will say whether it ends well."""
        if self.budget is None:
            self._progress.saver.save(self.group.generation, wait=True)
            self._tell_finished()
        elif self.place == 0 and self._committed is not None:  # the exact place counts against the program
            about = (self.group.generation, self.nodes, self._committed)
            self._progress.tell("progress", *about, rate=None, problem="")

    def busy(self, seconds: float) -> None:
        """See `SingleProcess.busy`. It does not count in the speed."""
        self._progress.busy(seconds, time.monotonic())
        if seconds:
            self._occupied.begin(seconds)
        else:
            self._occupied.end()

    def stop(self) -> None:
        """See `SingleProcess.stop`: said in the next step's exchange."""
        self._stopped.is_said = True

    def report(self, metrics: Mapping[str, float], *, now: bool) -> None:
        """See `SingleProcess.report`; rank 0's figures count."""
        watcher.watching.said("figures", {"metrics": metrics, "now": now})
        self._progress.metrics.keep(metrics)
        if now and self.place == 0:
            self._tell("metrics")

    def give_up(self, reason: str) -> None:
        """See `SingleProcess.give_up`."""
        self._tell("failed", reason=reason)

    def _tell_finished(self) -> None:
        self._tell("finished", rank=self.size if self.place is None else self.place)

    def _tell(self, kind: str, **more: Any) -> None:
        self._progress.tell(kind, self.group.generation, self.nodes, self._state.position, **more)


def peers_of(
    orders: Orders | None,
    state: TrainingState,
    joined: Callable[[], None],
    *,
    streams: bool,
    observers: Observers,
    patience: Patience,
    stopped: Stopped,
    of: Callable[[Position], int | None],
) -> SingleProcess:
    """The processes with which this one trains: those that the daemon publishes; none without `orders`."""
    if orders is None:
        return SingleProcess(state, joined)
    trained = [p for p in state.parameters() if p.requires_grad]
    device = trained[0].device if trained else torch.device("cpu")
    return MemberGroup(
        orders,
        state,
        joined,
        streams=streams,
        device=device,
        observers=observers,
        patience=patience,
        stopped=stopped,
        of=of,
    )


def _hooks_stop(group: Group, stopped: Stopped, before: Position, state: TrainingState) -> bool:
    """True if a member's script has stopped the run where an epoch ends: after its last step's exchange."""
    if state.position.epoch == before.epoch:
        return False
    goes_on = torch.tensor([int(not stopped.is_said)])
    group.all_reduce(goes_on, dist.ReduceOp.MIN)
    return not goes_on[0]


log = logging.getLogger(__name__)


def begin_anew(why: str) -> None:
    """End this process at once. Another takes its place, which gets the state of a member that has it whole,
    or of the last checkpoint: as after a kill from outside, it is no failure of the program."""
    log.error("%s", BEGINS_ANEW.say(why=why))
    os.kill(os.getpid(), signal.SIGKILL)
