"""A hub on a port of its own, and connections to it that speak as agents do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from bftrainer.api.transport.listen import bind
from bftrainer.wire import seal
from bftrainer.wire.headers import NONCE_HEADER, PROTOCOL, PROTOCOL_HEADER, TAG_HEADER
from bftrainer.wire.hub import Hub, HubLimits

Message = dict[str, Any]


class Desk:
    """A hub on a port, and what it reports."""

    def __init__(self, limits: HubLimits = HubLimits()) -> None:  # noqa: B008  frozen
        self.stays = True
        self.reports: list[tuple[str, Any]] = []
        self.bounds: list[str] = []
        self.hub = Hub(self.secret_of, limits)
        self.hub.listen(self)
        self.address = ""
        self.seals: dict[object, tuple[seal.Seal, seal.Seal]] = {}

    def secret_of(self, tag: str) -> str:
        return f"secret of {tag}"

    def is_open(self) -> bool:
        return True

    def up(self, node: str, tag: str, inventory: list[Message]) -> bool:
        self.reports.append(("up", (tag, inventory)))
        return self.stays

    def down(self, node: str) -> None:
        self.reports.append(("down", node))

    def said(self, node: str, message: Message) -> None:
        self.reports.append(("said", message))

    def at_bound(self, bound: str, node: str, at: float) -> None:
        self.bounds.append(bound)

    def flooded(self, node: str, reason: str) -> None:
        self.reports.append(("flooded", node))

    @asynccontextmanager
    async def socket(
        self, tag: str = "t-n", **headers: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse[bool]]:
        """A connection of an agent that has said nothing yet."""
        known = {PROTOCOL_HEADER: PROTOCOL, TAG_HEADER: tag, NONCE_HEADER: "mine", **headers}
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(
                f"http://{self.address}/v1/agent", headers=known, decode_text=False, max_msg_size=0
            ) as ws,
        ):
            yield ws

    async def say_hello(
        self, ws: aiohttp.ClientWebSocketResponse[bool], tag: str = "t-n", node: str = "n", workers: Any = ()
    ) -> str:
        """Say hello as the agent of a node does; what the daemon answers."""
        self.seals[ws] = ours, theirs = seal.seals(
            self.secret_of(tag), json.loads((await ws.receive()).data)["nonce"], "mine"
        )
        await ws.send_str(ours.put({"type": "hello", "node": node, "workers": workers}))
        answer: str = theirs.take((await ws.receive()).data)["type"]
        return answer

    @asynccontextmanager
    async def agent(
        self, tag: str = "", node: str = "n"
    ) -> AsyncIterator[tuple[Callable[[Any], Any], Callable[[], Any]]]:
        """A connection that introduces itself as an agent's; how it sends and hears messages."""
        tag = tag or f"t-{node}"
        async with self.socket(tag) as ws:
            assert await self.say_hello(ws, tag, node) == "welcome"
            ours, theirs = self.seals[ws]

            async def send(message: Any) -> None:
                await ws.send_str(ours.put(message))

            async def hear() -> Any:
                frame = await ws.receive()
                return theirs.take(frame.data) if frame.type is aiohttp.WSMsgType.TEXT else None

            yield send, hear

    async def until(self, *reports: str) -> None:
        """Wait until these kinds of reports have been made, and no others."""
        async with asyncio.timeout(10):
            while [kind for kind, _ in self.reports] != list(reports):
                await asyncio.sleep(0.01)


def at(desk: Desk, story: Callable[[], Coroutine[Any, Any, None]], within_s: float = 20.0) -> None:
    """Tell a story while the hub is served."""

    async def whole() -> None:
        app = web.Application()
        app.router.add_get("/v1/agent", desk.hub.serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        bound = bind("127.0.0.1:0")
        await web.SockSite(runner, bound).start()
        desk.address = f"127.0.0.1:{bound.getsockname()[1]}"
        try:
            async with asyncio.timeout(within_s):
                await story()
        finally:
            await runner.cleanup()

    asyncio.run(whole())
