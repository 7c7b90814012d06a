"""What a user is told when the daemon is busy, gone, stuck, or something else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bftrainer.api import client as client_module
from bftrainer.api.client import Client, DaemonError
from bftrainer.api.listing import MAX_ROWS, NEXT
from bftrainer.api.received import Allowance
from bftrainer.api.transport.connection import answer_without_request

OK = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\nConnection: close\r\n\r\ntrue"
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that tries for a second."""
    monkeypatch.setattr(client_module, "TIMEOUT_S", 1.0)
    monkeypatch.setattr(client_module, "RETRY_S", 0.05)


@contextmanager
def daemon(at: Path, *answers: bytes) -> Iterator[list[bytes]]:
    """Something that gives these answers, one to a connection, the last to all others; the requests that it
    has got. An empty answer closes the connection; `wait` keeps it, and answers nothing."""
    asked: list[bytes] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(at))
    listener.listen()

    def serve() -> None:
        for n in range(10_000):
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                asked.append(connection.recv(100_000))
                answer = answers[min(n, len(answers) - 1)]
                if answer == b"wait":
                    connection.recv(1)
                elif answer:
                    connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield asked
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def refused(at: Path, method: str = "GET") -> str:
    with pytest.raises(DaemonError) as error:
        Client(at).call(method, "status")
    return str(error.value)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_request_that_a_busy_daemon_did_not_take_is_sent_again(
    tmp_path: Path, status: int, method: str
) -> None:
    busy = answer_without_request(status, "too many")
    with daemon(tmp_path / "s", busy, busy, OK) as asked:
        assert Client(tmp_path / "s").call(method, "status", body={"a": 1}) is True
    assert (
        len(asked) == 3 and len({head for head, _, _ in (each.partition(b"\r\n\r\n") for each in asked)}) == 1
    )


def test_a_daemon_that_stays_busy_says_why(tmp_path: Path) -> None:
    with daemon(tmp_path / "s", answer_without_request(503, "32 requests of yours are in work")) as asked:
        said = refused(tmp_path / "s")
    assert said == "32 requests of yours are in work"
    assert len(asked) > 5


def test_an_error_that_is_the_users_is_not_tried_again(tmp_path: Path) -> None:
    for status in (b"400 Bad Request", b"503 Service Unavailable"):
        answer = b"HTTP/1.1 %s\r\nContent-Length: 16\r\n\r\n" % status + b'{"error": "no!"}'
        with daemon(tmp_path / "s", answer) as asked:
            assert refused(tmp_path / "s") == "no!"
        assert len(asked) == 1
        (tmp_path / "s").unlink()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<htm>",
            "does not answer like a daemon: Expecting value",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xff", "does not answer like a daemon: 'utf-8'"),
        (b"220 mail.example.org ESMTP\r\n", "does not answer like a daemon: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{", "does not answer like a daemon: "),
        (
            b"HTTP/1.1 502 Bad\r\nContent-Length: 4\r\n\r\nnull",
            "does not answer like a daemon: status 502 to GET status",
        ),
        (
            b'HTTP/1.1 500 X\r\nContent-Length: 13\r\n\r\n{"error": ""}',
            "does not answer like a daemon: status 500 to GET status",
        ),
        (b"", "takes no requests of yours now: it closes the connection"),
        (b"wait", "has not answered within 1 s. Try again. If it happens again, see the daemon's log"),
    ],
)
def test_every_failure_has_a_reason(tmp_path: Path, answer: bytes, words: str) -> None:
    with daemon(tmp_path / "s", answer):
        said = refused(tmp_path / "s")
    assert words in said and not said.endswith((": ", ":"))


@pytest.mark.parametrize(("answer", "words"), [(b"", "gave no answer"), (b"wait", "has not answered within")])
def test_an_order_without_an_answer_may_have_been_carried_out(
    tmp_path: Path, answer: bytes, words: str
) -> None:
    with daemon(tmp_path / "s", answer) as asked:
        said = refused(tmp_path / "s", "POST")
    assert words in said and "The order may have been carried out. See bftrainer list" in said
    assert len(asked) == 1


def test_no_daemon(tmp_path: Path) -> None:
    assert "Start one with: bftrainer daemon" in refused(tmp_path / "nowhere")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(DaemonError, match="Check the setting server"):
        Client(f"127.0.0.1:{port}").call("GET", "status")


def test_where_many_connect_a_client_waits_for_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "TIMEOUT_S", 20.0)
    monkeypatch.setattr(client_module, "RETRY_S", 1e6)  # it is one try that waits
    at, others = tmp_path / "s", list[socket.socket]()
    with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
        listener.bind(str(at))
        listener.listen(1)
        while True:
            others.append(socket.socket(socket.AF_UNIX))
            others[-1].setblocking(False)
            try:
                others[-1].connect(str(at))
            except BlockingIOError:  # the queue is full
                break
        called = pool.submit(Client(at).call, "POST", "trainers", body={})
        assert not wait([called], timeout=0.3).done
        for _ in range(len(others) - 1):
            listener.accept()[0].close()
        connection, _ = listener.accept()
        connection.recv(10_000)
        connection.sendall(OK)
        connection.close()
        assert called.result(20) is True
    for other in others:
        other.close()


def test_a_studys_trials_beyond_one_answer_are_asked_for_page_by_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def page(
        self: Client, path: str, query: dict[str, Any], allowance: Allowance
    ) -> tuple[dict[str, Any], dict[str, str]]:
        asked.append((path, query))
        begin = int(query.get("after", -1)) + 1
        more = {NEXT: str(begin + 3)} if begin < 8 else {}
        return {"id": 7, "name": "s", "table": [{"number": n} for n in range(begin, begin + 4)]}, more

    monkeypatch.setattr(Client, "_page", page)
    found = Client(Path("s")).study("s", course=0)
    assert [row["number"] for row in found["table"]] == list(range(12))
    assert asked[0] == ("studies/s", {"course": 0})
    assert asked[1:] == [("studies/7", {"course": 0, "after": after}) for after in ("3", "7")]


def test_rows_beyond_one_answer_are_asked_for_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def page(
        self: Client, path: str, query: dict[str, Any], allowance: Allowance
    ) -> tuple[list[dict[str, int]], dict[str, str]]:
        asked.append(query["limit"])
        end = int(query["before"] or 25_000)
        return [{"id": n} for n in range(max(0, end - query["limit"]), end)], {}

    monkeypatch.setattr(Client, "_page", page)
    found = Client(Path("s")).rows("reports", 21_000)
    assert [row["id"] for row in found] == list(range(4_000, 25_000))
    assert max(asked) <= MAX_ROWS
