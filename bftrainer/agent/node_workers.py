"""The workers of one trainer on a node: several processes, which are one worker to the daemon.

The daemon counts nodes. What the processes say is made one here: a node is ready, has joined, finished or
left when all of them are or have, and the first speaks of progress. They come and go together: if one ends
that was not to, the others are killed, so that the node leaves the membership and comes back as a whole.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bftrainer.agent.merged_reports import MergedReports
from bftrainer.agent.process import COMPILED, Program, remove_torn
from bftrainer.agent.seats import Seat
from bftrainer.agent.turns.server import TurnServer
from bftrainer.agent.warm import WarmPool
from bftrainer.agent.worker import WorkerProcess
from bftrainer.threads import in_thread
from bftrainer.wire.phases import Phase
from bftrainer.wire.words import fit

FOLLOWERS_GRACE_S = 2.0
"""Seconds for the other workers to end after the first, where only that was told to."""
ORDER = (Phase.STARTING, Phase.READY, Phase.MEMBER, Phase.FINISHED)
WHOLE = "node"
"""The device of a worker that has all of its node's."""
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
"""Ends that say nothing against a device."""

Said = Callable[["NodeWorkers", dict[str, Any]], None]
Over = Callable[["NodeWorkers", int, str], None]


class NodeWorkers:
    """Calls `said` with every message for the daemon, and `over`, once, when the last process has ended.

    `seats` has a place for each process. `failed` is called with that of the first to fail by itself. With
    `turns`, they share devices with another trainer's workers, and compute in turn.
    """

    def __init__(
        self,
        order: dict[str, Any],
        node: str,
        address: str,
        warm: WarmPool,
        said: Said,
        over: Over,
        *,
        seats: Sequence[Seat] = (Seat(),),
        failed: Callable[[Seat], None] = lambda seat: None,
        turns: TurnServer | None = None,
    ) -> None:
        self.order, self._turns = order, turns
        self.trainer: int = order["trainer"]
        self.generation: int = order["generation"]
        self.has_started = False
        self._node, self._said, self._over, self._failed = node, said, over, failed
        self._all = [
            WorkerProcess(order, node, address, warm, self._heard, self._ended, seat) for seat in seats
        ]
        self._once = MergedReports(len(self._all), gated=order["gated"])
        self._codes: dict[int, int] = {}  # of those that have ended
        self._first: tuple[int, str] | None = None  # the end that took the others along
        self._late: tuple[int, str] | None = None  # a failure after the work was done, which took none along
        self._reason = ""  # of the one that the daemon gave, or the first process
        self._leader_first = False

    @property
    def count(self) -> int:
        """Number of processes."""
        return len(self._all)

    @property
    def has_failed(self) -> bool:
        """True if one of several ended unexpectedly."""
        return self._first is not None

    @property
    def phase(self) -> Phase:
        """Phase of the worker that is least far; leaving if any is."""
        phases = [worker.phase for worker in self._all]
        return Phase.LEAVING if Phase.LEAVING in phases else min(phases, key=ORDER.index)

    @property
    def run(self) -> int:
        """The run that they must take part in, see `WorkerProcess`."""
        return self._all[0].run

    @property
    def joined(self) -> int:
        """The last generation that all have joined."""
        return min(worker.joined for worker in self._all)

    @property
    def last(self) -> dict[str, Any]:
        """The first worker's last report of progress."""
        return self._all[0].last

    @property
    def has_the_only_state(self) -> bool:
        """True if a state would be lost with this node, see `LastState`."""
        return any(worker.state.is_at_risk for worker in self._all)

    @property
    def kept(self) -> int | None:
        """The step of the last checkpoint, see `LastState`."""
        return self._all[0].state.kept

    # orders

    async def start(self) -> None:
        """Start all processes. Raises as `WorkerProcess.start`."""
        in_thread("torn", partial(remove_torn, Path(Program.of(self.order).environment()[COMPILED])))
        address = await self._turns.open() if self._turns else ""
        for worker in self._all:
            if address:
                device = worker.seat.device.name if worker.seat.device else WHOLE
                worker.turns = {"socket": address, "device": device}
            await worker.start()
        self.has_started = True

    def go(self, order: dict[str, Any]) -> None:
        """Let gated processes run their script. Raises `OSError` as `WorkerProcess.go`."""
        each = order.get("each") or [{}] * self.count
        for worker, own in zip(self._all, each, strict=True):
            worker.go({**order, "env": {**order["env"], **own}})

    def send(self, message: dict[str, Any]) -> None:
        """Send a message to all scripts."""
        if message["type"] == "regroup":
            self._hurry()
            for worker in self._once.hung(self._all):
                worker.kill("hung and was killed")
        for worker in self._all:
            worker.send(message)

    def stop(self, grace_s: float, *, leader_first: bool = False) -> None:
        """Tell them to end, see `WorkerProcess.stop`; with `leader_first` the first alone, and the others
        when that has ended."""
        self._hurry()
        if not leader_first or 0 in self._codes:
            for worker in self._running():
                worker.stop(grace_s)
            return
        self._leader_first = True
        for worker in self._running()[1:]:
            worker.leave_within(grace_s + FOLLOWERS_GRACE_S)
        self._all[0].stop(grace_s)

    def leave_within(self, grace_s: float) -> None:
        """They have been told to leave: kill those that have not ended after `grace_s`."""
        for worker in self._running():
            worker.leave_within(grace_s)

    def kill(self, reason: str = "") -> None:
        """Kill them all; the first `reason` given is reported with their end."""
        self._reason = self._reason or reason
        for worker in self._running():
            worker.kill(reason)

    def fail(self, reason: str) -> None:
        """End them, as they could not be started for this reason."""
        self._first = self._first or (127, reason)
        for worker in self._running():
            worker.fail(reason)

    def _hurry(self) -> None:
        """Others wait for these workers, or for their node: they wait for nobody's turn until they have met
        others."""
        if self._turns is not None:
            self._turns.hurry(self.trainer)

    def _running(self) -> list[WorkerProcess]:
        return [worker for worker in self._all if worker.seat.local_rank not in self._codes]

    # what the processes do

    def _heard(self, worker: WorkerProcess, message: dict[str, Any]) -> None:
        """A process has sent a message: pass on what the daemon or the other processes need."""
        rank = worker.seat.local_rank
        for own in self._once.for_siblings(rank, message, self._node):
            for other in self._all:
                if other is not worker:
                    other.send(own)
        for own in self._once.for_daemon(rank, message):
            self._said(self, self._with_usage(own))

    def _with_usage(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message for the daemon, with how these workers use their device if it tells of progress."""
        if self._turns is not None and message["type"] == "joined":
            self._turns.calm(self.trainer)
        step = message.get("step")
        if self._turns is None or message["type"] != "progress" or not isinstance(step, int):
            return message
        return {**message, "device": self._turns.usage(self.trainer, step)}

    def _ended(self, worker: WorkerProcess, code: int, reason: str) -> None:
        rank = worker.seat.local_rank
        self._codes[rank] = code
        if self.count > 1 and self._first is None and self._is_failure(worker, code):
            self._take_down(worker, code, reason)
        elif self.count > 1 and worker.phase == Phase.FINISHED and code and code not in FROM_OUTSIDE:
            self._late = self._late or (code, self._how_ended(worker, code, reason))
        for message in self._once.ended(rank) if self._first is None else ():
            self._said(self, message)
        if self._leader_first and rank == 0:
            for other in self._running():
                other.stop(FOLLOWERS_GRACE_S)
        if len(self._codes) == self.count:
            why = reason or (f"exit code {code}{worker.error}" if worker.error else "")
            own = (code, why) if self.count == 1 else (self._codes[0], self._reason)
            code, reason = self._first or self._late or own
            if self._turns is not None:
                self._turns.calm(self.trainer)
            self._over(self, code, fit(reason))

    def _is_failure(self, worker: WorkerProcess, code: int) -> bool:
        """True if the others must not go on without it: it failed, or left them in the middle of the work.
        Once the work is done, only the first takes others along."""
        done = self._all[0].phase == Phase.FINISHED and worker is not self._all[0]
        if worker.phase == Phase.LEAVING or done:
            return False
        return code != 0 or (worker.phase == Phase.MEMBER and not self.order["gated"])

    def _how_ended(self, worker: WorkerProcess, code: int, reason: str) -> str:
        how = f"ended with exit code {code}{worker.error}" if code >= 0 else f"was killed by signal {-code}"
        who = f"worker {worker.seat.local_rank} of {self.count} on {self._node}"
        return self._reason or f"{who} {reason or how}"

    def _take_down(self, worker: WorkerProcess, code: int, reason: str) -> None:
        rank = worker.seat.local_rank
        told = self._how_ended(worker, code, reason)
        self._first = code or int(rank > 0), told  # the end of another than the first is not the script's
        if not reason and code not in FROM_OUTSIDE and code:
            self._failed(worker.seat)
        for other in self._running():
            other.end_now(told)
