"""Who gets what of `bftrainer web`: a token that counts once, our own page only, and the paths of a list."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from yarl import URL

from bftrainer.web import relay, shared_feed
from bftrainer.web.access import HEADERS, Access
from bftrainer.web.pages import files
from bftrainer.web.server import application, hosts_of
from tests.support.serving import serving


class Asked:
    """A daemon that notes what it is asked, and answers each question with its path."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.stays = False

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, query: dict[str, str], data: bytes = b""
    ) -> AsyncIterator[Any]:
        self.paths.append(f"{method} {path} {query} {data.decode()}")

        async def pieces(size: int) -> AsyncIterator[bytes]:
            yield path.encode()
            while self.stays:
                await asyncio.sleep(0.01)

        yield SimpleNamespace(
            status=200, headers={"X-Odd": "1"}, content=SimpleNamespace(iter_chunked=pieces)
        )


class Page:
    """The server at a port of loopback, and its answers as (status, JSON or text)."""

    def __init__(self, access: Access, daemon: Asked, port: int, http: aiohttp.ClientSession) -> None:
        self.access, self.daemon, self.port, self._http = access, daemon, port, http
        self.session = ""

    async def ask(
        self, path: str, method: str = "GET", body: object = None, **headers: str
    ) -> tuple[int, Any]:
        own = {"Authorization": f"Bearer {self.session}"} if self.session else {}
        given = own | {name.replace("_", "-"): value for name, value in headers.items()}
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        async with self._http.request(method, url, json=body, headers=given, allow_redirects=False) as answer:
            assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
            assert "X-Odd" not in answer.headers
            return answer.status, await (answer.json() if answer.status >= 400 else answer.text())

    async def enter(self) -> None:
        _, told = await self.ask("/session", "POST", {"token": self.access.token})
        self.session = told.split('"')[3]


def story(tell: Callable[[Page], Awaitable[None]], *, public: bool = False, record: bytes = b"") -> None:
    """Run a story of questions to a server."""

    async def run() -> None:
        bound = socket.create_server(("127.0.0.1", 0))
        port, daemon = bound.getsockname()[1], Asked()
        access = Access(hosts_of(port, ("web.site.org",)), public=public)
        app = application(access, None if record else daemon.stream, record=record)
        async with serving(app, bound), aiohttp.ClientSession() as http:
            await asyncio.wait_for(tell(Page(access, daemon, port, http)), 60)

    asyncio.run(run())


def test_the_token_counts_once_and_nothing_is_told_without_a_session() -> None:
    async def tell(page: Page) -> None:
        for path in ("/v1/status", "/v1/feed", "/logs/1", "/about"):
            assert (await page.ask(path))[0] == 401
            assert (await page.ask(path, Authorization="Bearer "))[0] == 401, "nobody has a session yet"
        assert (await page.ask("/session", "POST", {"token": "guess"}))[0] == 401
        assert (await page.ask("/session", "POST", {"token": 5}))[0] == 400, "not the daemon's fault"
        await page.enter()
        assert (await page.ask("/session", "POST", {"token": page.access.token}))[0] == 401
        assert await page.ask("/v1/status") == (200, "status")
        page.session += "x"
        assert (await page.ask("/v1/status"))[0] == 401
        assert page.daemon.paths == ["GET status {} "]

    story(tell)


def test_other_sites_get_nothing() -> None:
    async def tell(page: Page) -> None:
        await page.enter()
        assert (await page.ask("/v1/status", Host="evil.org"))[0] == 421, "a name that leads here"
        assert (await page.ask("/", Host=f"evil.org:{page.port}"))[0] == 421
        assert (await page.ask("/v1/status", Origin="http://evil.org"))[0] == 403
        assert (await page.ask("/v1/status", Origin=f"http://127.0.0.1:{page.port + 1}"))[0] == 403
        assert (await page.ask("/v1/status", Origin="null"))[0] == 403
        assert (await page.ask("/v1/status", Sec_Fetch_Site="cross-site"))[0] == 403
        assert (await page.ask("/v1/trainers/1", "DELETE", Sec_Fetch_Site="same-site"))[0] == 403
        own = {"Origin": f"http://localhost:{page.port}", "Host": f"localhost:{page.port}"}
        assert (await page.ask("/v1/status", Sec_Fetch_Site="same-origin", **own))[0] == 200
        assert (await page.ask("/v1/status", Host="web.site.org"))[0] == 200
        assert len(page.daemon.paths) == 2

    story(tell)


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/admin/drain", "/v1/trainers/x", "/v1/trainers/1/../../status", "/v1/trainers/%2e%2e%2fstatus"),
        *("/v1/studies/1%2ftrials", "/v1//status", "/v1/feed/", "/v1/agent", "/metrics", "/access.py"),
        *(
            "/../access.py",
            "/%2e%2e/access.py",
            "/page.css/../../access.py",
            "/page/index.html",
            "/v1/trainers/%d9%a3",
        ),
        *("/logs/1%2f..%2f..", "/logs/../v1/status", "//etc/passwd", "/record"),
    ],
)
def test_no_path_leads_elsewhere(path: str) -> None:
    async def tell(page: Page) -> None:
        await page.enter()
        assert (await page.ask(path))[0] in (400, 404)
        assert not page.daemon.paths

    story(tell)


def test_orders_are_passed_on_and_others_are_not() -> None:
    async def tell(page: Page) -> None:
        await page.enter()
        assert (await page.ask("/v1/trainers/7", "DELETE"))[0] == 200
        assert (await page.ask("/v1/trainers/7/priority", "POST", {"priority": 2}))[0] == 200
        assert page.daemon.paths == ["DELETE trainers/7 {} ", 'POST trainers/7/priority {} {"priority": 2}']
        for method, path in (
            ("POST", "/v1/trainers"),
            ("POST", "/v1/studies"),
            ("PUT", "/v1/status"),
            ("DELETE", "/"),
        ):
            assert (await page.ask(path, method, {}))[0] in (404, 405)

    story(tell)


def test_in_public_everybody_may_look_and_nobody_order() -> None:
    async def tell(page: Page) -> None:
        assert await page.ask("/v1/status", Host="web.site.org") == (200, "status")
        assert (await page.ask("/v1/trainers/7", "DELETE"))[0] == 405
        assert (await page.ask("/v1/trainers/7/priority", "POST", {"priority": 2}))[0] == 404
        assert (await page.ask("/logs/7"))[0] == 404
        assert (await page.ask("/v1/status", Origin="http://evil.org"))[0] == 403

    story(tell, public=True)


def test_all_pages_follow_over_one_stream_and_places_become_free_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a few readers take all that one user may have."""
    monkeypatch.setattr(relay, "READERS", 30)

    async def tell(page: Page) -> None:
        page.daemon.stays = True
        pages = [asyncio.create_task(page.ask("/v1/feed")) for _ in range(31)]
        (refused,), others = await asyncio.wait(pages, return_when=asyncio.FIRST_COMPLETED)
        assert (await refused)[0] == 429
        assert page.daemon.paths == ["GET feed {} "]
        for one in others:
            one.cancel()
        await asyncio.wait(others)
        page.daemon.stays = False
        while (await page.ask("/v1/feed")) != (200, "feed"):
            await asyncio.sleep(0.01)

    story(tell, public=True)


def test_a_page_that_comes_later_is_told_what_came_before() -> None:
    async def run() -> None:
        daemon = Spoken()
        feed = shared_feed.SharedFeed(daemon.stream)
        early = Reader(feed)
        await daemon.say(b"event: state\ndata: {}\n", b"\nevent: change\ndata: 1\n\n")
        late = Reader(feed)
        await daemon.say(b"event: change\ndata: 2\n\n")
        for reader in (early, late):
            await reader.until(b"data: 2\n\n")
        assert early.heard == late.heard and len(daemon.streams) == 1
        await daemon.say(b"x" * (shared_feed.SPARE + 1))
        await early.until(b"xx")
        assert late.log is early.log
        anew = Reader(feed)
        while len(daemon.streams) < 2:  # less to read than all that was told
            await asyncio.sleep(0.01)
        await daemon.say(b"event: state")
        await anew.until(b"event: state")
        for reader in (early, late, anew):
            reader.task.cancel()
        await asyncio.wait([early.task, late.task, anew.task])
        while daemon.streams:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_stream_that_has_told_too_much_ends_and_its_pages_begin_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_feed, "MOST", 10)

    async def run() -> None:
        daemon = Spoken()
        feed = shared_feed.SharedFeed(daemon.stream)
        reader = Reader(feed)
        await daemon.say(b"a state of any size\n\n", b"its changes")
        await reader.task
        assert reader.heard == b"a state of any size\n\nits changes"
        assert feed.join() is not reader.log

    asyncio.run(asyncio.wait_for(run(), 60))


class Spoken:
    """A daemon whose newest stream tells what it is given."""

    def __init__(self) -> None:
        self.streams: list[asyncio.Queue[bytes]] = []

    async def say(self, *pieces: bytes) -> None:
        while not self.streams or self.streams[-1].qsize():
            await asyncio.sleep(0.01)
        for piece in pieces:
            self.streams[-1].put_nowait(piece)

    @asynccontextmanager
    async def stream(self, method: str, path: str, query: dict[str, str]) -> AsyncIterator[Any]:
        said = asyncio.Queue[bytes]()
        self.streams.append(said)

        async def pieces(size: int) -> AsyncIterator[bytes]:
            while True:
                yield await said.get()

        try:
            yield SimpleNamespace(status=200, content=SimpleNamespace(iter_chunked=pieces))
        finally:
            self.streams.remove(said)


class Reader:
    """A page that follows, and what it has heard."""

    def __init__(self, feed: shared_feed.SharedFeed) -> None:
        self.heard, self.feed, self.log = b"", feed, feed.join()
        self.task = asyncio.create_task(self.read())

    async def read(self) -> None:
        try:
            async for piece in shared_feed.told(self.log):
                self.heard += piece
        finally:
            self.feed.leave(self.log)

    async def until(self, words: bytes) -> None:
        while not self.heard.endswith(words) and words not in self.heard:
            await asyncio.sleep(0.01)


def test_a_record_is_shown_without_a_daemon() -> None:
    async def tell(page: Page) -> None:
        assert (await page.ask("/record"))[0] == 401
        await page.enter()
        assert await page.ask("/record") == (200, '{"a": 1}')
        assert (await page.ask("/about"))[1] == '{"public": false, "record": true}'
        assert (await page.ask("/v1/status"))[0] == 404

    story(tell, record=b'{"a": 1}')


def test_the_page_has_no_script_or_style_but_its_files_and_writes_text_as_text() -> None:
    found = files()
    page = found["/"][1].decode()
    assert {"/index.html", "/page.css", "/main.js", "/feed.js", "/icon.svg"} <= found.keys()
    assert " style=" not in page and "javascript:" not in page and "<script>" not in page
    for path, (kind, data) in found.items():
        if kind.startswith("text/javascript"):
            for word in (
                b"innerHTML",
                b"outerHTML",
                b"insertAdjacentHTML",
                b"document.write",
                b"eval(",
                b"Function(",
            ):
                assert word not in data, (path, word)
            assert b"http://" not in data and b"https://" not in data, f"{path} asks another site"
