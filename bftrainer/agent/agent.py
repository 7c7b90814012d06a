"""The agent: one per pilot. It obeys the daemon, and goes on without it for a while.

It starts, stops and watches the workers of its node, and passes on what they say; `wire.messages` has all
messages. Orders carry the trainer's generation, and an order that is older than what runs is ignored. One
trainer at a time trains on a node: the workers of the next start when those of the last have left. Two do
whose specs say `share: time`: they compute in turn, see `agent.turns`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Collection, Coroutine
from typing import Any

from bftrainer.agent.connection import DaemonConnection, running
from bftrainer.agent.files.logs import FolderError
from bftrainer.agent.node_workers import NodeWorkers
from bftrainer.agent.process import Program, adopt_orphans, kill_adopted
from bftrainer.agent.seats import Seat, Seats, SeatsError
from bftrainer.agent.turns.server import TurnServer
from bftrainer.agent.warm import WarmPool
from bftrainer.messages.ends import CANNOT_START
from bftrainer.model.reports import Message
from bftrainer.wire.phases import Phase
from bftrainer.wire.words import fit

log = logging.getLogger(__name__)

TERM_S = 0.1
"""Seconds for workers to leave when the pilot is told to end: the host waits for the node. Slurm notices the
pilot's end if it comes within 0.17 s, else only half a second later."""
GIVE_UP_S = 15.0
"""Seconds for workers to write checkpoints when the daemon is gone."""
GONE_S = 0.2
"""Seconds between checks whether they have."""
AT_ONCE = 2
"""At most 2 trainers take turns on a node."""


class Agent:
    """`daemon` is the path of its Unix socket, or host:port. `address` is where this node's workers listen
    for their peers, by default where the node meets the daemon. Without a daemon for `orphan_s`, it ends."""

    def __init__(
        self, *, node: str, tag: str, secret: str, daemon: str, orphan_s: float, address: str = ""
    ) -> None:
        self._node = node
        self._connection = DaemonConnection(
            node=node, tag=tag, secret=secret, daemon=daemon, orphan_s=orphan_s, address=address
        )
        self._workers: dict[int, NodeWorkers] = {}  # trainer -> its workers here
        self._queue: list[Message] = []  # starts that wait for the node to be free
        self._exit = asyncio.Event()
        self._parting = self._is_ending = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._warm = WarmPool(f"{node} {daemon}")
        self._seats = Seats.of_this_process()
        self._turns = TurnServer()

    async def serve(self) -> None:
        """Serve until told to exit, until SIGTERM, or until the daemon has been gone for too long.

        Raises whatever ends the connection for good: an agent that hears nothing any more must end.
        """
        adopt_orphans()
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sign, self._say_goodbye)
        connection, exit_ = (asyncio.create_task(c) for c in (self._connection.keep(self), self._exit.wait()))
        await asyncio.wait([connection, exit_], return_when=asyncio.FIRST_COMPLETED)
        for worker in self._workers.values():
            worker.kill()
        self._warm.close()
        self._turns.close()
        connection.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await connection

    def _say_goodbye(self) -> None:
        """The node is wanted: the daemon takes its workers out of their trainers, if it is quick."""
        loop = asyncio.get_running_loop()
        if self._connection.connected and self._workers and not self._parting:
            self._parting = True
            self._connection.tell({"type": "bye"})
            loop.call_later(TERM_S, self._end)
        else:
            self._end()

    def _end(self) -> None:
        """End: at once; where no other node has a state, once it is written and its worker has left."""
        last = [worker for worker in self._workers.values() if worker.has_the_only_state]
        write_s = max((worker.order.get("write_s", 0.0) for worker in last), default=0.0)
        if not write_s or self._is_ending:
            self._exit.set()
            return
        self._is_ending = self._parting = True
        for worker in last:
            worker.send(self._dissolved())
            worker.leave_within(write_s)
        asyncio.get_running_loop().call_later(write_s, self._exit.set)

    def _dissolved(self) -> Message:
        return {"type": "regroup", "generation": 1 << 60, "members": [], "leaving": [self._node]}

    # what the connection needs

    def running(self) -> list[Message]:
        """The workers of this node, as a hello lists them."""
        return [
            *(
                running(w.trainer, w.generation, w.run, w.phase, w.joined, w.count)
                for w in self._workers.values()
            ),
            *(running(o["trainer"], o["generation"], 0, Phase.STARTING) for o in self._queue),
        ]

    def devices(self) -> Message:
        """The devices of this pilot, as a hello lists them."""
        return self._seats.told()

    async def give_up(self) -> None:
        """No daemon will ever take the workers over: let them write checkpoints, then end."""
        for worker in list(self._workers.values()):
            worker.send(self._dissolved())
            worker.stop(GIVE_UP_S) if worker.order["gated"] else worker.leave_within(GIVE_UP_S)
        for _ in range(round((GIVE_UP_S + 5.0) / GONE_S)):
            if not self._workers:
                break
            await asyncio.sleep(GONE_S)
        self._exit.set()

    # orders

    def obey(self, order: Message) -> None:
        """Carry out an order; unknown kinds, and orders about workers that are not here, are ignored. One
        that fails ends its worker, and nothing else."""
        try:
            self._carry_out(order)
        except Exception as error:  # a bug, or an order that nobody has thought of
            log.exception("an order of the kind %.20r fails", order.get("type"))
            self._fail(order, f"an order failed: {error!r}")

    def _fail(self, order: Message, reason: str, *, unfit: bool = False) -> None:
        """An order could not be carried out: its worker ends, or counts as one that could not be started.
        `unfit`: for want of devices."""
        self._queue = [waiting for waiting in self._queue if waiting is not order]
        trainer, generation = order.get("trainer"), order.get("generation")
        if not isinstance(trainer, int):
            return
        if worker := self._workers.get(trainer):
            worker.kill(reason)
        elif order.get("type") == "start" and isinstance(generation, int):
            ended = _exited(trainer, generation, 0, Phase.STARTING, 127)
            self._connection.tell({**ended, "reason": fit(reason), "unfit": unfit})

    def _carry_out(self, order: Message) -> None:
        kind = order["type"]
        worker = self._workers.get(order.get("trainer", 0))
        if kind == "start":
            self._start(order)
        elif kind == "exit":
            self._end()
        elif kind == "warm":
            self._do(self._warm.prepare(Program.of(order)))
        elif kind == "go":
            self._go(order, worker)
        elif kind == "stop":
            self._forget(order["trainer"])
            if worker is not None:
                worker.stop(order["grace_s"], leader_first=order.get("leader_first", False))
        elif kind == "kill" and worker is not None:
            worker.kill(order["reason"])
        elif kind == "regroup" and worker is not None:
            worker.send(order)
            if self._node in order["leaving"]:
                worker.leave_within(order["grace_s"])
        elif kind in ("kv", "busy") and worker is not None:
            worker.send(order)

    def _forget(self, trainer: int) -> None:
        """Whatever waits to be started for a trainer ends without having begun."""
        for waiting in [o for o in self._queue if o["trainer"] == trainer]:
            self._queue.remove(waiting)
            self._connection.tell(_exited(trainer, waiting["generation"], 0, Phase.LEAVING, 0))

    def _start(self, order: Message) -> None:
        old = self._workers.get(order["trainer"])
        if old is not None and old.generation >= order["generation"]:
            return  # said twice
        self._queue = [o for o in self._queue if o["trainer"] != order["trainer"]] + [order]
        for worker in self._workers.values():
            if worker.phase != Phase.LEAVING and not _may_be_beside(order, worker):
                worker.stop(order["grace_s"])  # overtaken by this order: it has no business here any more
        self._start_next()

    def _start_next(self) -> None:
        while self._queue and _has_room(self._queue[0], self._workers.values()):
            order = self._queue.pop(0)
            try:
                seats = self._seats.give(order.get("workers", 1), order["env"], together=order["gated"])
            except SeatsError as error:
                self._fail(order, str(error), unfit=True)
                continue
            worker = NodeWorkers(
                order,
                self._node,
                self._connection.address,
                self._warm,
                self._said,
                self._over,
                seats=seats,
                failed=self._failed_on,
                turns=self._turns if order.get("turns") else None,
            )
            self._workers[worker.trainer] = worker
            self._do(self._spawn(worker))

    async def _spawn(self, worker: NodeWorkers) -> None:
        await asyncio.sleep(worker.order["delay_s"])
        if worker.phase == Phase.LEAVING:
            self._over(worker, 0)
            return
        try:
            await worker.start()
            if "go" in worker.order:
                worker.go(worker.order["go"])
        except Exception as error:  # a bug, or a program that cannot be started: the daemon must hear of it
            log.exception("cannot start %s", worker.order["command"][:1])
            self._failed(worker, error)

    def _go(self, order: Message, worker: NodeWorkers | None) -> None:
        """Have a worker that stands warm, or will, run its script."""
        for waiting in self._queue:
            if waiting["trainer"] == order["trainer"]:
                waiting["go"] = order
                return
        if worker is None or worker.generation != order["generation"] or worker.phase == Phase.LEAVING:
            return
        if not worker.has_started:
            worker.order["go"] = order
            return
        try:
            worker.go(order)
        except OSError as error:
            log.error("cannot start %s: %s", worker.order["command"][:1], error)
            self._failed(worker, error)

    def _failed(self, worker: NodeWorkers, error: Exception) -> None:
        unable = isinstance(error, FolderError)
        program = worker.order["command"][0]
        worker.fail(str(error) if unable else CANNOT_START.say(program=program, why=error))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("something failed in the background", exc_info=error)

    # what workers say

    def _said(self, worker: NodeWorkers, message: Message) -> None:
        about = {"trainer": worker.trainer, "started": worker.generation, "run": worker.run}
        self._connection.tell({"type": "worker", **about, "said": message})
        if self._parting and message["type"] == "left":
            worker.kill()  # it has said all that it had: its own end would take longer

    def _failed_on(self, seat: Seat) -> None:
        """A worker was the first of its node to fail: its device may be at fault."""
        if seat.device is not None and self._seats.health.failed(seat.device):
            log.warning("a device is taken out of use: %s", self._seats.health.out[-1])
            self._connection.tell({"type": "devices", "devices": self.devices()})

    def _over(self, worker: NodeWorkers, code: int, reason: str = "") -> None:
        if self._workers.get(worker.trainer) is worker:
            del self._workers[worker.trainer]
            if not worker.has_failed:
                self._seats.health.worked()
        ended = _exited(worker.trainer, worker.generation, worker.run, worker.phase, code)
        self._connection.tell({**ended, "reason": reason, "last": worker.last, "kept": worker.kept})
        if self._parting and not self._workers:
            asyncio.get_running_loop().call_soon(self._exit.set)
        elif not self._exit.is_set():
            if not self._workers:  # what its script has started in sessions of their own ends with it
                kill_adopted({self._warm.pid})
            self._start_next()


def _has_room(order: Message, there: Collection[NodeWorkers]) -> bool:
    alike = len(there) < AT_ONCE and all(_may_be_beside(order, worker) for worker in there)
    return not there or alike


def _may_be_beside(order: Message, worker: NodeWorkers) -> bool:
    """True if another trainer may start beside these workers: both take turns."""
    if not order.get("turns") or worker.trainer == order["trainer"]:
        return False
    return bool(worker.order.get("turns"))


def _exited(trainer: int, started: int, run: int, phase: str, code: int) -> Message:
    return {
        "type": "exited",
        "trainer": trainer,
        "started": started,
        "run": run,
        "phase": phase,
        "code": code,
        "reason": "",
        "last": {},
    }
