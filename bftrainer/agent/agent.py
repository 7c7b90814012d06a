"""The agent: one per pilot. It obeys the daemon, and goes on without it for a while.

Daemon -> agent: start, regroup, kv, stop, exit. Agent -> daemon: hello (with everything that runs
here), what workers say, started, exited. Orders carry the trainer's generation; older ones than what
is running are ignored. One worker at a time trains on a node: the next starts when the last has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from pathlib import Path
from typing import Any

import aiohttp

from bftrainer.agent.worker import Worker

log = logging.getLogger(__name__)

RETRY_S = 0.2
HEARTBEAT_S = 10.0
Message = dict[str, Any]


class Agent:
    def __init__(self, *, node: str, tag: str, socket: Path, address: str, orphan_s: float) -> None:
        self._node, self._tag, self._socket, self._address = node, tag, socket, address
        self._orphan_s = orphan_s
        self._workers: dict[int, Worker] = {}  # trainer -> its worker here
        self._queue: list[Message] = []  # starts that wait for the node to be free
        self._outbox: asyncio.Queue[Message] = asyncio.Queue()
        self._connected = False
        self._unsaid: list[Message] = []  # ends that happened while nobody listened
        self._exit = asyncio.Event()
        self._starts: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Serve until told to exit, until SIGTERM, or until the daemon has been gone for too long."""
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sign, self._exit.set)
        connection = asyncio.create_task(self._keep_connected())
        await self._exit.wait()
        for worker in self._workers.values():
            worker.kill()
        connection.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await connection

    # the connection

    async def _keep_connected(self) -> None:
        lost_at = asyncio.get_running_loop().time()
        connector = aiohttp.UnixConnector(path=str(self._socket))
        async with aiohttp.ClientSession(connector=connector) as session:
            while not self._exit.is_set():
                try:
                    async with session.ws_connect(
                        "http://bftrainer/v1/agent", heartbeat=HEARTBEAT_S, max_msg_size=0
                    ) as ws:
                        await self._converse(ws)
                        lost_at = asyncio.get_running_loop().time()
                except (aiohttp.ClientError, OSError):
                    pass  # no daemon at the moment; try again below
                if asyncio.get_running_loop().time() - lost_at > self._orphan_s:
                    log.warning("no daemon for %.0f s: giving up", self._orphan_s)
                    await self._give_up()
                await asyncio.sleep(RETRY_S)

    async def _converse(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self._outbox = asyncio.Queue()
        # those that ended unheard are listed too: the daemon hears their ends next
        there = [
            *(
                {**_worker(w.trainer, w.generation, w.phase), "joined": w.joined}
                for w in self._workers.values()
            ),
            *(_worker(o["trainer"], o["generation"], "starting") for o in self._queue),
            *(_worker(m["trainer"], m["started"], m["phase"]) for m in self._unsaid),
        ]
        self._connected = True  # what is said from now on waits in the outbox for the hello to be sent
        await ws.send_json({"type": "hello", "node": self._node, "tag": self._tag, "workers": there})
        for message in self._unsaid:
            self._outbox.put_nowait(message)
        self._unsaid = []
        sender = asyncio.create_task(self._send_all(ws))
        try:
            async for frame in ws:
                if frame.type is aiohttp.WSMsgType.TEXT:
                    self._obey(frame.json())
        finally:
            self._connected = False
            sender.cancel()

    async def _send_all(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await ws.send_json(await self._outbox.get())

    def _tell(self, message: Message) -> None:
        """Send when connected; otherwise the next hello says what matters, but for ends."""
        if self._connected:
            self._outbox.put_nowait(message)
        elif message["type"] == "exited":
            self._unsaid.append(message)

    async def _give_up(self) -> None:
        """Nobody will ever take us over: let the workers checkpoint, then end."""
        for worker in self._workers.values():
            worker.send({"type": "regroup", "generation": 1 << 60, "members": [], "leaving": [self._node]})
            worker.leave_within(15.0)
        for _ in range(100):
            if not self._workers:
                break
            await asyncio.sleep(RETRY_S)
        self._exit.set()

    # orders

    def _obey(self, order: Message) -> None:
        kind = order["type"]
        worker = self._workers.get(order.get("trainer", 0))
        if kind == "start":
            self._start(order)
        elif kind == "exit":
            self._exit.set()
        elif kind == "stop":
            self._queue = [o for o in self._queue if o["trainer"] != order["trainer"]]
            if worker is not None:
                worker.send({"type": "stop"})
                worker.leave_within(order["grace_s"])
        elif kind == "regroup" and worker is not None:
            worker.send(order)
            if self._node in order["leaving"]:
                worker.leave_within(order["grace_s"])
        elif kind == "kv" and worker is not None:
            worker.send(order)

    def _start(self, order: Message) -> None:
        old = self._workers.get(order["trainer"])
        if old is not None and old.generation >= order["generation"]:
            return  # said twice
        self._queue = [o for o in self._queue if o["trainer"] != order["trainer"]] + [order]
        for worker in self._workers.values():
            if worker.phase != "leaving":  # overtaken by this order: it has no business here any more
                worker.send({"type": "stop"})
                worker.leave_within(order["grace_s"])
        self._start_next()

    def _start_next(self) -> None:
        if not self._workers and self._queue:
            order = self._queue.pop(0)
            worker = Worker(order, self._node, self._address, self._said, self._over)
            self._workers[worker.trainer] = worker
            task = asyncio.create_task(self._spawn(worker))
            self._starts.add(task)
            task.add_done_callback(self._starts.discard)

    async def _spawn(self, worker: Worker) -> None:
        await asyncio.sleep(worker.order["delay_s"])
        if worker.phase == "leaving":
            self._over(worker, 0)
            return
        try:
            await worker.start()
        except OSError as error:
            log.error("cannot start %s: %s", worker.order["command"][:1], error)
            self._over(worker, 127, f"cannot start {worker.order['command'][0]!r}: {error}")

    # what workers say

    def _said(self, worker: Worker, message: Message) -> None:
        self._tell({**message, "trainer": worker.trainer, "started": worker.generation})

    def _over(self, worker: Worker, code: int, reason: str = "") -> None:
        if self._workers.get(worker.trainer) is worker:
            del self._workers[worker.trainer]
        self._tell(
            {
                "type": "exited",
                "trainer": worker.trainer,
                "started": worker.generation,
                "phase": worker.phase,
                "code": code,
                "reason": reason,
                "last": worker.last,
            }
        )
        if not self._exit.is_set():
            self._start_next()


def _worker(trainer: int, generation: int, phase: str) -> Message:
    """An entry of the inventory in a hello."""
    return {"trainer": trainer, "generation": generation, "phase": phase, "joined": 0}
