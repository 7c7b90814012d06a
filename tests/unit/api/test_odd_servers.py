"""What answers on a socket may be broken or hostile: a client reads so much, waits so long, and says why."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, count, repeat
from pathlib import Path

import pytest

from bftrainer.api import client as client_module
from bftrainer.api import received
from bftrainer.api.client import Client, DaemonError
from bftrainer.api.received import ResponseLimits

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
Answer = Callable[[], Iterable[bytes]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that waits for a second."""
    monkeypatch.setattr(client_module, "TIMEOUT_S", 1.0)
    monkeypatch.setattr(client_module, "RETRY_S", 0.05)


@contextmanager
def server(at: Path, answer: Answer) -> Iterator[list[int]]:
    """Something that gives this answer to everybody, part by part; how many bytes each client has taken."""
    taken: list[int] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(at))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            taken.append(0)
            with connection:
                try:
                    connection.recv(100_000)
                    for part in answer():
                        connection.sendall(part)
                        taken[-1] += len(part)
                except OSError:  # the client has gone
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def whole(body: object, *headers: str) -> bytes:
    text = json.dumps(body).encode()
    head = "".join(f"{header}\r\n" for header in headers).encode()
    return HEAD + head + b"Content-Length: %d\r\n\r\n" % len(text) + text


def trickle() -> Iterator[bytes]:
    yield HEAD + b"\r\n"
    for _ in range(1000):
        time.sleep(0.02)
        yield b" "


PACKED = gzip.compress(b"0" * 10_000_000)
REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
ENDLESS = (  # a later Python takes so many interim answers only
    "does not answer like a daemon: "
    if hasattr(http.client, "_MAXINTERIMRESPONSES")
    else "has not answered within 1 s"
)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            lambda: chain([HEAD + b"\r\n["], repeat(b'"' + b"x" * 65_536 + b'",')),
            "more than 1 MB; ask for less",
        ),
        (lambda: chain([HEAD], repeat(b"X: y\r\n" * 1000)), "does not answer like a daemon: "),
        (lambda: chain([HEAD + b"X: "], repeat(b"y" * 65_536)), "does not answer like a daemon: "),
        (lambda: repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 100), ENDLESS),
        (trickle, "has not answered within 1 s"),
        (
            lambda: [HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(PACKED) + PACKED],
            "packed",
        ),
        (lambda: [REDIRECT], "it answered 302 Found"),
        (lambda: [b"HTTP/1.1 429 X\r\nRetry-After: 999999999\r\nContent-Length: 2\r\n\r\n{}"], "status 429"),
        (lambda: [b"HTTP/1.1 429 X\r\nRetry-After: -5\r\nContent-Length: 2\r\n\r\n{}"], "status 429"),
        (lambda: [HEAD + b"\r\n" + b"[" * 100_000], "does not answer like a daemon: "),
        (lambda: [HEAD + b"\r\n" + b"9" * 5000], "does not answer like a daemon: "),
        (lambda: [HEAD + b"Content-Length: -1\r\n\r\n1"], "does not answer like a daemon: "),
    ],
    ids=[
        *("endless body", "endless headers", "endless header", "endless 100", "trickle", "bomb", "redirect"),
        *("long wait", "negative wait", "deep", "digits", "negative length"),
    ],
)
def test_an_odd_answer_takes_little_and_is_told(tmp_path: Path, answer: Answer, words: str) -> None:
    with server(tmp_path / "s", answer) as taken, pytest.raises(DaemonError) as error:
        began = time.monotonic()
        Client(tmp_path / "s", bounds=ResponseLimits(most_mb=1)).call("GET", "status")
    assert words in str(error.value) and len(str(error.value)) < 500
    assert time.monotonic() - began < 20  # far from for ever, also on a busy machine
    if "within 1 s" not in words:  # what came in time was not kept
        assert max(taken) < 5_000_000


def test_an_answer_within_the_bound_is_read_whole(tmp_path: Path) -> None:
    with server(tmp_path / "s", lambda: [whole(["x" * 900_000])]):
        assert Client(tmp_path / "s", bounds=ResponseLimits(most_mb=1)).call("GET", "status") == [
            "x" * 900_000
        ]


def pages(header: str, row: Callable[[int], object]) -> Answer:
    """A page of one row for ever, each of which says that there are more."""
    number = count(1)

    def answer() -> Iterable[bytes]:
        n = next(number)
        return [whole([row(n)], f"{header}: {n}")]

    return answer


def trainer(n: int) -> object:
    return {"id": n, "ended_at": None, "padding": "x" * 50_000}


ASKED = [
    (lambda client: client.trainers(1, every=True), "Bftrainer-Next", trainer),
    (lambda client: client.trainers(10**9), "Bftrainer-Left-Out", trainer),
    (lambda client: client.rows("events", 10**9), "Bftrainer-Next", trainer),
]


@pytest.mark.parametrize(("ask", "header", "row"), ASKED)
def test_pages_without_end_are_bounded_together(
    tmp_path: Path, ask: Callable[[Client], object], header: str, row: Callable[[int], object]
) -> None:
    with (
        server(tmp_path / "s", pages(header, row)) as taken,
        pytest.raises(DaemonError, match="more than 1 MB"),
    ):
        ask(Client(tmp_path / "s", bounds=ResponseLimits(most_mb=1)))
    assert 15 <= len(taken) <= 25


@pytest.mark.parametrize(("ask", "header", "row"), ASKED)
def test_pages_end_in_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[Client], object],
    header: str,
    row: Callable[[int], object],
) -> None:
    monkeypatch.setattr(received, "PAGES_S", 0.0)
    with server(tmp_path / "s", pages(header, row)), pytest.raises(DaemonError, match="has not ended after"):
        ask(Client(tmp_path / "s"))


@pytest.mark.parametrize(("ask", "header", "row"), ASKED)
def test_an_empty_page_is_the_last(
    tmp_path: Path, ask: Callable[[Client], object], header: str, row: Callable[[int], object]
) -> None:
    with server(tmp_path / "s", lambda: [whole([], f"{header}: 1")]) as taken:
        ask(Client(tmp_path / "s"))
    assert len(taken) <= 2


@pytest.mark.parametrize("value", ["x", "-1", "9" * 5000, "1.5", "٣"])
@pytest.mark.parametrize("header", ["Bftrainer-Next", "Bftrainer-Left-Out", "Bftrainer-Waiting-Left-Out"])
def test_a_header_that_is_no_number_is_odd(tmp_path: Path, header: str, value: str) -> None:
    with (
        server(tmp_path / "s", lambda: [whole([], f"{header}: {value}")]),
        pytest.raises(DaemonError, match=f"its header {header} is .*, which is no number"),
    ):
        Client(tmp_path / "s").trainers(1, every=True)


def test_what_the_daemon_says_is_shown_up_to_a_bound(tmp_path: Path) -> None:
    body = json.dumps({"error": "x" * 500_000}).encode()
    answer = b"HTTP/1.1 400 X\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with server(tmp_path / "s", lambda: [answer]), pytest.raises(DaemonError) as error:
        Client(tmp_path / "s").call("GET", "status")
    assert len(str(error.value)) == client_module.MOST_SAID
