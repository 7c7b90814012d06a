"""The agent: one per pilot. It obeys the daemon, and goes on without it for a while.

Daemon -> agent: warm, start, go, regroup, kv, stop, kill, exit. Agent -> daemon: hello (with everything
that runs here), what workers say, exited. Orders carry the trainer's generation; older ones than what is
running are ignored. One worker at a time trains on a node: the next starts when the last has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Coroutine
from typing import Any

import aiohttp

from bftrainer.agent.process import Program, adopt_orphans
from bftrainer.agent.warm import WarmPool
from bftrainer.agent.worker import Worker
from bftrainer.wire import seal as secrets
from bftrainer.wire.seal import Seal

log = logging.getLogger(__name__)

RETRY_S = 0.2
HEARTBEAT_S = 10.0
CONNECT_S = 20.0
TERM_S = 0.3
"""How long workers have to let go when the pilot is told to end: the host waits for the node."""
GIVE_UP_S = 15.0
"""How long workers have to write checkpoints when there is no daemon any more."""
Message = dict[str, Any]


class Agent:
    """`daemon` is the path of its Unix socket, or host:port; `address` is where this node's workers listen
    for their peers, by default where the node meets the daemon."""

    def __init__(
        self, *, node: str, tag: str, secret: str, daemon: str, orphan_s: float, address: str = ""
    ) -> None:
        self._node, self._tag, self._secret, self._daemon = node, tag, secret, daemon
        self._address, self._orphan_s = address, orphan_s
        self._workers: dict[int, Worker] = {}  # trainer -> its worker here
        self._queue: list[Message] = []  # starts that wait for the node to be free
        self._outbox: asyncio.Queue[Message] = asyncio.Queue()
        self._connected = False
        self._unsaid: list[Message] = []  # ends that happened while nobody listened
        self._heard_at = 0.0  # when our daemon was last there
        self._exit = asyncio.Event()
        self._parting = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._warm = WarmPool(f"{node} {daemon}")

    async def serve(self) -> None:
        """Serve until told to exit, until SIGTERM, or until the daemon has been gone for too long."""
        adopt_orphans()
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sign, self._say_goodbye)
        connection = asyncio.create_task(self._keep_connected())
        await self._exit.wait()
        for worker in self._workers.values():
            worker.kill()
        self._warm.close()
        connection.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await connection

    def _say_goodbye(self) -> None:
        """The node is wanted: the daemon takes our workers out of their trainers, if it is quick."""
        loop = asyncio.get_running_loop()
        if self._connected and self._workers and not self._parting:
            self._parting = True
            self._tell({"type": "bye"})
            loop.call_later(TERM_S, self._exit.set)
        else:
            self._exit.set()

    # the connection

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        self._heard_at = loop.time()
        local = "/" in self._daemon
        connector = aiohttp.UnixConnector(path=self._daemon) if local else None
        host = "bftrainer" if local else self._daemon
        async with aiohttp.ClientSession(connector=connector) as session:
            while not self._exit.is_set():
                try:
                    async with session.ws_connect(
                        f"http://{host}/v1/agent", heartbeat=HEARTBEAT_S, max_msg_size=0
                    ) as ws:
                        if not self._address:
                            here = ws.get_extra_info("sockname")
                            self._address = "127.0.0.1" if local else here[0]
                        if seals := await self._introduce(ws):
                            await self._converse(ws, *seals)
                            self._heard_at = loop.time()
                except secrets.ForgedError as error:
                    log.warning("%s; connecting again", error)
                except (aiohttp.ClientError, OSError, TimeoutError, TypeError, ValueError, KeyError):
                    pass  # no daemon at the moment, or not ours; try again below
                if loop.time() - self._heard_at > self._orphan_s:
                    log.warning("no daemon for %.0f s: giving up", self._orphan_s)
                    await self._give_up()
                await asyncio.sleep(RETRY_S)

    async def _introduce(self, ws: aiohttp.ClientWebSocketResponse) -> tuple[Seal, Seal] | None:
        """Say who is here and what runs here; our seal and the daemon's, if it has time for us."""
        self._outbox = asyncio.Queue()
        challenge = await ws.receive_json(timeout=CONNECT_S)
        # those that ended unheard are listed too: the daemon hears their ends next
        there = [
            *(_worker(w.trainer, w.generation, w.run, w.phase, w.joined) for w in self._workers.values()),
            *(_worker(o["trainer"], o["generation"], 0, "starting") for o in self._queue),
            *(_worker(m["trainer"], m["started"], m["run"], m["phase"]) for m in self._unsaid),
        ]
        self._connected = True  # what is said from now on waits in the outbox for the hello to be sent
        nonce = secrets.nonce()
        try:
            ours, theirs = secrets.seals(self._secret, str(challenge["nonce"]), nonce)
            hello = {"type": "hello", "node": self._node, "tag": self._tag, "workers": there, "nonce": nonce}
            await ws.send_str(ours.put(hello))
            answer = theirs.take(await ws.receive_str(timeout=CONNECT_S))
            if answer["type"] == "welcome":
                return ours, theirs
        except secrets.ForgedError:
            log.warning("who answers at %s does not know our secret", self._daemon)
        except BaseException:
            self._unsay()
            raise
        else:  # it is there, but has just been started
            self._heard_at = asyncio.get_running_loop().time()
        self._unsay()
        return None

    def _unsay(self) -> None:
        """Nobody has listened."""
        self._connected = False
        while not self._outbox.empty():
            self._tell(self._outbox.get_nowait())

    async def _converse(self, ws: aiohttp.ClientWebSocketResponse, ours: Seal, theirs: Seal) -> None:
        for message in self._unsaid:
            self._outbox.put_nowait(message)
        self._unsaid = []
        sender = asyncio.create_task(self._send_all(ws, ours))
        try:
            async for frame in ws:
                if frame.type is aiohttp.WSMsgType.TEXT:
                    self._obey(theirs.take(frame.data))
        finally:
            self._connected = False
            sender.cancel()

    async def _send_all(self, ws: aiohttp.ClientWebSocketResponse, ours: Seal) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await ws.send_str(ours.put(await self._outbox.get()))

    def _tell(self, message: Message) -> None:
        """Send when connected; otherwise the next hello says what matters, but for ends."""
        if self._connected:
            self._outbox.put_nowait(message)
        elif message["type"] == "exited":
            self._unsaid.append(message)

    async def _give_up(self) -> None:
        """Nobody will ever take us over: let the workers checkpoint, then end."""
        dissolved = {"type": "regroup", "generation": 1 << 60, "members": [], "leaving": [self._node]}
        for worker in list(self._workers.values()):
            worker.send(dissolved)
            worker.stop(GIVE_UP_S) if worker.order["gated"] else worker.leave_within(GIVE_UP_S)
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
        elif kind == "warm":
            self._do(self._warm.prepare(Program.of(order)))
        elif kind == "go":
            self._go(order, worker)
        elif kind == "stop":
            self._forget(order["trainer"])
            if worker is not None:
                worker.stop(order["grace_s"])
        elif kind == "kill" and worker is not None:
            worker.kill(order["reason"])
        elif kind == "regroup" and worker is not None:
            worker.send(order)
            if self._node in order["leaving"]:
                worker.leave_within(order["grace_s"])
        elif kind == "kv" and worker is not None:
            worker.send(order)

    def _forget(self, trainer: int) -> None:
        """Whatever waits to be started for a trainer ends without having begun."""
        for waiting in [o for o in self._queue if o["trainer"] == trainer]:
            self._queue.remove(waiting)
            self._tell(_exited(trainer, waiting["generation"], 0, "leaving", 0))

    def _start(self, order: Message) -> None:
        old = self._workers.get(order["trainer"])
        if old is not None and old.generation >= order["generation"]:
            return  # said twice
        self._queue = [o for o in self._queue if o["trainer"] != order["trainer"]] + [order]
        for worker in self._workers.values():
            if worker.phase != "leaving":  # overtaken by this order: it has no business here any more
                worker.stop(order["grace_s"])
        self._start_next()

    def _start_next(self) -> None:
        if not self._workers and self._queue:
            order = self._queue.pop(0)
            worker = Worker(order, self._node, self._address, self._warm, self._said, self._over)
            self._workers[worker.trainer] = worker
            self._do(self._spawn(worker))

    async def _spawn(self, worker: Worker) -> None:
        await asyncio.sleep(worker.order["delay_s"])
        if worker.phase == "leaving":
            self._over(worker, 0)
            return
        try:
            await worker.start()
            if "go" in worker.order:
                worker.go(worker.order["go"])
        except OSError as error:
            self._failed(worker, error)

    def _go(self, order: Message, worker: Worker | None) -> None:
        """A worker that stands warm is to run its script; so is one that has yet to get there."""
        for waiting in self._queue:
            if waiting["trainer"] == order["trainer"]:
                waiting["go"] = order
                return
        if worker is None or worker.generation != order["generation"] or worker.phase == "leaving":
            return
        if worker.phase == "starting" and worker.pid is None:
            worker.order["go"] = order
            return
        try:
            worker.go(order)
        except OSError as error:
            self._failed(worker, error)

    def _failed(self, worker: Worker, error: OSError) -> None:
        log.error("cannot start %s: %s", worker.order["command"][:1], error)
        worker.fail(f"cannot start {worker.order['command'][0]!r}: {error}")

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # what workers say

    def _said(self, worker: Worker, message: Message) -> None:
        about = {"trainer": worker.trainer, "started": worker.generation, "run": worker.run}
        self._tell({**message, **about})
        if self._parting and message["type"] == "left":
            worker.kill()  # it has said all that it had: its own end would take longer

    def _over(self, worker: Worker, code: int, reason: str = "") -> None:
        if self._workers.get(worker.trainer) is worker:
            del self._workers[worker.trainer]
        ended = _exited(worker.trainer, worker.generation, worker.run, worker.phase, code)
        self._tell({**ended, "reason": reason, "last": worker.last})
        if self._parting and not self._workers:
            asyncio.get_running_loop().call_soon(self._exit.set)
        elif not self._exit.is_set():
            self._start_next()


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


def _worker(trainer: int, generation: int, run: int, phase: str, joined: int = 0) -> Message:
    """An entry of the inventory in a hello."""
    return {"trainer": trainer, "generation": generation, "run": run, "phase": phase, "joined": joined}
