"""Bounds what others can have Horovod's driver keep.

Its HTTP server keeps values under keys for whatever process on the network sends them, and starts a thread
for each connection.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from horovod.runner.http import http_server

BODY_BYTES = 1 << 20
"""The largest value that is read: workers send addresses, of a few hundred bytes."""
ENTRY_BYTES = 200
"""Bytes of an entry besides its key and its value."""
STACK_BYTES = 256 * 1024
"""The memory of a connection's thread."""
NO_ROOM = 507
TOO_LARGE = 413


def bound(address: str, *, values_bytes: int, connections: int) -> None:
    """Have Horovod's HTTP servers of this process listen at `address` only, keep at most `values_bytes`, and
    close connections beyond `connections`.

    Call it before the first server starts.
    """
    threading.stack_size(STACK_BYTES)
    server = http_server.RendezvousHTTPServer
    _listen_at(server, address)
    _bound_connections(server, threading.BoundedSemaphore(connections))
    server.handle_error = _no_line
    http_server.KVStoreHandler.do_PUT = _put(http_server.KVStoreHandler.do_PUT, values_bytes)


def held_bytes(cache: Mapping[str, Mapping[str, bytes]]) -> int:
    """Bytes that the values of a server take."""
    return sum(
        len(key) + len(value) + ENTRY_BYTES for scope in cache.values() for key, value in scope.items()
    )


def _listen_at(server: Any, address: str) -> None:
    make = server.__init__

    def init(self: Any, addr: tuple[str, int], handler: Any, verbose: int) -> None:
        make(self, (address, addr[1]), handler, verbose)

    server.__init__, server.request_queue_size = init, 1024


def _bound_connections(server: Any, free: threading.BoundedSemaphore) -> None:
    start, serve = server.process_request, server.process_request_thread

    def process_request(self: Any, request: Any, client_address: Any) -> None:
        if not free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            start(self, request, client_address)
        except BaseException:  # no thread could be started
            free.release()
            raise

    def process_request_thread(self: Any, request: Any, client_address: Any) -> None:
        try:
            serve(self, request, client_address)
        finally:
            free.release()

    server.process_request, server.process_request_thread = process_request, process_request_thread


def _no_line(server: Any, request: Any, client_address: Any) -> None:
    """Keep odd clients' requests out of the log."""


def _put(put: Any, values_bytes: int) -> Any:
    def do_put(handler: Any) -> None:
        length = handler.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > BODY_BYTES or handler.path.count("/") != 2:
            handler.send_error(TOO_LARGE)
            return
        with handler.server.cache_lock:
            held = held_bytes(handler.server.cache)
        if held + int(length) + len(handler.path) > values_bytes:
            handler.send_error(NO_ROOM)
            return
        put(handler)

    return do_put
