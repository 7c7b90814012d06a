"""Has an agent prove to the daemon which pilot it is in, before anything that it says is read.

The agent's request names its pilot in headers. The daemon sends a challenge, and the agent answers with its
hello, whose MAC is checked over the bytes as they came. A connection that has not got that far is nobody's:
it has a few seconds, and their number is bounded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web

from bftrainer.wire import seal
from bftrainer.wire.headers import NONCE_HEADER, PROTOCOL, PROTOCOL_HEADER, TAG_HEADER
from bftrainer.wire.messages.from_agent import Hello

INTRODUCE_S = 10.0
QUICK_S = 0.25
"""An introduction usually takes less; only one that takes longer makes room for another."""
_WORD = re.compile(r"[\w.:-]{1,128}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Introduced:
    """An agent that has proven to be in the pilot `tag`, and the seals of the connection's messages."""

    tag: str
    hello: Hello
    theirs: seal.Seal
    ours: seal.Seal


class Newcomers:
    """The connections that have not proven anything yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[Callable[[], None], float] = {}  # how to cut each off -> since when it is here

    @contextmanager
    def one(self, cut: Callable[[], None], most: int) -> Iterator[bool]:
        """Around an introduction. If there are `most` already, the oldest is cut off; False: even that one
        has just come, and this one must come again later."""
        if len(self._since) >= most:
            oldest, since = next(iter(self._since.items()))
            if self._clock() - since < QUICK_S:
                yield False
                return
            del self._since[oldest]
            oldest()
        self._since[cut] = self._clock()
        try:
            yield True
        finally:
            self._since.pop(cut, None)


def refusal(request: web.Request) -> web.Response | None:
    """The answer to a request that is not from an agent, before it becomes a connection."""
    protocol = request.headers.get(PROTOCOL_HEADER, "1")
    if protocol != PROTOCOL:
        reason = (
            f"agents speak protocol {PROTOCOL} with this daemon, and this one {protocol[:20]!a}: it is of "
            "another version of bftrainer. Its workers write checkpoints after its orphan_s, and end"
        )
        return web.Response(status=426, reason="Upgrade Required", text=reason)
    if not all(_WORD.fullmatch(request.headers.get(name, "")) for name in (TAG_HEADER, NONCE_HEADER)):
        return web.Response(status=400, text=f"an agent's request has {TAG_HEADER} and {NONCE_HEADER}")
    return None


async def introduce(
    ws: web.WebSocketResponse, request: web.Request, secret_of: Callable[[str], str]
) -> Introduced:
    """Have an agent prove itself, and read its hello.

    Raises:
        ForgedError: the other side does not know the secret of the pilot that it names.
        ValueError: it knows it, but does not say hello.
        TimeoutError, ConnectionError: it says nothing, or has gone.
    """
    tag, nonce, challenge = request.headers[TAG_HEADER], request.headers[NONCE_HEADER], seal.nonce()
    theirs, ours = seal.seals(secret_of(tag), challenge, nonce)
    await ws.send_json({"type": "challenge", "nonce": challenge})
    frame = await ws.receive(timeout=INTRODUCE_S)
    if frame.type is not aiohttp.WSMsgType.TEXT:
        raise ConnectionResetError(f"a {frame.type.name} in place of a hello")
    return Introduced(tag, Hello.model_validate(theirs.take(frame.data)), theirs, ours)
