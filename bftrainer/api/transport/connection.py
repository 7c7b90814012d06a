"""One connection of a client: a head of bounded size, one request, one answer, each within a time limit.

aiohttp reads HTTP; this adds what it leaves open. Every connection serves one request: so none is ever kept
open for nothing. A client that takes longer than `timeout_s` to send its head, to send the body, or to
take the answer is cut off.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache

from aiohttp import web

from bftrainer.api.listing import RETRIED
from bftrainer.api.transport.admission import RETRY_S, BusyError, ConnectionPlace
from bftrainer.api.transport.sockets import AGENT_PORTION, ClientSocket

log = logging.getLogger(__name__)

MAX_HEAD = 16 * 1024
"""Bytes of a request's line and headers, at most; a credential of munge takes up to 4096."""
MAX_LINE = 4096
"""Bytes of a request's line (method, path, query), at most."""
READ_AHEAD = 16 * 1024
"""Bytes of a body that are read before a handler asks for it."""
LINGER_S = 1.0
"""Seconds for which an unread body is thrown away, so that its client can take the answer."""
CONTINUE = "100-continue"
END_OF_HEAD = b"\r\n\r\n"
REASONS = {408: "Request Timeout", 429: "Too Many Requests", 431: "Request Header Fields Too Large"}


@lru_cache(maxsize=256)
def answer_without_request(status: int, said: str) -> bytes:
    """The whole answer to a connection whose request is not read."""
    body = json.dumps({"error": said}).encode()
    retry = f"Retry-After: {RETRY_S}\r\n" if status in RETRIED else ""
    head = (
        f"HTTP/1.1 {status} {REASONS.get(status, 'Service Unavailable')}\r\n{retry}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


class Connection(web.RequestHandler):
    """Serves one request of one client, which has a `place` until this is over."""

    def __init__(self, server: web.Server, place: ConnectionPlace, client: ClientSocket) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # None: no such log
            keepalive_timeout=0,
            lingering_time=LINGER_S,
            read_bufsize=READ_AHEAD,
            max_line_size=MAX_LINE,
            auto_decompress=False,  # a few bytes could become gigabytes
        )
        self.place, self._timeout_s = place, place.register.bounds.timeout_s
        self._client, self._deaf = client, False
        self._pipe: asyncio.Transport | None = None
        self._head: bytearray | None = bytearray()  # None: it was complete, and aiohttp has it
        self._request: web.BaseRequest | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[object] | None = None  # what only the client has an interest in

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there: its head must follow in time."""
        self._pipe = transport  # type: ignore[assignment]  # streams have nothing else
        self.place.evict = self._evict
        super().connection_made(transport)
        self.wait_for_client()
        if self.place.evicted:  # before it was there
            self._evict(self.place.evicted)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone."""
        self.work()
        self.place.lost()
        super().connection_lost(exc)
        if self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        """Pass bytes on to aiohttp, once the head is complete; end a connection whose head has no end."""
        if self._deaf:
            return
        if self._head is None:
            super().data_received(data)
            return
        self._head += data
        if self._head.startswith((b"\r", b"\n")):  # empty lines may come before a request
            self._head = self._head.lstrip(b"\r\n")
        found = self._head.find(END_OF_HEAD, max(0, len(self._head) - len(data) - len(END_OF_HEAD)))
        if found > MAX_HEAD or (found < 0 and len(self._head) > MAX_HEAD):
            self._too_long()
        elif found >= 0:
            whole, self._head = bytes(self._head), None
            super().data_received(whole)

    def wait_for_client(self) -> None:
        """The client is to send or take something: not for longer than the time limit."""
        self.work()
        self._limit = asyncio.get_running_loop().call_later(self._timeout_s, self._too_slow)

    def begin(self, request: web.BaseRequest) -> None:
        """The head is complete; the body must follow in time."""
        self._request = request
        if request.method == "GET" and "Upgrade" not in request.headers:  # orders go on without a client
            self._answering = asyncio.current_task()
        self.wait_for_client()

    def answered(self) -> None:
        """The handler has ended."""
        self._answering = None

    def proven(self) -> None:
        """The client is an authenticated agent, and stays."""
        self.work()
        self.place.proven()
        self._client.portion = AGENT_PORTION

    def work(self) -> None:
        """The request is worked on: that is not the client's time."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be read, or what a handler failed at: in JSON, and with a line in the log
        only if the failure is ours."""
        if isinstance(exc, ConnectionError) or self.transport is None or request.writer.output_size:
            raise ConnectionError("the client is gone, or has part of an answer")
        if status >= 500:
            log.error("%s %.200s failed", request.method, request.path, exc_info=exc)
            said = "the daemon failed at this request; its log says how"
        else:
            said = f"this is no request that can be read: {str(message or exc).splitlines()[0][:200]}"
        answer = web.json_response({"error": said}, status=status)
        answer.force_close()
        return answer

    def _too_slow(self) -> None:
        self._refuse(
            408,
            f"the request was not complete, or its answer not taken, in {self._timeout_s:g} s; "
            "send it again, whole and at once",
        )

    def _too_long(self) -> None:
        """Refuse a head that is too long. What follows is thrown away for a moment: the client takes the
        answer once it has sent all."""
        said = f"a request's head has at most {MAX_HEAD} bytes; send less in headers and query"
        self._deaf = True
        if self._pipe is not None:
            self._pipe.write(answer_without_request(431, said))
            self._pipe.write_eof()
            asyncio.get_running_loop().call_later(LINGER_S, self._pipe.abort)

    def _evict(self, why: BusyError) -> None:
        self._refuse(why.status, str(why))

    def _refuse(self, status: int, said: str) -> None:
        """End the connection at once, with an answer if none has begun and the client takes it."""
        if self._pipe is None:
            return
        if self._request is None or not self._request.writer.output_size:
            self._pipe.write(answer_without_request(status, said))
        self._pipe.abort()


Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def one_request(handle: Handle) -> Handle:
    """The handler of a server whose connections are of this kind: tells the connection what goes on."""

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        """Handle the request; then the client has to take the answer in time."""
        connection = request.protocol
        if not isinstance(connection, Connection):
            raise TypeError(f"{type(connection).__name__} is no Connection")
        connection.begin(request)
        try:
            response: web.StreamResponse
            if (request.content_length or 0) > request.client_max_size:  # also before a 100 (Continue)
                response = web.json_response({"error": too_large(request)}, status=413)
            elif request.headers.get("Expect", CONTINUE).lower() == CONTINUE:
                response = await handle(request)
            else:  # aiohttp fails at some of them
                said = f"a request may expect {CONTINUE}, nothing else"
                response = web.json_response({"error": said}, status=417)
        finally:
            connection.answered()
            connection.place.rests()
            if connection.place.connected:
                connection.wait_for_client()
        response.force_close()
        return response

    return handler


def too_large(request: web.BaseRequest) -> str:
    """Return the message for a request whose body is too large; its size is known if the client gave it."""
    most = request.client_max_size
    size = f"more than {most}" if request.content_length is None else str(request.content_length)
    return (
        f"the request is too large: its body has {size} bytes, of at most {most}; "
        "send less, such as a shorter spec"
    )


def connection_of(request: web.BaseRequest) -> Connection | None:
    """The connection over which a request came; None on a server of another kind."""
    return request.protocol if isinstance(request.protocol, Connection) else None


@web.middleware
async def whole(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Read a request to its end before it is handled: no handler waits for its client."""
    await request.read()
    if connection := connection_of(request):
        connection.work()
        connection.place.works()
    return await handler(request)
